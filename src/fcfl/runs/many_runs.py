"""Many runs in one folder: a sweep over budgets, a comparison of methods.

Each run has a folder of its own. A session that resumes reads the finished runs back, continues
the unfinished one and trains the others; rows other than theirs are an error.
"""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fcfl._files import write_json
from fcfl._types import Vector
from fcfl.errors import AbsentClientError, CheckpointError, FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.federation.exchange_count import read_exchanges
from fcfl.methods.registry import METHODS, check_method
from fcfl.methods.sqp.subproblem import Target
from fcfl.results import Comparison, Exchanges, Result, Sweep
from fcfl.results.files import COMPARISON, PLAIN, RESULT, SWEEP
from fcfl.results.findings import exceeded_budgets, has_collapsed
from fcfl.results.many_runs import MethodRun, SweepPoint, judge
from fcfl.results.result import PartName, objective_setting
from fcfl.runs.compared_runs import compare_runs, majority_run, summarise
from fcfl.runs.folder import SETTINGS, check_folder, prepare_folder, writing
from fcfl.runs.opening import Opener, open_run
from fcfl.runs.run import Finished, check_groups, run_or_read
from fcfl.runs.settings import Experiment
from fcfl.runs.text_values import words
from fcfl.training.session import Session

TIE = 1e-6  # objectives nearer than this count as equal
FROM_BEFORE, AFRESH = "from-before", "afresh"  # folders of a point's two runs until one is kept
COMPARED = tuple(name for name, one in METHODS.items() if not one.traits.is_private)
"""Methods that are compared, by default all of them."""


# --- a sweep: the same run under one budget after another -----------------------------------------


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
    Other methods only start afresh: outside a tighter budget they might not return. What is left
    open is chosen at the first budget and kept.

    Raise `FCFLError` for points with other settings, or with ``overwrite`` replace them.
    """
    values = sorted(budgets, reverse=True)
    points = check_sweep(experiment, values, relative=relative)
    folder = session.required_folder
    _make_way(points, folder, resume=session.resume, overwrite=overwrite)
    rows = opener(next(iter(points.values()))).checksum
    found: tuple[SweepPoint, ...] = ()
    chosen: dict[str, object] = {}
    exchanges = Exchanges()
    for position, (name, one) in enumerate(points.items()):
        one = replace(one, **chosen)  # type: ignore[arg-type]
        session.on_message(f"{name}, point {position + 1} of {len(points)}")
        own = replace(session, folder=folder / name)
        own = own.part(position / len(points), (position + 1) / len(points))
        if position == 0:
            finished = run_or_read(one, own, rows, opener=opener)
        elif METHODS[one.method].traits.is_cross_validated:  # fast, and starts anywhere
            finished = _run_twice(one, own, rows, opener, finished.params)
        else:
            finished = run_or_read(one, own.quiet(), rows, opener=opener)
        if one.open_settings.is_open:
            result = finished.result
            assert result.l2 is not None and result.objective is not None  # chosen, so known
            chosen = {"l2": result.l2, "objective": objective_setting(result.objective)}
        exchanges = exchanges.plus(finished.result.exchanges)
        found = (*found, _point(values[position], finished, relative=relative))
        write_json(folder / SWEEP, Sweep(found))
    write_json(folder / RESULT, finished.result.replace(exchanges=exchanges, sweep=found))
    return Sweep(found)


def check_sweep(
    experiment: Experiment, budgets: Sequence[float], *, relative: bool
) -> dict[str, Experiment]:
    """Return every point's experiment by the name of its folder.

    Raise `ValueError` if one cannot be trained, before any row is read.
    """
    if not budgets:
        raise ValueError("`budgets` must hold at least one number.")
    experiment.check_not_private("sweep")
    if experiment.is_constrained:
        raise ValueError("A sweep sets the budgets itself; leave budget and ratio out.")
    setting = "relative_budget" if relative else "budget"
    points: dict[str, Experiment] = {}
    for value in budgets:
        name = f"{setting.replace('_', '-')}-{value:g}"
        if name in points:
            raise ValueError(f"Two budgets are {value:g}; give each once, with at most six digits.")
        points[name] = replace(experiment, **{setting: value})  # type: ignore[arg-type]
    return points


def _make_way(
    points: dict[str, Experiment], folder: Path, *, resume: bool, overwrite: bool
) -> None:
    """Raise if a point has other settings, before the first is trained, or delete all of them.

    Settings left open are not yet known: those of a stored run are taken.
    """
    for name, one in points.items():
        place = folder / name
        settings = place / SETTINGS
        if overwrite:
            for path in (settings, place / RESULT, checkpoint_path(place)):
                path.unlink(missing_ok=True)
            continue
        if settings.exists() and one.open_settings.is_open:
            stored = Experiment.from_toml(settings)
            one = replace(one, l2=stored.l2, objective=stored.objective)
        check_folder(one, place, resume=resume and settings.exists(), overwrite=False)


def _run_twice(
    experiment: Experiment, session: Session, rows: str, opener: Opener, before: Vector
) -> Finished:
    """Return the better of two runs, one from ``before`` and one from the usual start."""
    folder, quiet = session.required_folder, session.quiet()
    resume = session.resume and (folder / SETTINGS).exists()
    if resume and (folder / RESULT).exists():
        return run_or_read(experiment, quiet, rows, opener=opener)
    check_folder(experiment, folder, resume=resume, overwrite=False)
    tries = {name: folder / name for name in (FROM_BEFORE, AFRESH)}
    with writing(folder):
        prepare_folder(experiment, rows, replace(session, resume=resume))
        if not resume:
            for place in tries.values():
                shutil.rmtree(place, ignore_errors=True)
    first = replace(quiet.part(0.0, 0.5), folder=tries[FROM_BEFORE])
    warm = run_or_read(experiment, first, rows, opener=opener, first_params=before)
    second = replace(quiet.part(0.5, 1.0), folder=tries[AFRESH])
    cold = run_or_read(experiment, second, rows, opener=opener)
    kept, why = better_of(warm, cold)
    session.on_message(f"{folder.name}: {why}")
    both = warm.result.exchanges.plus(cold.result.exchanges)
    result = kept.result.replace(exchanges=both, notes=(*kept.result.notes, why))
    with writing(folder):
        unfinished = shutil.ignore_patterns(RESULT)
        shutil.copytree(kept.folder, folder, ignore=unfinished, dirs_exist_ok=True)
        write_json(folder / RESULT, result)  # last: its presence marks the point as finished
        for place in tries.values():
            shutil.rmtree(place)
    return replace(kept, folder=folder, result=result)


def better_of(warm: Finished, cold: Finished) -> tuple[Finished, str]:
    """Return the run to keep, and a sentence on why.

    Of two that exceed a budget, the one that exceeds it less is kept.
    """
    starts = {"from the point before": warm, "afresh": cold}
    both = "Trained from the point before and afresh"
    if warm.budgets_met != cold.budgets_met:
        start = next(name for name, run in starts.items() if run.budgets_met)
        return starts[start], f"{both}; only the run {start} meets its budgets and is kept."
    if warm.budgets_met:
        what, values = "objective", [objective(run) for run in (warm, cold)]
    else:
        what, values = "largest excess", [_excess(run.result) for run in (warm, cold)]
    start = "afresh" if values[1] < values[0] - TIE else "from the point before"
    found = f"{what} {min(values):.4f}, the other {max(values):.4f}"
    return starts[start], f"{both}; the run {start} is kept: {found}."


def objective(finished: Finished) -> float:
    """Return what sqp minimises within the budgets, at the end of a run.

    The largest of the clients' training losses for objective "max", else their smooth maximum.
    As in training each loss has its L2 term.
    """
    clients = finished.result.clients
    losses = np.array([client.train.loss for client in clients.values()], dtype=np.float64)
    losses += 0.5 * (finished.result.l2 or 0.0) * (finished.params @ finished.params)
    name = finished.result.objective
    temperature = None if name in (None, "max") else math.inf if name == "mean" else float(name)
    return float(Target(temperature, np.zeros(0)).objectives(losses).max())


def _excess(result: Result) -> float:
    """Return the largest excess over a training budget, or 0."""
    return max((one.excess for one in exceeded_budgets(result)), default=0.0)


def _point(value: float, finished: Finished, *, relative: bool) -> SweepPoint:
    """Return what the curve shows of one run."""
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
    """Return the largest difference of hard rates of any client."""
    values = [
        entry.trained
        for client in result.clients.values()
        for entry in client.part(part).disparities
        if entry.rule == "difference"
    ]
    return max((value for value in values if value is not None), default=None)


# --- a comparison: several methods, each with every seed ------------------------------------------


def run_comparison(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int],
    session: Session,
    opener: Opener = open_run,
) -> Comparison:
    """Run every method with every seed and write ``comparison.json`` after each.

    A method that fails is listed with its message; the others still run. A table that cannot be
    read, or has no two groups to compare, is an error before the first. A client elsewhere that
    does not respond ends the comparison.
    """
    experiment.check_not_private("comparison")
    if PLAIN not in methods:  # the reference without budgets
        methods = (*methods, PLAIN)
    each = {(name, seed): for_method(experiment, name, seed) for name in methods for seed in seeds}
    opened = {seed: opener(each[methods[0], seed]) for seed in seeds}
    check_groups(each[methods[0], seeds[0]], opened[seeds[0]])
    rows = {seed: found.checksum for seed, found in opened.items()}
    majority = [majority_run(found, seed) for seed, found in opened.items()]
    del opened  # with its rows
    runs: list[MethodRun] = []
    place = session.required_folder
    place.mkdir(parents=True, exist_ok=True)
    for (method, seed), one in each.items():
        folder = place / (method if len(seeds) == 1 else f"{method}-seed-{seed}")
        done, total = len(runs) + 1, len(each)
        session.on_message(f"{folder.name}, run {done} of {total}")
        own = replace(session.part((done - 1) / total, done / total).quiet(), folder=folder)
        runs.append(_run_method(one, own, rows[seed], opener))
        if runs[-1].status == "failed":
            session.on_message(f"{folder.name} failed: {runs[-1].message}")
        comparison = compare_runs(experiment.table, runs, majority)
        write_json(place / COMPARISON, comparison)
    return comparison


def _run_method(experiment: Experiment, session: Session, rows: str, opener: Opener) -> MethodRun:
    """Return the summary of one run, or of its failure."""
    folder = session.required_folder
    try:
        finished = run_or_read(experiment, session, rows, opener=opener, overwrite=True)
    except (Interrupted, AbsentClientError, CheckpointError):  # the other methods would fail, too
        raise
    except FCFLError as error:
        return MethodRun(
            folder=folder.name,
            method=experiment.method,
            seed=experiment.seed,
            status="failed",
            message=str(error),
            exchanges=sum(read_exchanges(folder).values()),
        )
    return summarise(folder, finished.result)


def for_method(experiment: Experiment, method: str, seed: int) -> Experiment:
    """Return the experiment by another method, without the settings that it does not have."""
    own, known = method == experiment.method, METHODS[method]
    rounds = experiment.rounds
    if rounds is not None and known.traits.n_stages == 1:
        rounds = (sum(rounds),)
    return replace(
        experiment,
        method=method,
        seed=seed,
        objective=experiment.objective if own else None,
        curvature=experiment.curvature if own else "auto",
        masked=experiment.masked and "curvature" in known.options,
        protects=experiment.protects if "protects" in known.options else "all",
        rounds=rounds,
        l2=None if experiment.l2 == "auto" and method != "sqp" else experiment.l2,
    )


def read_methods(text: str | None) -> tuple[str, ...]:
    """Read names separated by commas; by default all of `COMPARED`."""
    names = COMPARED if text is None else tuple(dict.fromkeys(words(text)))
    if not names:
        raise ValueError("`methods` is empty. Example: --methods sqp,two-stage,fedavg")
    for name in names:
        check_compared(name)
    return names


def check_compared(name: str) -> None:
    """Raise `ValueError` if a method is unknown, or cannot be compared with the others."""
    if name in METHODS and METHODS[name].traits.is_private:
        raise ValueError(
            f"Method {name!r} is not compared: its clients add noise, those of the others do not. "
            "Train it by itself: fcfl train --privacy epsilon=E,delta=D"
        )
    check_method("methods", name)
