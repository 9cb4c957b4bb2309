"""Train one run of a plan and keep its record; the only module here that runs experiments."""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcfl.errors import FCFLError, Interrupted
from fcfl.federation.history import read_history
from fcfl.results import Part, Result
from fcfl.runs.run import run_experiment
from fcfl.runs.settings import Experiment

from .plan import Run
from .run_record import (
    AllRowsRecord,
    ClientRecord,
    FailedRun,
    PartRecord,
    Path2D,
    Record,
    RunRecord,
)

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
    """The settings of the run, on a table that exists."""
    settings: dict[str, Any] = {**AS_PUBLISHED, **run.settings, "table": table}
    return Experiment(**settings)


def record_of(result: Result, budgets_met: bool, path: Path2D | None) -> RunRecord:
    """The part of ``result.json`` that tables and figures need."""
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
    first = part.disparities[0] if part.disparities else None
    return PartRecord(
        loss=_rounded(part.loss),
        accuracy=_rounded(part.accuracy),
        disparity=None if first is None else _rounded(first.value),
        smooth=None if first is None else _rounded(first.smooth),
        budget=None if first is None else _rounded(first.budget),
        groups=() if first is None else tuple((g.rows, g.selected) for g in first.groups),
    )


def path_of(history: Path, budget: float) -> Path2D:
    """Both objectives of the synthetic problem, round by round, where they moved visibly.

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
    return None if value is None else round(float(value), _DIGITS)
