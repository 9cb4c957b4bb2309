"""The ClientApp of a site: answer a request from the files that the node config names."""

import logging
import sys

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fcfl.sites.site import reply_to

PAYLOAD = "payload"
RECORD = "arrays"
_STYPE = "fcfl.wire"


def to_record(content: bytes) -> RecordDict:
    """Return a message as one array of bytes, which Flower splits and joins itself."""
    array = Array(dtype="uint8", shape=(len(content),), stype=_STYPE, data=content)
    return RecordDict({RECORD: ArrayRecord({PAYLOAD: array})})


def from_record(record: RecordDict) -> bytes:
    """Return the message in a record, or no bytes if there is none."""
    arrays = record.array_records.get(RECORD)
    array = None if arrays is None else arrays.get(PAYLOAD)
    return b"" if array is None else array.data


def log_to_stderr() -> None:
    """Log this package's messages to the stream that Flower shows."""
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
    """Answer one request of the server."""
    log_to_stderr()
    content = reply_to(from_record(message.content), context.node_config)
    return Message(to_record(content), reply_to=message)
