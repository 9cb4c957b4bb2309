"""Run a plan in several processes; what is finished is on disk and not run again."""

import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcfl._files import write_json
from fcfl.errors import FCFLError, Interrupted
from fcfl.runs.run import run_experiment

from .plan import Run, settled
from .record import failed_record, path_of, record_of

Record = dict[str, Any]
Watch = Callable[[Run, Record, int, int], None]
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Finished:
    """The record of every run by its key, and how many were on disk already."""

    records: Mapping[str, Record]
    n_read: int


def run_plan(
    runs: Iterable[Run],
    tables: Mapping[str, str],
    folder: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    on_round: Watch | None = None,
) -> Finished:
    """Run what has no record in ``folder`` yet, parents before those that wait for them.

    ``on_round`` is told each run that ended, its record, and how many of how many are done. A run
    that fails has a record that says so; it is tried again next time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {run.key: run for run in with_parents(runs)}
    records = {} if fresh else _read(wanted, folder)
    n_read = len(records)
    todo = [run for key, run in wanted.items() if key not in records]
    for run, record in _run_all(todo, records, tables, jobs):
        records[run.key] = record
        if record["status"] != "failed":
            write_json(folder / f"{run.key}.json", record)
        if on_round is not None:
            on_round(run, record, len(records), len(wanted))
    return Finished(records, n_read)


def with_parents(runs: Iterable[Run]) -> Iterator[Run]:
    """Every run, after the one it waits for."""
    for run in runs:
        if run.settled_by is not None:
            yield from with_parents([run.settled_by])
        yield run


def _read(wanted: Mapping[str, Run], folder: Path) -> dict[str, Record]:
    found = {}
    for key in wanted:
        path = folder / f"{key}.json"
        if path.exists():
            found[key] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _run_all(
    todo: list[Run], records: Mapping[str, Record], tables: Mapping[str, str], jobs: int
) -> Iterator[tuple[Run, Record]]:
    """Each run with its record as it ends."""
    if jobs == 1 or len(todo) < 2:
        for run in todo:
            yield run, execute(_ready(run, records), tables)
        return
    with _pool(jobs) as pool:
        waiting = list(todo)
        running: dict[Future[Record], Run] = {}
        while waiting or running:
            ready = [run for run in waiting if _is_ready(run, records)][: 2 * jobs - len(running)]
            waiting = [run for run in waiting if run not in ready]
            running |= {pool.submit(execute, _ready(r, records), tables): r for r in ready}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), _result(future)


def _is_ready(run: Run, records: Mapping[str, Record]) -> bool:
    return run.settled_by is None or run.settled_by.key in records


def _ready(run: Run, records: Mapping[str, Record]) -> Run | str:
    """The run with what it waited for, or why it cannot be run."""
    if run.settled_by is None:
        return run
    parent = records[run.settled_by.key]
    if parent["status"] == "failed":
        return f"The run it takes its settings from failed: {parent['message']}"
    return settled(run, parent["l2"], parent["objective"])


def execute(run: Run | str, tables: Mapping[str, str]) -> Record:
    """Train, and keep the record; in a process of its own or in this one."""
    if isinstance(run, str):
        return failed_record(run)
    try:
        experiment = run.experiment(tables[run.settings["table"]])
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            finished = run_experiment(experiment, folder)
            record = record_of(finished.result, finished.budgets_met)
            if run.keeps_path:
                budget = float(run.settings["budget"])
                record["path"] = path_of(folder / "history.jsonl", budget)
        return record
    except Interrupted:
        raise KeyboardInterrupt from None
    except (FCFLError, ValueError) as error:
        return failed_record(str(error))


def _result(future: Future[Record]) -> Record:
    try:
        return future.result()
    except BrokenProcessPool:
        raise FCFLError(
            "A process was ended from outside, perhaps for want of memory. Finished runs are "
            "kept; go on with the same command and fewer --jobs."
        ) from None
    except Exception as error:  # of one run: the others go on, and this one's line says so
        return failed_record(f"{type(error).__name__}: {error}")


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with one thread each; stopped, they end at once."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_stopping_to_parent)
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


def _leave_stopping_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
