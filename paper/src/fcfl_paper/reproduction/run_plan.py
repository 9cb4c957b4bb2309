"""Run a plan in several processes; finished runs are on disk and not run again."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fcfl._files import write_json
from fcfl.errors import FCFLError
from fcfl_paper.reproduction.json_fields import from_json, to_json

from .one_run import execute
from .plan import Run
from .run_record import FailedRun, Record, RunRecord

OnRun: TypeAlias = Callable[[Run, Record, int, int], None]  # the run, its record, done, of all
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class FinishedPlan:
    """The record of every run by its key, and how many were on disk already."""

    records: Mapping[str, Record]
    n_read: int

    @property
    def n_failed(self) -> int:
        """How many runs failed."""
        return sum(isinstance(record, FailedRun) for record in self.records.values())


def run_plan(
    runs: Iterable[Run],
    tables: Mapping[str, str],
    folder: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    on_run: OnRun | None = None,
) -> FinishedPlan:
    """Run what has no record in ``folder`` yet, parents before the runs that wait for them.

    ``on_run`` is called with each run that ended, its record, and how many of how many are done. A
    run that fails has a record with its message; it is tried again next time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {run.key: run for run in with_parents(runs)}
    records = {} if fresh else _read(wanted, folder)
    n_read = len(records)
    missing = [run for key, run in wanted.items() if key not in records]
    for run, record in _run_all(missing, records, tables, jobs):
        records[run.key] = record
        if isinstance(record, RunRecord):
            write_json(folder / f"{run.key}.json", to_json(record))
        if on_run is not None:
            on_run(run, record, len(records), len(wanted))
    return FinishedPlan(records, n_read)


def with_parents(runs: Iterable[Run]) -> Iterator[Run]:
    """Every run, after the one it waits for."""
    for run in runs:
        if run.tuned_by is not None:
            yield from with_parents([run.tuned_by])
        yield run


def _read(wanted: Mapping[str, Run], folder: Path) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for key in wanted:
        path = folder / f"{key}.json"
        if path.exists():
            found[key] = from_json(RunRecord, json.loads(path.read_text(encoding="utf-8")))
    return found


def _run_all(
    missing: list[Run], records: Mapping[str, Record], tables: Mapping[str, str], jobs: int
) -> Iterator[tuple[Run, Record]]:
    """Each run with its record as it ends; ``records`` grows meanwhile."""
    if jobs == 1 or len(missing) < 2:
        for run in missing:
            ready = _tuned(run, records)
            yield run, ready if isinstance(ready, FailedRun) else execute(ready, tables)
        return
    with _pool(jobs) as pool:
        waiting = list(missing)
        running: dict[Future[Record], Run] = {}
        while waiting or running:
            ready_runs = [run for run in waiting if _is_ready(run, records)]
            for run in ready_runs[: 2 * jobs - len(running)]:
                waiting.remove(run)
                ready = _tuned(run, records)
                if isinstance(ready, FailedRun):
                    yield run, ready
                else:
                    running[pool.submit(execute, ready, tables)] = run
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), _result(future)


def _is_ready(run: Run, records: Mapping[str, Record]) -> bool:
    return run.tuned_by is None or run.tuned_by.key in records


def _tuned(run: Run, records: Mapping[str, Record]) -> Run | FailedRun:
    """The run with the settings it waited for, or why it cannot be run."""
    if run.tuned_by is None:
        return run
    parent = records[run.tuned_by.key]
    if isinstance(parent, FailedRun):
        return FailedRun(f"The run it takes its settings from failed: {parent.message}")
    return run.with_tuning(parent.l2, parent.objective)


def _result(future: Future[Record]) -> Record:
    try:
        return future.result()
    except BrokenProcessPool:
        raise FCFLError(
            "A process was killed from outside, perhaps for lack of memory. Finished runs are "
            "kept; continue with the same command and fewer --jobs."
        ) from None
    except Exception as error:  # one run's error must not stop the others; its record names it
        return FailedRun(f"{type(error).__name__}: {error}")


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with one thread each, terminated at once when the command is stopped."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_ignore_interrupts)
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ignore_interrupts() -> None:
    # Ctrl-C reaches the whole process group; the parent terminates its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
