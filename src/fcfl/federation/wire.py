"""Values as bytes between machines: a line, the JSON tree of `codec`, then the raw arrays.

Nothing but the caller's registered classes is ever built, nothing larger than the message is ever
allocated, and numbers arrive to the last bit.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from fcfl.errors import FCFLError
from fcfl.federation.codec import Arrays, decode, encode

Order: TypeAlias = Literal["C", "F"]

MAGIC = b"fcfl-wire-4"
MOST_HEAD = 8_000_000  # bytes of JSON: the levels of a hundred thousand categories take 3 MB
MOST_BYTES = 2**29  # of a whole message
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|b1", "|u1")
_ORDERS: tuple[Order, ...] = ("C", "F")


class WireError(FCFLError):
    """Bytes that are no message of this version of fcfl."""


def pack(value: Any, classes: Mapping[str, type]) -> bytes:
    """``value`` as bytes; a dataclass must be in ``classes``."""
    tree, arrays = encode(value, classes)
    shapes, chunks = {}, []
    for key, array in arrays.items():
        order = _order(array)
        shapes[key] = [_wire_type(array), list(array.shape), order]
        chunks.append(array.astype(_wire_type(array), copy=False).tobytes(order))
    head = json.dumps({"tree": tree, "arrays": shapes}, separators=(",", ":")).encode()
    return b"".join([MAGIC, b" %d\n" % len(head), head, *chunks])


def _order(array: np.ndarray[Any, Any]) -> Order:
    """How it lies in memory, which decides how its sums are rounded."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _wire_type(array: np.ndarray[Any, Any]) -> str:
    """The same type with little-endian bytes."""
    name: str = array.dtype.newbyteorder("<").str
    if name not in _DTYPES:
        raise TypeError(f"Cannot send an array of type {array.dtype}.")
    return name


def unpack(message: bytes, classes: Mapping[str, type], *, strict: bool = False) -> Any:
    """The value again; `WireError` says what is wrong with other bytes.

    With ``strict``, for bytes of somebody else, a message has a largest size, and every field of a
    dataclass holds what its type hint says.
    """
    tree, arrays = unpack_tree(message, strict=strict)
    try:
        return decode(tree, arrays, classes, strict=strict)
    except Exception as error:  # whatever hostile bytes provoke is one thing: no message
        raise _unreadable(error) from None


def unpack_tree(message: bytes, *, strict: bool = False) -> tuple[Any, Arrays]:
    """The JSON tree and the arrays of a message, of which nothing is built yet."""
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
        if not length.isdigit():
            raise ValueError("it has no length")
        if strict and (len(message) > MOST_BYTES or int(length) > MOST_HEAD):
            raise ValueError("it is too long")
        start = len(line) + 1
        body = start + int(length)
        head = json.loads(message[start:body])
        return head["tree"], _read_arrays(message, body, head["arrays"])
    except Exception as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> WireError:
    said = f"unknown {error}" if isinstance(error, KeyError) else str(error)
    return WireError(f"The message cannot be read ({said[:200] or type(error).__name__}).")


def _read_arrays(message: bytes, start: int, shapes: Mapping[str, Any]) -> Arrays:
    arrays: Arrays = {}
    for key, (name, shape, order) in shapes.items():
        sizes_fit = len(shape) <= 8 and all(type(size) is int and size >= 0 for size in shape)
        if name not in _DTYPES or order not in _ORDERS or not sizes_fit:
            raise ValueError(f"an array of type {name!r} and shape {shape!r}")
        dtype = np.dtype(name)
        end = start + math.prod(shape) * dtype.itemsize  # Python's integers do not overflow
        if end > len(message):
            raise ValueError("it is cut short")
        # A copy, aligned as any other array: sums then round as they do in one process.
        flat = np.frombuffer(message[start:end], dtype=dtype)
        arrays[key] = flat.reshape(shape, order=order).copy(order)
        start = end
    if start != len(message):
        raise ValueError("it is too long")
    return arrays
