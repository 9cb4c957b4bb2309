"""Server's part of a job, which trains over the sites with one Task per message."""

import itertools
import logging
import math
import queue
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from fcfl.engines.nvflare.site import TASK, from_shareable, to_shareable
from fcfl.errors import AbsentClientError, FCFLError
from fcfl.runs.site_run import serve
from fcfl.sites.transport import Reply

SETTINGS = "fcfl.toml"  # the run config, in the server's part of the job
ERROR, FAULT = "error: ", "fault: "  # prefixes in the log; a run may be repeated after a fault
_CHECK_SECONDS = 0.05
_WAIT_SECONDS = 1.0  # maximum time to wait for the next reply

log = logging.getLogger("fcfl")


class JobAborted(Exception):
    """The engine has aborted the job."""


@dataclass
class TaskTransport:
    """Transport of messages as Tasks, which sites fetch.

    ``names`` has the names in the sites' certificates, by node. ``send_task`` offers a Task to a
    site by name. ``is_over`` returns whether the job must end.
    """

    names: Sequence[str]
    send_task: Callable[[Task, str], None]
    is_over: Callable[[], bool] = lambda: False
    unanswered: set[str] = field(default_factory=set)
    """Sites without a response, result or rejection, to their last message."""
    _replies: "queue.SimpleQueue[Reply]" = field(default_factory=queue.SimpleQueue)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def nodes(self) -> Collection[int]:
        """Return all sites of the job, which requires all of them."""
        return range(len(self.names))

    def send(self, node: int, content: bytes, seconds: float) -> str:
        """Offer a Task that expires after ``seconds``; return the message's id."""
        message_id, name = str(next(self._ids)), self.names[node]
        self.unanswered.add(name)

        def receive_result(client_task: ClientTask, fl_ctx: FLContext) -> None:
            self._replies.put(self._reply(message_id, name, client_task.result))

        task = Task(
            name=TASK,
            data=to_shareable(content),
            timeout=math.ceil(seconds),
            result_received_cb=receive_result,
        )
        self.send_task(task, name)
        return message_id

    def receive(self, message_ids: Collection[str]) -> Iterable[Reply]:
        """Return the replies that have arrived, after waiting up to 1 s for the first."""
        if self.is_over():
            raise JobAborted("The job was aborted.")
        replies: list[Reply] = []
        with suppress(queue.Empty):
            replies.append(self._replies.get(timeout=_WAIT_SECONDS))
            while True:
                replies.append(self._replies.get_nowait())
        return replies

    def _reply(self, message_id: str, name: str, result: Any) -> Reply:
        code = None if result is None else result.get_return_code(ReturnCode.OK)
        if code in (ReturnCode.OK, ReturnCode.TASK_RESULT_FILTER_ERROR):
            self.unanswered.discard(name)
        if code == ReturnCode.OK:
            return Reply(message_id, from_shareable(result))
        if code == ReturnCode.TASK_RESULT_FILTER_ERROR:
            return Reply(message_id, None, "its response exceeds the site's size limit.")
        why = f"its part of the job failed ({code}); see the log of its node."
        return Reply(message_id, None, why)


class TrainingController(Controller):  # type: ignore[misc]
    """Controller that runs the command of the job's settings.

    An error ends the job and is logged as one line. Kits of servers allow no other controller.
    """

    def __init__(self) -> None:
        super().__init__(task_check_period=_CHECK_SECONDS)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing; required by the engine."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing; required by the engine."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run to the end; log an error as a fault if it is due to a site without a response."""
        log.setLevel(logging.INFO)
        names = sorted(client.name for client in fl_ctx.get_engine().get_clients())

        def send(task: Any, name: str) -> None:
            self.send(task, fl_ctx, targets=[name])

        transport = TaskTransport(names, send, lambda: bool(abort_signal.triggered))
        nodes = ",".join(f"{name}={node}" for node, name in enumerate(names))
        place = Path(fl_ctx.get_workspace().get_app_config_dir(fl_ctx.get_job_id()))
        try:
            config = tomllib.loads((place / SETTINGS).read_text(encoding="utf-8"))
            serve(transport, {**config, "nodes": nodes})
        except JobAborted as end:
            log.info("%s", end)
        except (FCFLError, ValueError, OSError) as error:
            sentence = " ".join(str(error).split())
            is_fault = isinstance(error, AbsentClientError) and bool(transport.unanswered)
            log.error("%s%s", FAULT if is_fault else ERROR, sentence)
            self.system_panic(sentence, fl_ctx)
        except Exception as error:
            log.exception("%sUnexpected %s.", ERROR, type(error).__name__)
            self.system_panic(f"Unexpected {type(error).__name__}.", fl_ctx)
