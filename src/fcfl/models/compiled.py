"""Whether the compiled kernels are there, and may be used.

They are built with the package where there is a C compiler (``hatch_build.py``); where there is
none, NumPy and scipy give the same numbers, more slowly (docs/scale.md).
"""

import os
import warnings
from typing import Any

_INTERFACE = 2  # as in _kernels.c
_VARIABLE = "FCFL_COMPILED"


def _load() -> Any:
    try:
        from fcfl.models import _kernels
    except ImportError:
        return None
    if _kernels.INTERFACE != _INTERFACE:  # a checkout that was updated and not installed again
        warnings.warn(
            "The compiled kernels are of another version; install fcfl again.", stacklevel=2
        )
        return None
    return _kernels


_FOUND = _load()


def kernels() -> Any:
    """The compiled module; None where there is none, or ``FCFL_COMPILED`` is 0."""
    return None if os.environ.get(_VARIABLE) == "0" else _FOUND
