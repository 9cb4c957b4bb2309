"""Short reprs of dataclasses that hold arrays."""

from collections.abc import Mapping, Sized
from dataclasses import fields
from typing import Any

MOST = 100  # characters of a field's value; longer ones are named by their type and size


def brief_repr(self: Any) -> str:
    """Return a dataclass repr in which arrays, sparse matrices and long values are named only."""
    told = [f"{f.name}={_brief(getattr(self, f.name))}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(told)})"


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"<{type(value).__name__} {'×'.join(map(str, shape))}>"
    if isinstance(value, Mapping) and len(value) > 12:
        return f"<{type(value).__name__} of {len(value)}>"
    text = repr(value)
    if len(text) <= MOST:
        return text
    size = f" of {len(value)}" if isinstance(value, Sized) else ""
    return f"<{type(value).__name__}{size}>"
