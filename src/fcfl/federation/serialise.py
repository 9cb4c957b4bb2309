"""Serialisation of frozen dataclasses as MessagePack, without pickle.

`msgspec` decodes each field by its type hint and reports the position of invalid values. Only
classes in type hints, and classes that the caller adds, can be created. Arrays are stored as raw
bytes with type, shape and memory order, so that sums over them have the same rounding everywhere.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from fcfl._types import Extra
from fcfl.errors import FCFLError

WIRE = 5  # number of the format of messages, checkpoints and stored rows
TAG = "@"  # the key of a class's name
MAX_BYTES = 2**29  # maximum size of a message

Array = np.ndarray[Any, Any]
_DType = Literal["<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|b1", "|u1"]
_StoredArray = tuple[_DType, tuple[int, ...], Literal["C", "F"], bytes]
_ARRAY = 1  # the code of MessagePack's extension type
_stored_array = msgspec.msgpack.Decoder(_StoredArray)


class WireError(FCFLError):
    """The bytes cannot be read by this version of fcfl."""


class Serialiser:
    """Reads and writes values of the type ``root``.

    If a type hint is a protocol, an abstract class or `Any`, values may be plain values or
    instances of ``also`` and of classes in other hints. All subclasses of `Extra` are allowed,
    unless ``also`` has some of them.

    Raises
    ------
    TypeError
        If two classes have the same name, or a type hint cannot be resolved.
    """

    def __init__(self, root: Any, also: Iterable[type] = ()) -> None:
        self.classes: dict[str, type] = {}
        self._structs: dict[str, Any] = {}
        self._has_extras = False
        for cls in also:
            self._struct(cls)
            self._has_extras |= issubclass(cls, Extra)
        self._root = msgspec.msgpack.Decoder(
            self._readable(root), ext_hook=_load_array, dec_hook=_check_array
        )

    def dump(self, value: Any) -> bytes:
        """Return ``value`` as bytes; raise `TypeError` if it could not be read back."""
        return b"fcfl-%d\n" % WIRE + msgspec.msgpack.encode(plain(value, self.classes))

    def load(self, content: bytes) -> Any:
        """Return the value in ``content``; raise `WireError` if it cannot be read."""
        body = _body(content)
        try:
            return self.restore(self._root.decode(body))
        except Exception as error:  # malicious bytes can cause errors of any type
            raise _unreadable(error) from None

    def restore(self, tree: Any) -> Any:
        """Return the value whose `plain` form is ``tree``."""
        if isinstance(tree, msgspec.Struct):
            cls = self.classes[type(tree).__name__]
            return cls(**{f.name: self.restore(getattr(tree, f.name)) for f in fields(cls)})
        if isinstance(tree, dict):
            if TAG not in tree:
                return {key: self.restore(item) for key, item in tree.items()}
            struct = self._structs[tree[TAG]]
            return self.restore(msgspec.convert(tree, struct, dec_hook=_check_array))
        if isinstance(tree, (list, tuple)):
            return tuple([self.restore(item) for item in tree])
        return tree

    def _readable(self, hint: Any) -> Any:
        """Return the type with which `msgspec` decodes values of a type hint."""
        origin, args = get_origin(hint), get_args(hint)
        if type(hint).__name__ == "TypeAliasType":  # made by a `type` statement
            return self._readable(hint.__value__)
        if isinstance(hint, TypeVar):
            return self._readable(hint.__bound__)
        if origin is Annotated:
            return self._readable(args[0])
        if hint is float:
            return int | float  # keeps integers
        if origin is Union or origin is UnionType:
            return _union([self._readable(arg) for arg in args])
        if origin is tuple:
            return tuple[tuple(arg if arg is ... else self._readable(arg) for arg in args)]  # type: ignore[misc]
        if origin in (Mapping, dict):
            return dict[str, self._readable(args[1])]  # type: ignore[misc]
        if origin is Literal or origin is np.ndarray or hint in (int, str, bool, None, type(None)):
            return hint
        cls = origin or hint
        if isinstance(cls, type) and is_dataclass(cls):
            for arg in args:  # a generic class holds what it is made of
                self._readable(arg)
            return self._struct(cls)
        if cls is Extra and not self._has_extras:  # methods can define extras of their requests
            newest = {(sub.__module__, sub.__qualname__): sub for sub in Extra.__subclasses__()}
            for sub in newest.values():
                self._struct(sub)
        return Any

    def _struct(self, cls: type) -> Any:
        """Return the `msgspec` structure with the fields of a dataclass."""
        name = cls.__name__
        if name not in self.classes:
            self.classes[name] = cls
            hints = _hints(cls)
            self._structs[name] = msgspec.defstruct(
                name,
                [(field.name, self._readable(hints[field.name])) for field in fields(cls)],
                tag=name,
                tag_field=TAG,
                forbid_unknown_fields=True,
            )
        elif self.classes[name] is not cls:
            known = self.classes[name]
            raise TypeError(
                f"Two classes are named {name!r}, {_full_name(known)} and {_full_name(cls)}; a "
                "checkpoint cannot tell them apart. Rename one of them."
            )
        return self._structs.get(name, Any)  # Any for a recursive class


def plain(value: Any, classes: Mapping[str, type] | None = None) -> Any:
    """Return ``value`` as maps with class names, lists, scalars and raw bytes of arrays.

    Raise `TypeError` for values that cannot be read again, such as a dataclass that is not in
    ``classes``.
    """
    if isinstance(value, np.ndarray):
        return msgspec.msgpack.Ext(_ARRAY, _dump_array(value))
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        if classes is not None and classes.get(name) is not type(value):
            raise TypeError(
                f"Cannot write a {name}: its class is not among those that may be read back; "
                "in a checkpoint these are the ones that the state's type hints mention."
            )
        named = ((f.name, plain(getattr(value, f.name), classes)) for f in fields(value))
        return {TAG: name, **dict(named)}
    if isinstance(value, tuple):
        return [plain(item, classes) for item in value]
    if isinstance(value, Mapping):
        return {_key(key): plain(item, classes) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"Cannot write a {type(value).__name__}.")


def same(left: Any, right: Any) -> bool:
    """Return whether two values are identical, including all bits of arrays."""
    return _encode(left) == _encode(right)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value, the same on every machine."""
    return hashlib.sha256(_encode(value)).hexdigest()


def seal(content: bytes) -> bytes:
    """Return ``content`` preceded by its SHA-256, for a file."""
    return b"%s\n%s" % (hashlib.sha256(content).hexdigest().encode(), content)


def unseal(stored: bytes) -> bytes | None:
    """Return the content of a sealed file, or None if the file is damaged."""
    content = stored.partition(b"\n")[2]
    return content if seal(content) == stored else None


def peek(content: bytes, *keys: str) -> str | None:
    """Return the text at ``keys`` without decoding other values, or None if there is none."""
    hint: Any = str
    for key in reversed(keys):
        hint = msgspec.defstruct("Peek", [("found", hint)], rename={"found": key})
    with suppress(WireError, msgspec.MsgspecError, RecursionError):
        found = msgspec.msgpack.Decoder(hint).decode(_body(content))
        for _ in keys:
            found = found.found
        return str(found)
    return None


def _body(content: bytes) -> bytes:
    """Return the content after the header; raise `WireError` for another format number."""
    if len(content) > MAX_BYTES:
        raise WireError(f"The message has more than {MAX_BYTES} bytes.")
    head, _, body = content.partition(b"\n")
    name, _, number = head[:32].partition(b"-")
    if name != b"fcfl" or not number.isdigit():
        raise WireError("This was not written by fcfl, or by a version before format 5.")
    if int(number) != WIRE:
        raise WireError(
            f"This was written in format {int(number)}, and this version of fcfl reads format "
            f"{WIRE}. Install the same version of fcfl everywhere."
        )
    return body


def _unreadable(error: Exception) -> WireError:
    sentence = f"unknown {error}" if isinstance(error, KeyError) else str(error)
    return WireError(f"The message cannot be read ({sentence[:200] or type(error).__name__}).")


def _encode(value: Any) -> bytes:
    return msgspec.msgpack.encode(plain(value), order="deterministic")


def _dump_array(array: Array) -> bytes:
    stored_type = array.dtype.newbyteorder("<").str
    if stored_type not in get_args(_DType):
        raise TypeError(f"Cannot write an array of type {array.dtype}.")
    order: Literal["C", "F"] = (
        "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    )
    content = array.astype(stored_type, copy=False).tobytes(order)
    return msgspec.msgpack.encode((stored_type, array.shape, order, content))


def _load_array(code: int, content: memoryview) -> Array:
    """Return an array in aligned memory of its own, so that sums have the usual rounding."""
    stored_type, shape, order, numbers = _stored_array.decode(content)
    flat = np.frombuffer(numbers, dtype=stored_type)
    return flat.reshape(shape, order=order).copy(order)


def _check_array(hint: Any, array: Any) -> Any:
    """Return ``array``; raise `TypeError` unless it is an array of the type in a type hint."""
    (wanted,) = get_args(get_args(hint)[1]) or (Any,)
    if not isinstance(array, np.ndarray) or (wanted is not Any and array.dtype != wanted):
        raise TypeError(f"Expected an array of {getattr(wanted, '__name__', 'numbers')}")
    return array


def _union(members: list[Any]) -> Any:
    """Return the union of types, or `Any` if `msgspec` cannot distinguish them."""
    found = reduce(or_, members)
    try:
        msgspec.msgpack.Decoder(found)
    except TypeError:
        return Any
    return found


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"Cannot write a map with the key {key!r}; use text.")
    return key


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise TypeError(
            f"The type hints of {_full_name(cls)} cannot be resolved ({error}). Define what they "
            "mention at the top level of its module."
        ) from error


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
