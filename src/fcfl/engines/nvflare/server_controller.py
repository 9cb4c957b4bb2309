"""The server's part of a job: a loop that somebody else wrote, over a `TaskTransport`."""

import logging
import tomllib
from abc import abstractmethod
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from fcfl.engines.nvflare.task_transport import JobAborted, TaskTransport
from fcfl.errors import AbsentClientError, FCFLError
from fcfl.sites.settings import Config
from fcfl.sites.transport import Transport

SETTINGS = "fcfl.toml"  # the run config, in the server's part of the job
ERROR, FAULT = "error: ", "fault: "  # in the log: the run cannot go on, or could be resumed
_CHECK_SECONDS = 0.05

log = logging.getLogger("fcfl")


class ServerController(Controller):  # type: ignore[misc]
    """Calls `main` with transport and run config; an error ends the job with one sentence."""

    def __init__(self) -> None:
        super().__init__(task_check_period=_CHECK_SECONDS)

    @abstractmethod
    def main(self, transport: Transport, config: Config) -> None:
        """What is to be done."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to clean up."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run; whatever goes wrong, the job ends."""
        log.setLevel(logging.INFO)
        engine = fl_ctx.get_engine()
        names = sorted(client.name for client in engine.get_clients())

        def send(task: Any, name: str) -> None:
            self.send(task, fl_ctx, targets=[name])

        transport = TaskTransport(names, send, lambda: bool(abort_signal.triggered))
        try:
            config = _read_config(fl_ctx)
            nodes = ",".join(f"{name}={node}" for node, name in enumerate(names))
            self.main(transport, {**config, "nodes": nodes})
        except JobAborted as end:
            log.info("%s", end)
        except (FCFLError, ValueError, OSError) as error:
            sentence = " ".join(str(error).split())
            marker = FAULT if isinstance(error, AbsentClientError) else ERROR
            log.error("%s%s", marker, sentence)
            self.system_panic(sentence, fl_ctx)
        except Exception as error:
            log.exception("%sUnexpected %s.", ERROR, type(error).__name__)
            self.system_panic(f"Unexpected {type(error).__name__}.", fl_ctx)


def _read_config(fl_ctx: FLContext) -> Config:
    place = fl_ctx.get_workspace().get_app_config_dir(fl_ctx.get_job_id())
    return tomllib.loads((Path(place) / SETTINGS).read_text(encoding="utf-8"))
