"""Site's part of a job, which responds to requests using the files in the site's settings."""

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
SITE_FILE = "site.toml"  # in the kit's folder `local`, which jobs cannot change

log = logging.getLogger("fcfl")


def to_shareable(content: bytes) -> Any:
    """Return a message as a Shareable with bytes under one key."""
    shareable = Shareable()
    shareable[PAYLOAD] = content
    return shareable


def from_shareable(shareable: Any) -> bytes:
    """Return the message in a Shareable, or empty bytes if there is none."""
    content = shareable.get(PAYLOAD)
    return content if isinstance(content, bytes) else b""


class SiteExecutor(Executor):  # type: ignore[misc]
    """Executor that responds to requests.

    The site's name comes from its certificate and its settings from its file. A job can change
    neither.
    """

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Respond to a request of the server."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        path = Path(fl_ctx.get_workspace().get_site_config_dir()) / SITE_FILE
        name = str(fl_ctx.get_identity_name())
        return to_shareable(answer(from_shareable(shareable), name, path))


class SizeLimit(Filter):  # type: ignore[misc]
    """Filter that rejects results other than responses of fcfl of at most ``most_mb`` MB."""

    def __init__(self, most_mb: float) -> None:
        super().__init__()
        self.most_mb = most_mb

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result, or an error if it is rejected."""
        keys = {key for key in shareable if not key.startswith("__")}
        if keys - {PAYLOAD} or len(from_shareable(shareable)) > self.most_mb * 2**20:
            log.error("A result was not sent: not from fcfl, or above %g MB.", self.most_mb)
            return make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
        return shareable


def answer(message: bytes, name: str, path: Path) -> bytes:
    """Return the response to a message, with the settings in the file ``path``."""
    try:
        config = parse_toml(path.read_bytes(), f"{SITE_FILE} of site {name!r}")
        if config.get("name", name) != name:
            raise DataError(f"`name` in {SITE_FILE} must be the certificate's name, {name!r}.")
    except (OSError, DataError) as error:
        log.error("Site %r: %s", name, error)
        sent = str(error) if isinstance(error, DataError) else f"{SITE_FILE} cannot be read."
        return encode_message(Answer(name, Refusal(sent)))
    return reply_to(message, {**config, "name": name})
