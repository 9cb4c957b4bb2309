"""Several methods on the same rows: one run for each method and seed, and what they add up to."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from fcfl._checks import check_choice
from fcfl.data import FederatedTable
from fcfl.errors import FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.federation.history import read_history
from fcfl.results import (
    ClientOverSeeds,
    ClientResult,
    ClientRun,
    Comparison,
    MethodRun,
    MethodSummary,
    OverSeeds,
    PartName,
    Result,
    read_result,
)
from fcfl.results.judgeable import judge, largest_difference
from fcfl.results.judged import Judged
from fcfl.results.result_file import COMPARISON, RESULT, write_comparison_file
from fcfl.results.run_folder import HISTORY, PLAIN
from fcfl.runs.folder import SETTINGS, prepare_folder
from fcfl.runs.opening import open_run, open_table
from fcfl.runs.run import check_groups, run_experiment
from fcfl.runs.settings import Experiment
from fcfl.server.registry import METHODS
from fcfl.training.rounds import Session

CONFIDENCE = 0.95  # of the intervals over seeds
MAJORITY = "majority"
_WHAT_MAJORITY = "Everybody gets the label that is more frequent in training; nothing is trained"


def parse_methods(text: str | None) -> tuple[str, ...]:
    """Names with commas; left out, all methods."""
    if text is None:
        return tuple(name for name, one in METHODS.items() if not one.traits.is_private)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("`methods` is empty. Example: --methods sqp,two-stage,fedavg")
    for name in names:
        check_choice("methods", name, METHODS)
    return names


def run_comparison(
    experiment: Experiment, methods: Sequence[str], seeds: Sequence[int], session: Session
) -> Comparison:
    """Run every method with every seed and write ``comparison.json`` after each.

    With ``session.resume`` a finished run is read back and an unfinished one goes on; rows that
    differ from theirs are an error. A method that fails is listed with its
    message; the others still run. A table that cannot be read, or has no two groups to compare, is
    an error before the first.
    """
    first = for_method(experiment, methods[0], seeds[0])
    check_groups(first, open_run(first))
    tables = {seed: open_table(replace(experiment, seed=seed)) for seed in seeds}
    rows = {seed: table.checksum for seed, table in tables.items()}
    majority = [_majority_run(table, seed) for seed, table in tables.items()]
    if PLAIN not in methods:  # the line without budgets, on which the others are read
        methods = (*methods, PLAIN)
    runs: list[MethodRun] = []
    place = session.required_folder
    place.mkdir(parents=True, exist_ok=True)
    for method in methods:
        for seed in seeds:
            folder = place / (method if len(seeds) == 1 else f"{method}-seed-{seed}")
            one = for_method(experiment, method, seed)
            done, total = len(runs) + 1, len(methods) * len(seeds)
            session.on_message(f"{folder.name}, run {done} of {total}")
            runs.append(_run(one, folder, replace(session, on_message=_quiet), rows[seed]))
            if runs[-1].status == "failed":
                session.on_message(f"{folder.name} failed: {runs[-1].message}")
            comparison = _compare(experiment, runs, majority)
            write_comparison_file(place / COMPARISON, comparison)
    return comparison


def for_method(experiment: Experiment, method: str, seed: int) -> Experiment:
    """The same experiment by another method; what only one method knows is left to it."""
    own = method == experiment.method
    return replace(
        experiment,
        method=method,
        seed=seed,
        objective=experiment.objective if own else None,
        curvature=experiment.curvature if own else "auto",
        l2=None if experiment.l2 == "auto" and method != "sqp" else experiment.l2,
    )


def _quiet(sentence: str) -> None:
    """Notes are in each run's result; eleven times the same would hide what differs."""


def _run(experiment: Experiment, folder: Path, session: Session, rows: str) -> MethodRun:
    """One run as it is on disk, or as it goes on, or from its beginning."""
    result, settings = folder / RESULT, folder / SETTINGS
    same = session.resume and settings.exists() and Experiment.from_toml(settings) == experiment
    if same:
        prepare_folder(experiment, rows, folder, resume=True, on_message=session.on_message)
    if same and result.exists():
        return summarise(folder, read_result(result))
    try:
        finished = run_experiment(
            experiment,
            folder,
            resume=same and checkpoint_path(folder).exists(),
            overwrite=True,
            on_round=session.on_round,
            on_message=session.on_message,
        )
    except Interrupted:
        raise
    except FCFLError as error:
        return MethodRun(
            folder=folder.name,
            method=experiment.method,
            seed=experiment.seed,
            status="failed",
            message=str(error),
        )
    return summarise(folder, finished.result)


def summarise(folder: Path, result: Result) -> MethodRun:
    """What a comparison says of one run, on held-out rows where there are any."""
    part = result.judged_part
    clients = {name: _client_run(client, part) for name, client in result.clients.items()}
    known = {c: run.accuracy for c, run in clients.items() if run.accuracy is not None}
    worst = min(known, key=known.__getitem__, default=None)
    shown = {c: largest_difference(client, part) for c, client in result.clients.items()}
    measured = {c: entry.value for c, entry in shown.items() if entry and entry.value is not None}
    largest = max(measured, key=measured.__getitem__, default=None)
    entry = None if largest is None else shown[largest]
    return MethodRun(
        folder=folder.name,
        method=result.method,
        seed=result.seed or 0,
        status=result.status,
        message=result.message,
        part=part,
        worst_client=worst,
        worst_accuracy=None if worst is None else known[worst],
        accuracy=result.all_rows.part(part).accuracy,
        worst_train_loss=result.worst_client.train_loss,
        largest_client=largest,
        largest_disparity=entry.value if entry else None,
        low=entry.low if entry else None,
        high=entry.high if entry else None,
        verdicts=_verdicts(result, part),
        rounds=result.n_rounds,
        bytes_from_clients=result.bytes_from_clients,
        seconds=result.seconds,
        clients=clients,
        judged=judge(result),
        still_moving=_still_moving(folder, result),
    )


def _client_run(client: ClientResult, part: PartName) -> ClientRun:
    entry = largest_difference(client, part)
    accuracy = client.part(part).accuracy
    return ClientRun(accuracy, entry.value, entry.verdict) if entry else ClientRun(accuracy)


def _still_moving(folder: Path, result: Result) -> str:
    """How far from converged a run is that was stopped: what its last tenth of rounds changed."""
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


def _verdicts(result: Result, part: PartName) -> dict[str, int]:
    clients = result.clients.values()
    return dict(Counter(entry.verdict for who in clients for entry in who.part(part).disparities))


def _majority_run(table: FederatedTable, seed: int) -> MethodRun:
    """Everybody gets the label that is more frequent in training: no group differs from another."""
    train, test = table.train, table.test
    label = np.mean(np.concatenate([data.y for data in train.values()])) >= 0.5
    judged = test if any(data.n_rows for data in test.values()) else train
    right = {name: data.y == label for name, data in judged.items() if data.n_rows}
    accuracy = {name: float(found.mean()) for name, found in right.items()}
    worst = min(accuracy, key=accuracy.__getitem__)
    overall = float(np.concatenate(list(right.values())).mean())
    return MethodRun(
        folder="",
        method=MAJORITY,
        seed=seed,
        status="converged",
        message="",
        worst_client=worst,
        worst_accuracy=accuracy[worst],
        accuracy=overall,
        largest_disparity=0.0,
        clients={name: ClientRun(value, 0.0) for name, value in accuracy.items()},
        judged=Judged(all_rows=0.0, accuracy=overall, median=0.0, largest=0.0),
    )


def _among(run: MethodRun, clients: Sequence[str]) -> MethodRun:
    """The run with the lowest accuracy among these clients, as the others are judged."""
    known = [run.clients[name].accuracy for name in clients if name in run.clients]
    lowest = min((value for value in known if value is not None), default=None)
    return replace(run, judged=replace(run.judged, lowest_accuracy=lowest))


def _compare(
    experiment: Experiment, runs: Sequence[MethodRun], majority: Sequence[MethodRun]
) -> Comparison:
    """Everything ``comparison.json`` says."""
    enough = next((run.judged.clients for run in runs if run.part is not None), ())
    majority = [_among(run, enough) for run in majority]
    by_method: dict[str, list[MethodRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    return Comparison(
        table=experiment.table,
        confidence_over_seeds=CONFIDENCE,
        methods=tuple(
            _over_seeds(method, found)
            for method, found in {**by_method, MAJORITY: list(majority)}.items()
        ),
        runs=tuple(runs),
    )


def _over_seeds(method: str, runs: Sequence[MethodRun]) -> MethodSummary:
    """Means over seeds, each with an interval where there are several."""
    names = dict.fromkeys(name for run in runs for name in run.clients)
    return MethodSummary(
        method=method,
        what=_WHAT_MAJORITY if method == MAJORITY else METHODS[method].help,
        seeds=tuple(run.seed for run in runs),
        failed=sum(run.status == "failed" for run in runs),
        worst_accuracy=over_seeds([run.worst_accuracy for run in runs]),
        accuracy=over_seeds([run.accuracy for run in runs]),
        worst_train_loss=over_seeds([run.worst_train_loss for run in runs]),
        largest_disparity=over_seeds([run.largest_disparity for run in runs]),
        rounds=over_seeds([run.rounds for run in runs]),
        bytes_from_clients=over_seeds([run.bytes_from_clients for run in runs]),
        seconds=over_seeds([run.seconds for run in runs]),
        verdicts=dict(sum((Counter(run.verdicts) for run in runs), Counter())),
        clients={
            name: _client_over_seeds([run.clients.get(name, ClientRun()) for run in runs])
            for name in names
        },
        all_rows=over_seeds([run.judged.all_rows for run in runs]),
        median=over_seeds([run.judged.median for run in runs]),
        largest=over_seeds([run.judged.largest for run in runs]),
        lowest_accuracy=over_seeds([run.judged.lowest_accuracy for run in runs]),
        kept=sum(run.judged.kept for run in runs),
        n_budgets=sum(run.judged.n_budgets for run in runs),
        too_small=tuple(dict.fromkeys(name for run in runs for name in run.judged.too_small)),
    )


def _client_over_seeds(runs: Sequence[ClientRun]) -> ClientOverSeeds:
    return ClientOverSeeds(
        over_seeds([run.accuracy for run in runs]), over_seeds([run.value for run in runs])
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
