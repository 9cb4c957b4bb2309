"""A site's part of a job: answer requests from the files that the site's own file names."""

import logging
from pathlib import Path
from typing import Any

from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fcfl._files import parse_toml
from fcfl.errors import DataError
from fcfl.sites.messages import Answer, Refusal, encode_message
from fcfl.sites.site import reply_to

TASK = "fcfl"
PAYLOAD = "payload"
SITE_FILE = "site.toml"  # in the kit's folder `local`, which no job can write

log = logging.getLogger("fcfl")


def to_shareable(content: bytes) -> Any:
    """Return a message as NVIDIA FLARE carries it: bytes under one key."""
    shareable = Shareable()
    shareable[PAYLOAD] = content
    return shareable


def from_shareable(shareable: Any) -> bytes:
    """Return the message in a Shareable, or no bytes if there is none."""
    content = shareable.get(PAYLOAD)
    return content if isinstance(content, bytes) else b""


class SiteExecutor(Executor):  # type: ignore[misc]
    """Answer requests; the site's name comes from its certificate and its settings from its file.

    A job can change neither.
    """

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Answer one request of the server."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        path = Path(fl_ctx.get_workspace().get_site_config_dir()) / SITE_FILE
        name = str(fl_ctx.get_identity_name())
        return to_shareable(answer(from_shareable(shareable), name, path))


class SizeLimit(Filter):  # type: ignore[misc]
    """Let only our answers of at most ``most_mb`` MB leave a site."""

    def __init__(self, most_mb: float) -> None:
        super().__init__()
        self.most_mb = most_mb

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the answer, or an error in its place."""
        keys = {key for key in shareable if not key.startswith("__")}
        if keys - {PAYLOAD} or len(from_shareable(shareable)) > self.most_mb * 2**20:
            log.error("An answer was held back: not ours, or larger than %g MB.", self.most_mb)
            return make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
        return shareable


def answer(message: bytes, name: str, path: Path) -> bytes:
    """Answer from the site's file at ``path``, under the name in its certificate only."""
    try:
        config = parse_toml(path.read_bytes(), f"{SITE_FILE} of site {name!r}")
        if config.get("name", name) != name:
            raise DataError(f"`name` in {SITE_FILE} must be that of the certificate, {name!r}.")
    except (OSError, DataError) as error:
        log.error("Site %r: %s", name, error)
        sent = str(error) if isinstance(error, DataError) else f"{SITE_FILE} cannot be read."
        return encode_message(Answer(name, Refusal(sent)))
    return reply_to(message, {**config, "name": name})
