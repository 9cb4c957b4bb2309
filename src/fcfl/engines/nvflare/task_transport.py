"""Messages as Tasks of NVIDIA FLARE: a site fetches its own, and its answer is filed here."""

import itertools
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fcfl.sites.transport import Reply

TASK = "fcfl"
PAYLOAD = "payload"
_PATIENCE = 1.0  # seconds for which `receive` waits for the next answer

Send = Callable[[Task, str], None]


def to_shareable(content: bytes) -> Any:
    """A message as NVIDIA FLARE carries it: bytes under one key."""
    shareable = Shareable()
    shareable[PAYLOAD] = content
    return shareable


def from_shareable(shareable: Any) -> bytes:
    """The message again; nothing where there is none."""
    content = shareable.get(PAYLOAD)
    return content if isinstance(content, bytes) else b""


@dataclass
class TaskTransport:
    """One Task per message. ``names`` are those in the sites' certificates, by node.

    ``send_task`` gives a Task to the site of that name; ``is_over`` says that the job must end.
    """

    names: Sequence[str]
    send_task: Send
    is_over: Callable[[], bool] = lambda: False
    _replies: dict[str, Reply] = field(default_factory=dict)
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def nodes(self) -> Collection[int]:
        """All sites of the job: without one of them it would not run."""
        return range(len(self.names))

    def send(self, node: int, content: bytes, seconds: float) -> str:
        """Queue one Task, which the site fetches."""
        message_id = str(next(self._ids))

        def file_result(client_task: ClientTask, fl_ctx: FLContext) -> None:
            self._file(_reply(message_id, client_task.result))

        task = Task(
            name=TASK,
            data=to_shareable(content),
            timeout=math.ceil(seconds),
            result_received_cb=file_result,
        )
        self.send_task(task, self.names[node])
        return message_id

    def receive(self, message_ids: Collection[str]) -> Iterable[Reply]:
        """What has arrived; waits a little for the first."""
        if self.is_over():
            raise JobAborted("The job was aborted.")
        wanted = set(message_ids)
        with self._arrived:
            self._arrived.wait_for(lambda: not wanted.isdisjoint(self._replies), _PATIENCE)
            return [self._replies.pop(key) for key in sorted(wanted & self._replies.keys())]

    def _file(self, reply: Reply) -> None:
        with self._arrived:
            self._replies[reply.message_id] = reply
            self._arrived.notify_all()


class JobAborted(Exception):
    """The engine wants the job to end; not an error of the run."""


def _reply(message_id: str, result: Any) -> Reply:
    code = ReturnCode.OK if result is None else result.get_return_code(ReturnCode.OK)
    if result is None or code != ReturnCode.OK:
        why = f"its part of the job failed ({code}); the log of its node has the rest."
        return Reply(message_id, None, why)
    return Reply(message_id, from_shareable(result))
