"""ClientApp of a site, which responds to requests using the files in the node config."""

import logging
import sys

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fcfl.sites.site import reply_to

PAYLOAD = "payload"
RECORD = "arrays"
_STYPE = "fcfl.wire"


def to_record(content: bytes) -> RecordDict:
    """Return a message as a record with one array of bytes, which Flower can split and join."""
    array = Array(dtype="uint8", shape=(len(content),), stype=_STYPE, data=content)
    return RecordDict({RECORD: ArrayRecord({PAYLOAD: array})})


def from_record(record: RecordDict) -> bytes:
    """Return the message in a record, or empty bytes if there is none."""
    arrays = record.array_records.get(RECORD)
    array = None if arrays is None else arrays.get(PAYLOAD)
    return b"" if array is None else array.data


def log_to_stderr() -> None:
    """Log messages of fcfl to stderr, which Flower shows."""
    logger = logging.getLogger("fcfl")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("fcfl: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Respond to a request of the server."""
    log_to_stderr()
    content = reply_to(from_record(message.content), context.node_config)
    return Message(to_record(content), reply_to=message)
