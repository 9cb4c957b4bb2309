"""Run a plan in several processes; finished runs are on disk and not run again."""

import math
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
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from fcfl._files import replace_file
from fcfl.data import BUILTIN, load_adult_frames
from fcfl.errors import DataError, FCFLError, Interrupted
from fcfl.federation.checkpoint import read_history
from fcfl.results import Part, Result
from fcfl.runs.run import run_experiment
from fcfl.runs.settings import Experiment
from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.simulate import simulate
from fcfl_paper.eicu.tables import Frame

from .items import Run
from .records import AllRowsRecord, ClientRecord, FailedRun, PartRecord, Path2D, Record, RunRecord

SIMULATED = (11, 400)  # hospitals, stays of each
MIN_STAYS = 300  # of a hospital of the simulated tables


def pooled_adult(sensitive: str) -> Frame:
    """Return all rows with the paper's eight columns, clients PhD and non-PhD."""
    frame = pd.concat(load_adult_frames(), ignore_index=True)
    text = frame.select_dtypes(exclude="number").columns
    table = frame[text].assign(client=np.where(frame["education"] == "Doctorate", "phd", "non-phd"))
    if sensitive != "race":
        return table
    return table.assign(race=np.where(frame["race"] == "White", "White", "Non-White"))


def eicu_source(folder: Path | None) -> str:
    """Return ``own`` (hospitals as clients), ``demo`` (regions) or ``simulated``."""
    if folder is None:
        return "simulated"
    if not folder.is_dir():
        raise DataError(f"There is no folder {str(folder)!r} with the eICU tables.")
    names = {path.name.split(".")[0].lower() for path in folder.iterdir()}
    return "own" if {"nursecharting", "lab"} <= names else "demo"


def substitutes(eicu: Path | None) -> dict[str, str]:
    """Return the set that is available, for each eICU set that items name."""
    source = eicu_source(eicu)
    return {f"eicu:{label}": f"eicu:{source}:{label}" for label in ("los7", "mortality")}


def make_tables(names: Iterable[str], folder: Path, eicu: Path | None) -> dict[str, str]:
    """Write the tables that do not exist yet; for each name what a run reads."""
    found = {}
    for name in dict.fromkeys(names):
        if name in BUILTIN or name == "synthetic":
            found[name] = name
            continue
        path = folder / f"{name.replace(':', '-')}.parquet"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            _make(name, folder, eicu).to_parquet(part)
            part.replace(path)
        found[name] = str(path)
    return found


def _make(name: str, folder: Path, eicu: Path | None) -> Frame:
    if name.startswith("adult-pooled-"):
        return pooled_adult(name.removeprefix("adult-pooled-"))
    _, source, label = name.split(":")
    if source == "simulated" or eicu is None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            simulate(Path(place) / "tables", *SIMULATED, 0)
            return prepare(Path(place) / "tables", Options(label=label, min_stays=MIN_STAYS)).frame
    if source == "demo":
        return prepare(eicu, Options("apache", label, "region")).frame
    return prepare(eicu, Options(label=label)).frame


VISIBLE = 0.01  # points of a path closer together than this are left out
_DIGITS = 5

# The paper's problem: the budgets as they are, by own rows, one start, every group however small.
AS_PUBLISHED = {"confidence": 0.0, "pooling": "none", "starts": 1, "min_group_rows": 1}


def execute(run: Run, tables: Mapping[str, str]) -> Record:
    """Train the run in a temporary folder; an error becomes a :class:`FailedRun`."""
    try:
        experiment = experiment_of(run, tables[run.table])
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            finished = run_experiment(experiment, folder)
            path = path_of(folder / "history.jsonl", run.budget) if run.keeps_path else None
        return record_of(finished.result, finished.budgets_met, path)
    except Interrupted:
        raise KeyboardInterrupt from None
    except (FCFLError, ValueError) as error:
        return FailedRun(str(error))


def experiment_of(run: Run, table: str) -> Experiment:
    """Return the settings of the run, on a table that exists."""
    settings: dict[str, Any] = {**AS_PUBLISHED, **run.settings, "table": table}
    return Experiment(**settings)


def record_of(result: Result, budgets_met: bool, path: Path2D | None) -> RunRecord:
    """Return the part of ``result.json`` that tables and figures need."""
    overall = result.overall
    return RunRecord(
        status=result.status,
        budgets_met=budgets_met,
        rounds=result.n_rounds,
        seconds=round(result.seconds or 0.0, 2),
        l2=result.l2 or 0.0,
        objective=result.objective,
        chosen=None if result.selection is None else result.selection.sentence,
        clients={
            name: ClientRecord(_part(who.train), _part(who.test), who.rows)
            for name, who in result.clients.items()
        },
        overall=AllRowsRecord(_part(overall.train), _part(overall.test)),
        path=path,
    )


def _part(part: Part) -> PartRecord:
    scores = _rounded(part.loss), _rounded(part.accuracy)
    if not part.disparities:
        return PartRecord(*scores, None, None, None, ())
    first = part.disparities[0]
    found = _rounded(first.value), _rounded(first.smooth), _rounded(first.budget)
    return PartRecord(*scores, *found, tuple((g.rows, g.selected) for g in first.groups))


def path_of(history: Path, budget: float) -> Path2D:
    """Return both objectives of the synthetic problem, round by round, where they moved visibly.

    The second is not known in the fit without budgets, where SQP starts.
    """
    kept: list[tuple[float, float]] = []
    rounds = [r for r in read_history(history) if math.isfinite(r.largest_violation)]
    points = [(r.worst_loss, r.largest_violation + budget) for r in rounds]
    for point in points:
        if not kept or math.dist(point, kept[-1]) >= VISIBLE or point is points[-1]:
            kept.append((round(point[0], 4), round(point[1], 4)))
    return tuple(kept)


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), _DIGITS)


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
            replace_file(folder / f"{run.key}.json", msgspec.json.encode(record))
        if on_run is not None:
            on_run(run, record, len(records), len(wanted))
    return FinishedPlan(records, n_read)


def with_parents(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield every run, after the one it waits for."""
    for run in runs:
        if run.tuned_by is not None:
            yield from with_parents([run.tuned_by])
        yield run


def _read(wanted: Mapping[str, Run], folder: Path) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for key in wanted:
        path = folder / f"{key}.json"
        if path.exists():
            found[key] = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    return found


def _run_all(
    missing: list[Run], records: Mapping[str, Record], tables: Mapping[str, str], jobs: int
) -> Iterator[tuple[Run, Record]]:
    """Yield each run with its record as it ends; ``records`` grows meanwhile."""
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
    """Return the run with the settings it waited for, or why it cannot be run."""
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
    """Open processes with one thread each, terminated at once when the command is stopped."""
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
