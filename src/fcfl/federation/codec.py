"""Frozen dataclasses <-> JSON and arrays, without pickle.

Only the classes in a registry given by the caller are ever built. Numbers survive exactly: arrays
as raw bytes, floats by Python's shortest representation that reads back the same.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]


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
                f"Cannot write a {name} into a checkpoint: its class is not registered."
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


def decode(tree: Any, arrays: Mapping[str, Any], classes: Mapping[str, type]) -> Any:
    """Build the value again; a class that is not in ``classes`` is refused with `KeyError`."""
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "tuple" in tree:
        return tuple(decode(item, arrays, classes) for item in tree["tuple"])
    if "map" in tree:
        return {key: decode(item, arrays, classes) for key, item in tree["map"]}
    parts = {name: decode(part, arrays, classes) for name, part in tree["fields"].items()}
    return classes[tree["type"]](**parts)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal to the last bit, arrays included."""
    (tree_a, arrays_a), (tree_b, arrays_b) = encode(left), encode(right)
    return json.dumps(tree_a) == json.dumps(tree_b) and all(  # the text tells -0.0, 1 and 1.0 apart
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in zip(arrays_a.values(), arrays_b.values(), strict=True)
    )
