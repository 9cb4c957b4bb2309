"""Frozen dataclasses <-> JSON and arrays, without pickle.

Only classes that the caller names are ever built: a mapping from name to class, or everything that
`reachable_classes` finds in the type hints of a class. A file cannot name any other, and nothing is
imported because a file says so. Numbers survive exactly: arrays as raw bytes, floats by Python's
shortest representation that reads back the same.
"""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from fcfl._types import Extra

Arrays = dict[str, np.ndarray[Any, Any]]

DEEPEST = 64  # values inside each other; a run's state has about ten
LARGEST_INTEGER = 2**63  # in a message: more is no count of anything, and no float64 may hold it


def reachable_classes(*roots: Any) -> dict[str, type]:
    """All dataclasses that a value of the ``roots`` may hold, by name.

    The roots, the dataclasses in the type hints of their fields, those in the hints of these, and
    so on, through unions, tuples, mappings and aliases. A class that no hint mentions is not
    found, even if a field declared as its base class, a `Protocol` or `Any` holds one.

    Raises
    ------
    TypeError
        When two different classes have one name, which a file could not tell apart, or when a
        type hint cannot be resolved.
    """
    found: dict[str, type] = {}
    waiting = list(roots)
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if isinstance(hint, TypeVar):
            waiting.append(hint.__bound__)
        if type(hint).__name__ == "TypeAliasType":  # made by a `type` statement
            waiting.append(hint.__value__)
        cls = get_origin(hint) or hint
        if isinstance(cls, type) and issubclass(cls, Extra):
            # A method's own questions travel in its requests. Of a class that was defined twice, as
            # `slots=True` and a notebook's cell do, the newer one counts.
            newest = {(sub.__module__, sub.__qualname__): sub for sub in cls.__subclasses__()}
            waiting += newest.values()
        if not (isinstance(cls, type) and is_dataclass(cls)):
            continue
        if found.get(cls.__name__) is cls:
            continue
        known = found.setdefault(cls.__name__, cls)
        if known is not cls:
            raise TypeError(
                f"Two classes of a state are named {cls.__name__!r}, {_full_name(known)} and "
                f"{_full_name(cls)}; a checkpoint cannot tell them apart. Rename one of them."
            )
        waiting += _field_hints(cls)
    return found


@lru_cache(maxsize=256)  # a checkpoint is written every round
def _field_hints(cls: type) -> tuple[Any, ...]:
    """The type hints of a dataclass's fields, resolved."""
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        raise TypeError(
            f"The type hints of {_full_name(cls)} cannot be resolved ({error}). Define what they "
            "mention at the top level of its module."
        ) from error
    return tuple(hints[field.name] for field in fields(cls))


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def encode(value: Any, classes: Mapping[str, type] | None = None) -> tuple[Any, Arrays]:
    """Split ``value`` into a JSON tree and the arrays it refers to.

    What could not be read back is refused with `TypeError`: also a dataclass that is not in
    ``classes``, when they are given.
    """
    arrays: Arrays = {}
    return _encode(value, arrays, classes), arrays


def _encode(value: Any, arrays: Arrays, classes: Mapping[str, type] | None) -> Any:
    if isinstance(value, np.ndarray):
        return _encode_array(value, arrays)
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        if classes is not None and classes.get(name) is not type(value):
            raise TypeError(
                f"Cannot write a {name}: its class is not among those that may be read back; "
                "in a checkpoint these are the ones that the state's type hints mention."
            )
        parts = {f.name: _encode(getattr(value, f.name), arrays, classes) for f in fields(value)}
        return {"type": name, "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, arrays, classes) for item in value]}
    if isinstance(value, Mapping):
        return {"map": [[_key(key), _encode(item, arrays, classes)] for key, item in value.items()]}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"Cannot write a {type(value).__name__} into a checkpoint.")


def _encode_array(array: np.ndarray[Any, Any], arrays: Arrays) -> Any:
    if array.dtype.hasobject:
        raise TypeError("Cannot write an array of objects into a checkpoint.")
    key = f"a{len(arrays)}"
    arrays[key] = array
    return {"array": key}


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"Cannot write a map with the key {key!r} into a checkpoint; use text.")
    return key


def decode(
    tree: Any,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    classes: Mapping[str, type],
    *,
    strict: bool = False,
) -> Any:
    """Build the value again; a class that is not in ``classes`` is refused with `KeyError`.

    `ValueError` refuses what `encode` never makes: maps with keys that are no text or come twice,
    an array that stands at two places, more than `DEEPEST` values inside each other. With
    ``strict`` every field must also hold what its type hint says.
    """
    return _Decoder(arrays, classes, strict).value(tree, 0)


class _Decoder:
    """One value being built; each array may be used once, or a short text could ask for much."""

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        classes: Mapping[str, type],
        strict: bool,
    ) -> None:
        self._arrays, self._classes, self._strict = dict(arrays), classes, strict

    def value(self, tree: Any, depth: int) -> Any:
        if not isinstance(tree, dict):
            if isinstance(tree, list):
                raise ValueError("a list where a value must be")
            return tree
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} values inside each other")
        if "array" in tree:
            return self._arrays.pop(tree["array"])
        if "tuple" in tree:
            return tuple([self.value(item, depth + 1) for item in tree["tuple"]])
        if "map" in tree:
            return self._map(tree["map"], depth)
        cls = self._classes[tree["type"]]
        parts = {name: self.value(part, depth + 1) for name, part in tree["fields"].items()}
        if self._strict:
            _check_fields(cls, parts)
        return cls(**parts)

    def _map(self, pairs: Any, depth: int) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key, item in pairs:
            if not isinstance(key, str) or key in built:
                raise ValueError("a map whose keys are no different texts")
            built[key] = self.value(item, depth + 1)
        return built


def _check_fields(cls: type, parts: Mapping[str, object]) -> None:
    """Refuse a field that does not hold what its type hint says."""
    hints = _hints_of(cls)
    for name, part in parts.items():
        if name in hints and not fits(part, hints[name]):
            raise ValueError(f"`{name}` of a {cls.__name__} is {reprlib.repr(part)}")


@cache
def _hints_of(cls: type) -> dict[str, object]:
    return dict(zip([field.name for field in fields(cls)], _field_hints(cls), strict=True))


def fits(value: Any, hint: Any) -> bool:
    """Whether ``value`` is what the type ``hint`` says; a protocol or `Any` may be anything."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[1:] == (Ellipsis,):
            return all(fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(fits, value, args))
    if origin in (Mapping, dict):
        return isinstance(value, dict) and all(fits(item, args[1]) for item in value.values())
    if origin is np.ndarray:
        (dtype,) = get_args(args[1])
        return isinstance(value, np.ndarray) and value.dtype == np.dtype(dtype)
    if hint in (int, float):
        kinds = (int, float) if hint is float else int
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and (isinstance(value, float) or abs(value) < LARGEST_INTEGER)
    if hint is None or hint is NoneType:
        return value is None
    if hint is Any or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return True
    return isinstance(value, hint)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal to the last bit, arrays included."""
    (tree_a, arrays_a), (tree_b, arrays_b) = encode(left), encode(right)
    return json.dumps(tree_a) == json.dumps(tree_b) and all(  # the text tells -0.0, 1 and 1.0 apart
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in zip(arrays_a.values(), arrays_b.values(), strict=True)
    )
