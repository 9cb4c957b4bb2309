"""Whether the compiled kernels are there, and may be used.

They are built with the package where there is a C compiler (``hatch_build.py``); where there is
none, NumPy and scipy give the same numbers, more slowly (docs/scale.md).
"""

import os
from typing import Any

try:
    from fcfl.models import _kernels as _found
except ImportError:
    _found = None  # type: ignore[assignment]

_VARIABLE = "FCFL_COMPILED"


def kernels() -> Any:
    """The compiled module; None where there is none, or ``FCFL_COMPILED`` is 0."""
    return None if os.environ.get(_VARIABLE) == "0" else _found
