"""Values as bytes between machines: a line, the JSON tree of `codec`, then the raw arrays.

Nothing but the caller's registered classes is ever built, nothing larger than the message is ever
allocated, and numbers arrive to the last bit.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fcfl.errors import FCFLError
from fcfl.federation.codec import Arrays, decode, encode

MAGIC = b"fcfl-wire-2"
_DTYPES = ("<f8", "<i8", "<i4", "|b1", "|u1")
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


class WireError(FCFLError):
    """Bytes that are no message of this version of fcfl."""


def pack(value: Any, classes: Mapping[str, type]) -> bytes:
    """``value`` as bytes; a dataclass must be in ``classes``."""
    tree, arrays = encode(value, classes)
    shapes, chunks = {}, []
    for key, array in arrays.items():
        plain = np.ascontiguousarray(array).astype(_wire_type(array), copy=False)
        shapes[key] = [plain.dtype.str, list(array.shape)]
        chunks.append(plain.tobytes())
    head = json.dumps({"tree": tree, "arrays": shapes}, separators=(",", ":")).encode()
    return b"".join([MAGIC, b" %d\n" % len(head), head, *chunks])


def _wire_type(array: np.ndarray[Any, Any]) -> str:
    """The same type with little-endian bytes."""
    name: str = array.dtype.newbyteorder("<").str
    if name not in _DTYPES:
        raise TypeError(f"Cannot send an array of type {array.dtype}.")
    return name


def unpack(message: bytes, classes: Mapping[str, type]) -> Any:
    """The value again; `WireError` says what is wrong with other bytes."""
    line, found, _ = message[:64].partition(b"\n")
    magic, _, length = line.partition(b" ")
    if not found or not magic.startswith(MAGIC.rpartition(b"-")[0]):
        raise WireError("This is no message of fcfl.")
    if magic != MAGIC:
        raise WireError(
            f"The message has the form {magic.decode(errors='replace')}, expected "
            f"{MAGIC.decode()}. Install the same version of fcfl everywhere."
        )
    try:
        start = len(line) + 1
        body = start + int(length)
        head = json.loads(message[start:body])
        arrays = _read_arrays(message, body, head["arrays"])
        return decode(head["tree"], arrays, classes)
    except _UNREADABLE as error:
        raise WireError(f"The message cannot be read ({_why(error)}).") from None


def _read_arrays(message: bytes, start: int, shapes: Mapping[str, Any]) -> Arrays:
    arrays: Arrays = {}
    for key, (name, shape) in shapes.items():
        if name not in _DTYPES or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of type {name!r} and shape {shape!r}")
        dtype = np.dtype(name)
        count = 1
        for size in shape:  # Python's integers: a product that would overflow is seen
            count *= size
        end = start + count * dtype.itemsize
        if end > len(message):
            raise ValueError("it is cut short")
        # A copy, aligned as any other array: sums then round as they do in one process.
        arrays[key] = np.frombuffer(message[start:end], dtype=dtype).reshape(shape).copy()
        start = end
    if start != len(message):
        raise ValueError("it is too long")
    return arrays


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"unknown {error}"
    return str(error) or type(error).__name__
