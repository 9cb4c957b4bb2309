"""Frozen dataclasses as JSON and back, by their type hints.

Understood are dataclasses, ``Mapping[str, …]``, tuples, ``Literal``, unions, text, numbers, truth
values and ``object``, which is taken as it is. Keys that a dataclass does not know are passed over:
a file of a newer version is still read.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_NAMES = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
_OMITTED = {"omit_default": True}


class JsonError(ValueError):
    """A value is not of the type that its key needs; the message names the key."""


def key_of(name: str) -> dict[str, object]:
    """Metadata of a field whose key in the file is not its name."""
    return {"key": name}


def omitted() -> dict[str, object]:
    """Metadata of a field that is not written while it has its default."""
    return dict(_OMITTED)


def to_json(value: object) -> Any:
    """Plain data for `json.dumps`; a number that is not finite becomes null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_key(f): to_json(getattr(value, f.name)) for f in fields(value) if _shown(value, f)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_json(kind: type[T], content: object) -> T:
    """The dataclass that `to_json` wrote, with every type checked."""
    return cast(T, _read(kind, content, ""))


def _key(field: Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


def _shown(value: object, field: Field[Any]) -> bool:
    return "omit_default" not in field.metadata or getattr(value, field.name) != _default(field)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _read(hint: Any, content: Any, key: str) -> Any:
    origin, options = get_origin(hint), get_args(hint)
    if hint is object:
        return content
    if is_dataclass(hint):
        return _read_dataclass(hint, _checked(dict, content, key), key)
    if origin is Mapping or getattr(origin, "__name__", "") == "Mapping":
        items = _checked(dict, content, key).items()
        return {name: _read(options[1], item, _below(key, name)) for name, item in items}
    if origin is tuple:
        return _read_tuple(options, _checked(list, content, key), key)
    if origin in (Union, UnionType):
        return _read_union(options, content, key)
    if origin is Literal:
        if content not in options or isinstance(content, bool):
            raise JsonError(f"`{key}` must be {_name(hint)}, got {content!r}.")
        return content
    return _read_plain(hint, content, key)


def _read_plain(hint: Any, content: Any, key: str) -> Any:
    """Text, a number or a truth value; a whole number is a number too, a truth value is neither."""
    kinds = (int, float) if hint is float else hint
    if not isinstance(content, kinds) or (isinstance(content, bool) and hint is not bool):
        raise JsonError(f"`{key}` must be {_name(hint)}, got {content!r}.")
    return content


def _read_dataclass(kind: Any, content: dict[str, Any], key: str) -> Any:
    values = {}
    for field in fields(kind):
        name = _key(field)
        if name in content:
            values[field.name] = _read(_hints(kind)[field.name], content[name], _below(key, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise JsonError(f"`{_below(key, name)}` is missing.")
    return kind(**values)


def _read_tuple(options: tuple[Any, ...], content: list[Any], key: str) -> Any:
    if len(options) == 2 and options[1] is Ellipsis:
        options = (options[0],) * len(content)
    if len(options) != len(content):
        raise JsonError(f"`{key}` must have {len(options)} entries, got {len(content)}.")
    pairs = zip(options, content, strict=True)
    return tuple(_read(hint, item, f"{key}[{i}]") for i, (hint, item) in enumerate(pairs))


def _read_union(options: tuple[Any, ...], content: Any, key: str) -> Any:
    if content is None and NoneType in options:
        return None
    known = [option for option in options if option is not NoneType]
    if len(known) == 1:  # its own error is more precise than that of the union
        return _read(known[0], content, key)
    for option in known:
        with suppress(JsonError):
            return _read(option, content, key)
    raise JsonError(f"`{key}` must be {' or '.join(map(_name, known))}, got {content!r}.")


def _checked(kind: type[T], content: object, key: str) -> T:
    if not isinstance(content, kind):
        needed = "an object" if kind is dict else "a list"
        raise JsonError(f"`{key}` must be {needed}, got {content!r}.")
    return content


@cache
def _hints(kind: Any) -> Mapping[str, object]:
    return get_type_hints(kind)


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return _NAMES.get(hint, str(hint))


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
