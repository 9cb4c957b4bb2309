"""Whether the compiled kernels are there, and may be used.

They are built with the package where there is a C compiler (``hatch_build.py``); where there is
none, NumPy and scipy give the same numbers, more slowly (docs/scale.md).
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

_VARIABLES = ("FCFL_NUM_THREADS", "OMP_NUM_THREADS")


def n_threads() -> int:
    """As many as ``FCFL_NUM_THREADS`` or ``OMP_NUM_THREADS`` say, else the cores one may use."""
    for name in _VARIABLES:
        given = os.environ.get(name, "")
        if given.isdecimal() and int(given) > 0:
            return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(task: Callable[[T], object], over: Sequence[T]) -> None:
    """Call ``task`` for each of ``over``; which thread does which is left open."""
    helpers = min(n_threads(), len(over)) - 1 if len(over) > 1 else 0
    if helpers < 1:
        for one in over:
            task(one)
        return
    shared = iter(over)  # whoever is free takes the next one
    pool = _pool(helpers)
    others = [pool.submit(_work, task, shared) for _ in range(helpers)]
    try:
        _work(task, shared)
    finally:
        begun = [other for other in others if not other.cancel()]  # the rest have nothing to do
        wait(begun)  # all of them, before any error is told: they write to what the caller has
        for other in begun:
            other.result()


def _work(task: Callable[[T], object], shared: Iterator[T]) -> None:
    for one in shared:
        task(one)


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="fcfl")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


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
