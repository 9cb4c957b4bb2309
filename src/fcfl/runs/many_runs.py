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
from scipy.stats import t as student

from fcfl._files import write_json
from fcfl._types import Vector
from fcfl.client.client import Setup
from fcfl.client.counts import Counts
from fcfl.errors import AbsentClientError, CheckpointError, FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.federation.exchange_count import read_exchanges
from fcfl.federation.history import read_history
from fcfl.methods.registry import METHODS, check_method
from fcfl.methods.sqp.subproblem import Target
from fcfl.results import Comparison, Exchanges, Result, Sweep
from fcfl.results.files import COMPARISON, HISTORY, PLAIN, RESULT, SWEEP
from fcfl.results.findings import exceeded_budgets, has_collapsed
from fcfl.results.many_runs import (
    MAJORITY,
    ClientOverSeeds,
    ClientRun,
    Judged,
    MethodRun,
    MethodSummary,
    OverSeeds,
    SweepPoint,
    judge,
    largest_difference,
)
from fcfl.results.result import objective_setting
from fcfl.runs.opening import Opened, Opener, open_run
from fcfl.runs.run import (
    SETTINGS,
    Finished,
    check_folder,
    check_groups,
    prepare_folder,
    run_or_read,
    writing,
)
from fcfl.runs.settings import Experiment
from fcfl.runs.text_values import words
from fcfl.training.run import rules_in_force
from fcfl.training.session import Session

TIE = 1e-6  # objectives nearer than this count as equal
FROM_BEFORE, AFRESH = "from-before", "afresh"  # folders of a point's two runs until one is kept
CONFIDENCE = 0.95  # of the intervals over seeds
_OF_RUN = (
    "exchanges",
    "bytes_from_clients",
    "seconds",
)
_OF_JUDGED = ("accuracy", "all_rows", "median", "largest", "lowest_accuracy", "selected")
_WHAT_MAJORITY = "Everybody gets the label that is more frequent in training; nothing is trained"
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
        test_accuracy=result.overall.test.accuracy,
        largest_train_disparity=_largest_trained(result),
        folder=finished.folder.name,
        judged=judge(result),
    )


def _largest_trained(result: Result) -> float | None:
    """Return the largest difference of any client's rates on training rows."""
    values = [
        entry.trained
        for client in result.clients.values()
        for entry in client.train.disparities
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


# --- the figures of a comparison ------------------------------------------------------------------


def summarise(folder: Path, result: Result) -> MethodRun:
    """Return what a comparison shows of one run, on held-out rows where there are any."""
    part = result.judged_part
    clients = {}
    for name, client in result.clients.items():
        found, entry = client.part(part), largest_difference(client, part)
        clients[name] = ClientRun(found.accuracy)
        if entry is not None:
            clients[name] = ClientRun(found.accuracy, entry.value, entry.verdict)
    return MethodRun(
        folder=folder.name,
        method=result.method,
        seed=result.seed or 0,
        status=result.status,
        message=result.message,
        part=part,
        exchanges=result.exchanges.total,
        bytes_from_clients=result.bytes_from_clients,
        seconds=result.seconds,
        clients=clients,
        judged=judge(result),
        still_moving=_still_moving(folder, result),
    )


def _still_moving(folder: Path, result: Result) -> str:
    """Return how much the last tenth of rounds changed in a run that has not converged."""
    history = folder / HISTORY
    if result.status == "converged" or not history.exists():
        return ""
    losses = [info.worst_loss for info in read_history(history) if math.isfinite(info.worst_loss)]
    last = max(len(losses) // 10, 1)
    if len(losses) <= last:
        return f"{len(losses)} rounds taken"
    change = abs(losses[-1] - losses[-1 - last])
    residual = "" if result.kkt_residual is None else f", KKT residual {result.kkt_residual:.2g}"
    rounds = "round" if last == 1 else f"{last} of {len(losses)} rounds"
    return f"worst loss still changed by {change:.2g} in the last {rounds}{residual}"


def majority_run(opened: Opened, seed: int) -> MethodRun:
    """Return the result of giving everybody the more frequent label in training.

    No group differs from another then. How frequent each label is follows from the counts of any
    model, here of zeros. Its exchanges include those that checked the budgets before the first run.
    """
    rules = rules_in_force(opened.rules, opened.federation.introduce())
    setup = Setup(opened.model, (), rules)
    with opened.federation.phase("check"):
        counted = opened.federation.count(setup, np.zeros(opened.model.n_params))
    train = {name: one.train for name, one in counted.items() if one.train.n_rows}
    test = {name: one.test for name, one in counted.items() if one.test.n_rows}
    label = _share_labelled(list(train.values()), True) >= 0.5
    judged = test or train
    accuracy = {name: _share_labelled([one], label) for name, one in judged.items()}
    overall = _share_labelled(list(judged.values()), label)
    return MethodRun(
        folder="",
        method=MAJORITY,
        seed=seed,
        status="converged",
        message="",
        exchanges=sum(opened.federation.exchanges.take().values()),
        clients={name: ClientRun(value, 0.0) for name, value in accuracy.items()},
        judged=Judged(
            all_rows=0.0, accuracy=overall, selected=float(label), median=0.0, largest=0.0
        ),
    )


def _share_labelled(counts: Sequence[Counts], label: bool) -> float:
    """Return the share of rows that have this label."""
    n_rows = sum(one.n_rows for one in counts)
    positive = sum(one.n_positive for one in counts)
    return (positive if label else n_rows - positive) / n_rows


def _among(run: MethodRun, clients: Sequence[str]) -> MethodRun:
    """Return the run with the lowest accuracy among the clients of the other runs."""
    known = [run.clients[name].accuracy for name in clients if name in run.clients]
    lowest = min((value for value in known if value is not None), default=None)
    return replace(run, judged=replace(run.judged, lowest_accuracy=lowest))


def compare_runs(
    table: str, runs: Sequence[MethodRun], majority: Sequence[MethodRun]
) -> Comparison:
    """Return the content of ``comparison.json``."""
    enough = next((run.judged.clients for run in runs if run.part is not None), ())
    majority = [_among(run, enough) for run in majority]
    by_method: dict[str, list[MethodRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    return Comparison(
        table=table,
        confidence_over_seeds=CONFIDENCE,
        methods=tuple(
            _over_seeds(method, found)
            for method, found in {**by_method, MAJORITY: list(majority)}.items()
        ),
        runs=tuple(runs),
    )


def _over_seeds(method: str, runs: Sequence[MethodRun]) -> MethodSummary:
    """Return means over seeds, each with an interval if there are several."""
    found = {name: over_seeds([getattr(run, name) for run in runs]) for name in _OF_RUN}
    found |= {name: over_seeds([getattr(run.judged, name) for run in runs]) for name in _OF_JUDGED}
    clients = {}
    for name in dict.fromkeys(name for run in runs for name in run.clients):
        one = [run.clients.get(name, ClientRun()) for run in runs]
        clients[name] = ClientOverSeeds(
            over_seeds([run.accuracy for run in one]), over_seeds([run.value for run in one])
        )
    return MethodSummary(
        method=method,
        what=_WHAT_MAJORITY if method == MAJORITY else METHODS[method].help,
        seeds=tuple(run.seed for run in runs),
        failed=sum(run.status == "failed" for run in runs),
        clients=clients,
        kept=sum(run.judged.kept for run in runs),
        n_budgets=sum(run.judged.n_budgets for run in runs),
        too_small=tuple(dict.fromkeys(name for run in runs for name in run.judged.too_small)),
        **found,
    )


def over_seeds(values: Sequence[float | None]) -> OverSeeds:
    """Mean, and the ends of Student's interval for it where there are two values or more."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if known.size == 0:
        return OverSeeds()
    mean = float(known.mean())
    if known.size == 1:
        return OverSeeds(mean)
    spread = float(known.std(ddof=1))
    half = float(student.ppf(0.5 + CONFIDENCE / 2, known.size - 1)) * spread / math.sqrt(known.size)
    return OverSeeds(mean, mean - half, mean + half, spread)
