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


def encode(value: Any) -> tuple[Any, Arrays]:
    """Split ``value`` into a JSON tree and the arrays it refers to."""
    arrays: Arrays = {}
    return _encode(value, arrays), arrays


def _encode(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        key = f"a{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _encode(getattr(value, f.name), arrays) for f in fields(value)}
        return {"type": type(value).__name__, "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"map": [[key, _encode(item, arrays)] for key, item in value.items()]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"Cannot write a {type(value).__name__} into a checkpoint.")


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
