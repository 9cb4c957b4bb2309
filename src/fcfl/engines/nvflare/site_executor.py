"""A site's part of a job: one question, answered from the files that its own file names."""

import logging
import tomllib
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fcfl.engines.nvflare.task_transport import PAYLOAD, TASK, from_shareable, to_shareable
from fcfl.errors import DataError
from fcfl.sites.messages import Answer, Refusal, encode_message
from fcfl.sites.settings import Config
from fcfl.sites.site import reply_to

SITE_FILE = "site.toml"  # in the kit's folder `local`, which no job can write

log = logging.getLogger("fcfl")


class SiteExecutor(Executor):  # type: ignore[misc]
    """Answers as the site whose certificate this node has; a job cannot set anything here."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Answer a question of the server, or say why not."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        name = str(fl_ctx.get_identity_name())
        return to_shareable(answer(from_shareable(shareable), name, _site_file(fl_ctx)))


class SizeLimit(Filter):  # type: ignore[misc]
    """Lets nothing leave a site but an answer of ours of at most so many MB."""

    def __init__(self, most_mb: float) -> None:
        super().__init__()
        self.most_mb = most_mb

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The same, or an error in its place."""
        keys = {key for key in shareable if not key.startswith("__")}
        if keys - {PAYLOAD} or len(from_shareable(shareable)) > self.most_mb * 2**20:
            log.error("An answer was held back: not ours, or larger than %g MB.", self.most_mb)
            return make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
        return shareable


def answer(message: bytes, name: str, path: Path) -> bytes:
    """Answer from a site's own file, under the name in its certificate and under no other."""
    try:
        config = _read(path)
        if config.get("name", name) != name:
            raise DataError(f"`name` in {SITE_FILE} must be that of the certificate, {name!r}.")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, DataError) as error:
        log.error("Site %r: %s", name, error)
        told = error if isinstance(error, DataError) else f"{SITE_FILE} cannot be read."
        return encode_message(Answer(name, Refusal(str(told))))
    return reply_to(message, {**config, "name": name})


def _read(path: Path) -> Config:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _site_file(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_workspace().get_site_config_dir()) / SITE_FILE
