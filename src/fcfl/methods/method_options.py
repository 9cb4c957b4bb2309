"""A method's options as plain text, so that a checkpoint can tell with which ones it was made."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

_WHOLE = 2.0**53  # below it a float without a fraction is that whole number


def options_of(method: Any) -> dict[str, str]:
    """The name of a method and its options, each as text: equal texts, equal results.

    The options are the fields of its dataclass, but for those with ``compare=False``: that is how
    one says that nothing depends on them. Of another class they are its public attributes.
    """
    options = {"name": str(method.name)}
    if is_dataclass(method):
        names = [field.name for field in fields(method) if field.compare]
    else:
        names = [name for name in getattr(method, "__dict__", {}) if not name.startswith("_")]
    return options | {name: _text(getattr(method, name)) for name in names}


def _text(value: Any) -> str:
    """The value as text: short, the same in every process, and exact."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        whole = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array{value.shape} of {value.dtype}, sha256 {whole[:16]}"
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        value = int(value)  # 1 and 1.0 are one option
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        parts = [f"{_text(key)}: {_text(item)}" for key, item in value.items()]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if is_dataclass(value) and not isinstance(value, type):
        inner = [f"{f.name}={_text(getattr(value, f.name))}" for f in fields(value) if f.compare]
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, partial):
        given = [_text(value.func), *map(_text, value.args), _text(value.keywords)]
        return f"partial({', '.join(given)})"
    if hasattr(value, "__qualname__"):  # a function or class, whose repr has an address
        return f"{value.__module__}.{value.__qualname__}"
    if "__repr__" in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}:
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}({_text(vars(value))})"
