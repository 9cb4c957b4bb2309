"""Several methods on the same rows: one run for each method and seed, and what they add up to."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from fcfl._checks import check_choice
from fcfl.errors import FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.results import (
    ClientOverSeeds,
    ClientResult,
    ClientRun,
    Comparison,
    Disparity,
    MethodRun,
    MethodSummary,
    OverSeeds,
    PartName,
    Result,
    read_result,
)
from fcfl.results.result_file import COMPARISON, RESULT, write_comparison_file
from fcfl.runs.folder import SETTINGS, prepare_folder
from fcfl.runs.opening import open_run, open_table
from fcfl.runs.run import check_groups, run_experiment
from fcfl.runs.settings import Experiment
from fcfl.server.registry import METHODS
from fcfl.training.rounds import Session

CONFIDENCE = 0.95  # of the intervals over seeds


def parse_methods(text: str | None) -> tuple[str, ...]:
    """Names with commas; left out, all methods."""
    if text is None:
        return tuple(METHODS)
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
    rows = {seed: open_table(replace(experiment, seed=seed)).checksum for seed in seeds}
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
            comparison = _compare(experiment, runs)
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
    shown = {c: _largest(client, part) for c, client in result.clients.items()}
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
    )


def _client_run(client: ClientResult, part: PartName) -> ClientRun:
    entry = _largest(client, part)
    accuracy = client.part(part).accuracy
    return ClientRun(accuracy, entry.value, entry.verdict) if entry else ClientRun(accuracy)


def _largest(client: ClientResult, part: PartName) -> Disparity | None:
    """The largest difference of group rates among a client's rules; ratios are not comparable."""
    found = [e for e in client.part(part).disparities if e.rule != "ratio" and e.value is not None]
    return max(found, key=lambda entry: entry.value or 0.0, default=None)


def _verdicts(result: Result, part: PartName) -> dict[str, int]:
    clients = result.clients.values()
    return dict(Counter(entry.verdict for who in clients for entry in who.part(part).disparities))


def _compare(experiment: Experiment, runs: Sequence[MethodRun]) -> Comparison:
    """Everything ``comparison.json`` says."""
    by_method: dict[str, list[MethodRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    return Comparison(
        table=experiment.table,
        confidence_over_seeds=CONFIDENCE,
        methods=tuple(_over_seeds(method, found) for method, found in by_method.items()),
        runs=tuple(runs),
    )


def _over_seeds(method: str, runs: Sequence[MethodRun]) -> MethodSummary:
    """Means over seeds, each with an interval where there are several."""
    names = dict.fromkeys(name for run in runs for name in run.clients)
    return MethodSummary(
        method=method,
        what=METHODS[method].help,
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
