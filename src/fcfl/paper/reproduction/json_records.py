"""Frozen dataclasses as JSON values and back.

A field is a key of the same name, without a trailing underscore (``global_`` is ``global``). A
field that has a default is left out while it is None or empty.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: object) -> object:
    """Dataclasses become objects, tuples lists, and numbers that are not finite null."""
    if is_dataclass(value):
        return {
            _key(field): to_json(getattr(value, field.name))
            for field in fields(value)
            if not (_has_default(field) and getattr(value, field.name) in (None, {}))
        }
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(kind: type[T], value: object) -> T:
    """A dataclass from what :func:`to_json` made of it; keys it does not know are ignored.

    Raises
    ------
    TypeError, AttributeError, ValueError
        Where a key is missing or a value has another shape.
    """
    return cast(T, _read(kind, value))


def _read(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(
            **{name: _read(type_, value[key]) for name, key, type_ in _fields(kind) if key in value}
        )
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        matching = (part for part in parts if _is_nested(part) == isinstance(value, (dict, list)))
        return None if value is None else _read(next(matching), value)
    if origin is tuple:
        each = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_read(part, one) for part, one in zip(each, value, strict=True))
    if origin is Mapping:
        return {name: _read(parts[1], one) for name, one in value.items()}
    return value


@cache
def _fields(kind: Any) -> list[tuple[str, str, Any]]:
    """Name, key and type of each field."""
    types = get_type_hints(kind)
    return [(field.name, _key(field), types[field.name]) for field in fields(kind)]


def _is_nested(kind: Any) -> bool:
    return is_dataclass(kind) or get_origin(kind) in (tuple, Mapping)


def _key(field: Field[Any]) -> str:
    return field.name.rstrip("_")


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
