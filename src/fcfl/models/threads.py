"""Work on all cores, with results that do not depend on how many there are.

What is done in parallel is cut into tasks by the data alone, and each task writes to a place of its
own: whoever sums over the tasks in their order gets the same bits for any number of threads.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TypeVar

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
