"""What a comparison says of its runs: of each, of every method over its seeds, and of no model."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from fcfl.client.counts import Counts
from fcfl.client.questions import Setup
from fcfl.federation.history import read_history
from fcfl.methods.registry import METHODS
from fcfl.results import Comparison, Result
from fcfl.results.files import HISTORY
from fcfl.results.many_runs import (
    MAJORITY,
    ClientOverSeeds,
    ClientRun,
    Judged,
    MethodRun,
    MethodSummary,
    OverSeeds,
    judge,
    largest_difference,
)
from fcfl.runs.opening import Opened
from fcfl.training.run import rules_in_force

CONFIDENCE = 0.95  # of the intervals over seeds
_OF_RUN = (
    *("worst_accuracy", "accuracy", "worst_train_loss", "largest_disparity", "exchanges"),
    *("bytes_from_clients", "seconds"),
)
_OF_JUDGED = ("all_rows", "median", "largest", "lowest_accuracy", "selected")
_WHAT_MAJORITY = "Everybody gets the label that is more frequent in training; nothing is trained"


def summarise(folder: Path, result: Result) -> MethodRun:
    """Return what a comparison shows of one run, on held-out rows where there are any."""
    part = result.judged_part
    clients, entries = {}, {}
    for name, client in result.clients.items():
        found, entry = client.part(part), largest_difference(client, part)
        clients[name] = ClientRun(found.accuracy)
        if entry is not None:
            entries[name] = entry
            clients[name] = ClientRun(found.accuracy, entry.value, entry.verdict)
    accuracies = {c: run.accuracy for c, run in clients.items() if run.accuracy is not None}
    worst = min(accuracies, key=accuracies.__getitem__, default=None)
    values = {c: run.value for c, run in clients.items() if run.value is not None}
    largest = max(values, key=values.__getitem__, default=None)
    every = [entry for who in result.clients.values() for entry in who.part(part).disparities]
    return MethodRun(
        folder=folder.name,
        method=result.method,
        seed=result.seed or 0,
        status=result.status,
        message=result.message,
        part=part,
        worst_client=worst,
        worst_accuracy=None if worst is None else accuracies[worst],
        accuracy=result.overall.part(part).accuracy,
        worst_train_loss=result.worst_client.train_loss,
        largest_client=largest,
        largest_disparity=None if largest is None else values[largest],
        low=None if largest is None else entries[largest].low,
        high=None if largest is None else entries[largest].high,
        verdicts=dict(Counter(entry.verdict for entry in every)),
        exchanges=result.exchanges.total,
        bytes_from_clients=result.bytes_from_clients,
        seconds=result.seconds,
        clients=clients,
        judged=judge(result),
        still_moving=_still_moving(folder, result),
    )


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
    worst = min(accuracy, key=accuracy.__getitem__)
    overall = _share_labelled(list(judged.values()), label)
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
    """The run with the lowest accuracy among these clients, as the others are judged."""
    known = [run.clients[name].accuracy for name in clients if name in run.clients]
    lowest = min((value for value in known if value is not None), default=None)
    return replace(run, judged=replace(run.judged, lowest_accuracy=lowest))


def compare_runs(
    table: str, runs: Sequence[MethodRun], majority: Sequence[MethodRun]
) -> Comparison:
    """Everything ``comparison.json`` says."""
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
        verdicts=dict(sum((Counter(run.verdicts) for run in runs), Counter())),
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
