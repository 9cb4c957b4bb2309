"""The trade-off curve: the same run under one budget after another, the loosest first."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fcfl._files import write_json
from fcfl._types import Vector
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.methods.registry import METHODS
from fcfl.methods.sqp.subproblem import Target
from fcfl.models.model import PARAMS
from fcfl.models.saved_model import load_model
from fcfl.results import Exchanges, Result, Sweep, read_result
from fcfl.results.files import RESULT, SWEEP
from fcfl.results.findings import exceeded_budgets, has_collapsed
from fcfl.results.many_runs import SweepPoint, judge
from fcfl.results.result import PartName, objective_setting
from fcfl.runs.budgets import read_share
from fcfl.runs.folder import SETTINGS, check_folder, prepare_folder, writing
from fcfl.runs.opening import Opener, open_run
from fcfl.runs.run import Finished, run_session
from fcfl.runs.settings import Experiment
from fcfl.training.rounds import Session

TIE = 1e-6  # objectives nearer than this count as equal
FROM_BEFORE, AFRESH = "from-before", "afresh"  # folders of a point's two runs until one is kept
_BOTH = "Trained from the point before and afresh"


def run_sweep(
    experiment: Experiment,
    budgets: Sequence[float],
    session: Session,
    *,
    relative: bool,
    overwrite: bool = False,
    opener: Opener = open_run,
) -> Sweep:
    """Train under each budget, the loosest first, and write ``sweep.json`` with one point each.

    With budgets the problem is not convex, and the point before can lead to a poor model. Method
    sqp therefore trains every point after the first twice, from the point before and afresh, and
    keeps the run with the lower `objective` of those that meet their budgets on training rows.
    Other methods only start afresh: outside a tighter budget they might not find back. What is
    left open is chosen at the first budget and kept.

    With ``session.resume`` a finished point is read back and an unfinished one goes on. Points
    with other settings are refused, or with ``overwrite`` replaced. ``opener`` finds the rows.
    """
    check_sweep(experiment, budgets, relative=relative)
    name = _setting(relative)
    values = sorted(budgets, reverse=True)
    folder = session.required_folder
    places = [folder / _folder_name(name, value) for value in values]
    runs = [_with_budget(experiment, name, value) for value in values]
    _make_way(runs, places, resume=session.resume, overwrite=overwrite)
    rows = _Rows(opener, opener(runs[0]).checksum)
    points: tuple[SweepPoint, ...] = ()
    asked = Exchanges()
    for position, (value, place) in enumerate(zip(values, places, strict=True)):
        session.on_message(f"{place.name}, point {position + 1} of {len(values)}")
        one = _with_budget(experiment, name, value)
        share = session.part(position / len(values), (position + 1) / len(values))
        if position == 0:
            finished = _run_or_read(one, place, share, rows)
        elif METHODS[experiment.method].traits.is_cross_validated:  # fast, and starts anywhere
            finished = _run_twice(one, place, share, rows, finished.params)
        else:
            finished = _run_or_read(one, place, share.quiet(), rows)
        if experiment.wants_selection:
            experiment = _settled(experiment, finished.result)
        asked = asked.plus(finished.result.exchanges)
        points = (*points, _point(value, finished, relative=relative))
        write_json(folder / SWEEP, Sweep(points))
    write_json(folder / RESULT, finished.result.replace(exchanges=asked, sweep=points))
    return Sweep(points)


def check_sweep(experiment: Experiment, budgets: Sequence[float], *, relative: bool) -> None:
    """Refuse budgets that cannot be trained under, before any row is read."""
    if not budgets:
        raise ValueError("`budgets` must hold at least one number.")
    experiment.check_not_private("sweep")
    if experiment.is_constrained:
        raise ValueError("A sweep sets the budgets itself; leave budget and ratio out.")
    name = _setting(relative)
    seen: set[str] = set()
    for value in budgets:
        _with_budget(experiment, name, value)
        folder = _folder_name(name, value)
        if folder in seen:
            raise ValueError(f"Two budgets are {value:g}; give each once, with at most six digits.")
        seen.add(folder)


def _setting(relative: bool) -> str:
    return "relative_budget" if relative else "budget"


def _with_budget(experiment: Experiment, name: str, value: float) -> Experiment:
    return replace(experiment, **{name: value})  # type: ignore[arg-type]


def _folder_name(name: str, value: float) -> str:
    return f"{name.replace('_', '-')}-{value:g}"


def _make_way(
    runs: Sequence[Experiment], places: Sequence[Path], *, resume: bool, overwrite: bool
) -> None:
    """Refuse points with other settings before the first is trained, or clear all of them away.

    What is left open is not known yet: of a stored run it may be anything.
    """
    for one, place in zip(runs, places, strict=True):
        settings = place / SETTINGS
        if overwrite:
            for path in (settings, place / RESULT, checkpoint_path(place)):
                path.unlink(missing_ok=True)
        elif settings.exists() and one.wants_selection:
            stored = Experiment.from_toml(settings)
            expected = replace(one, l2=stored.l2, objective=stored.objective)
            check_folder(expected, place, resume=resume, overwrite=False)
        else:
            check_folder(one, place, resume=resume and settings.exists(), overwrite=False)


@dataclass(frozen=True)
class _Rows:
    """Where the rows of all points are, and what identifies them."""

    opener: Opener
    checksum: str


def _run_or_read(
    experiment: Experiment, folder: Path, session: Session, rows: _Rows, first: Vector | None = None
) -> Finished:
    """A finished run of these settings and rows as it is, else one that goes on or starts."""
    resume = session.resume and (folder / SETTINGS).exists()
    if resume and (folder / RESULT).exists():
        check_folder(experiment, folder, resume=True, overwrite=False)
        prepare_folder(
            experiment, rows.checksum, folder, resume=True, on_message=session.on_message
        )
        return _read(folder)
    own = replace(session, folder=folder, resume=resume)
    return run_session(experiment, own, opener=rows.opener, first_params=first)


def _run_twice(
    experiment: Experiment, folder: Path, session: Session, rows: _Rows, before: Vector
) -> Finished:
    """The better of two runs, one from ``before`` and one from the usual start."""
    quiet = session.quiet()
    resume = session.resume and (folder / SETTINGS).exists()
    if resume and (folder / RESULT).exists():
        return _run_or_read(experiment, folder, quiet, rows)
    check_folder(experiment, folder, resume=resume, overwrite=False)
    with writing(folder):
        prepare_folder(
            experiment, rows.checksum, folder, resume=resume, on_message=session.on_message
        )
        if not resume:
            _remove_tries(folder)
    warm = _run_or_read(experiment, folder / FROM_BEFORE, quiet.part(0.0, 0.5), rows, before)
    cold = _run_or_read(experiment, folder / AFRESH, quiet.part(0.5, 1.0), rows)
    kept, why = _better(experiment, warm, cold)
    session.on_message(f"{folder.name}: {why}")
    both = warm.result.exchanges.plus(cold.result.exchanges)
    result = kept.result.replace(exchanges=both, notes=(*kept.result.notes, why))
    with writing(folder):
        unfinished = shutil.ignore_patterns(RESULT)
        shutil.copytree(kept.folder, folder, ignore=unfinished, dirs_exist_ok=True)
        write_json(folder / RESULT, result)  # last: it says that the point is finished
        _remove_tries(folder)
    return replace(kept, folder=folder, result=result)


def _remove_tries(folder: Path) -> None:
    for name in (FROM_BEFORE, AFRESH):
        if (folder / name).exists():
            shutil.rmtree(folder / name)


def _better(experiment: Experiment, warm: Finished, cold: Finished) -> tuple[Finished, str]:
    """The run to keep, and a sentence on why.

    Of two that exceed a budget, the one that exceeds it less.
    """
    starts = {"from the point before": warm, "afresh": cold}
    if warm.budgets_met != cold.budgets_met:
        start = next(name for name, run in starts.items() if run.budgets_met)
        return starts[start], f"{_BOTH}; only the run {start} meets its budgets and is kept."
    if warm.budgets_met:
        what, values = "objective", [objective(run) for run in (warm, cold)]
    else:
        what, values = "largest excess", [_excess(run.result) for run in (warm, cold)]
    start = "afresh" if values[1] < values[0] - TIE else "from the point before"
    found = f"{what} {min(values):.4f}, the other {max(values):.4f}"
    return starts[start], f"{_BOTH}; the run {start} is kept: {found}."


def objective(finished: Finished) -> float:
    """What sqp minimises within the budgets, at the end of a run.

    The largest of the clients' training losses for objective "max", else their smooth maximum.
    As in training each loss has its L2 term, and counts from the client's own best if that is
    known.
    """
    clients, own_best = finished.result.clients, finished.result.own_best_losses
    losses = np.array([client.train.loss for client in clients.values()], dtype=np.float64)
    losses += 0.5 * (finished.result.l2 or 0.0) * (finished.params @ finished.params)
    if own_best is not None:
        losses -= np.array([own_best[client] for client in clients])
    name = finished.result.objective
    temperature = None if name in (None, "max") else math.inf if name == "mean" else float(name)
    return float(Target(temperature, np.zeros(0)).objectives(losses).max())


def _settled(experiment: Experiment, result: Result) -> Experiment:
    """The same with the first point's choice."""
    assert result.l2 is not None and result.objective is not None  # chosen, so known
    return experiment.settled(result.l2, objective_setting(result.objective))


def _read(folder: Path) -> Finished:
    result = read_result(folder / RESULT)
    plain = folder / PARAMS  # of the synthetic problem, which has no model
    params = np.loadtxt(plain, ndmin=1) if plain.exists() else load_model(folder).params
    return Finished(folder, result, params)


def _excess(result: Result) -> float:
    """Return the largest excess over a training budget, or 0."""
    return max((one.excess for one in exceeded_budgets(result)), default=0.0)


def _point(value: float, finished: Finished, *, relative: bool) -> SweepPoint:
    """What the curve shows of one run."""
    result, worst = finished.result, finished.result.worst_client
    return SweepPoint(
        budget=None if relative else value,
        relative=value if relative else None,
        status=result.status,
        budgets_met=finished.budgets_met,
        degenerate=result.degenerate is not None or has_collapsed(result),
        exchanges=result.exchanges.total,
        worst_client=worst.name,
        worst_client_train_loss=worst.train_loss,
        worst_client_test_accuracy=worst.test_accuracy,
        test_accuracy=result.overall.test.accuracy,
        largest_train_disparity=_largest(result, "train"),
        largest_test_disparity=_largest(result, "test"),
        folder=finished.folder.name,
        judged=judge(result),
    )


def _largest(result: Result, part: PartName) -> float | None:
    """The largest difference of any client, of decisions."""
    values = [
        entry.trained
        for client in result.clients.values()
        for entry in client.part(part).disparities
        if entry.rule == "difference"
    ]
    return max((value for value in values if value is not None), default=None)


def parse_budgets(text: str) -> tuple[float, ...]:
    """``0.2,0.1,0.05`` as numbers."""
    try:
        return tuple(read_share(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(
            f"Budgets must be numbers with commas, such as 0.2,0.1,0.05, got {text!r}."
        ) from None
