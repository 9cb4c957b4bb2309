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
from fcfl.results import ClientResult, Comparison, Result
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
from fcfl.results.result import PartName
from fcfl.runs.opening import Opened
from fcfl.training.client_rules import rules_in_force

CONFIDENCE = 0.95  # of the intervals over seeds
_WHAT_MAJORITY = "Everybody gets the label that is more frequent in training; nothing is trained"


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
        accuracy=result.overall.part(part).accuracy,
        worst_train_loss=result.worst_client.train_loss,
        largest_client=largest,
        largest_disparity=entry.value if entry else None,
        low=entry.low if entry else None,
        high=entry.high if entry else None,
        verdicts=_verdicts(result, part),
        exchanges=result.exchanges.total,
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


def majority_run(opened: Opened, seed: int) -> MethodRun:
    """Everybody gets the label that is more frequent in training: no group differs from another.

    How frequent either is follows from what clients count of any model, here of zeros. Its
    exchanges include those that checked the budgets before the first run.
    """
    rules = rules_in_force(opened.rules, opened.federation.introduce())
    setup = Setup(opened.model, (), rules)
    with opened.federation.phase("check"):
        said = opened.federation.count(setup, np.zeros(opened.model.n_params))
    train, test = ({c: getattr(one, part) for c, one in said.items()} for part in ("train", "test"))
    positive = {c: one.true_positive + one.false_negative for c, one in train.items()}
    label = sum(positive.values()) / sum(one.n_rows for one in train.values()) >= 0.5
    judged = {c: one for c, one in test.items() if one.n_rows} or train
    right = {c: _n_labelled(one, label) for c, one in judged.items() if one.n_rows}
    accuracy = {name: count / judged[name].n_rows for name, count in right.items()}
    worst = min(accuracy, key=accuracy.__getitem__)
    overall = sum(right.values()) / sum(judged[name].n_rows for name in right)
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


def _n_labelled(counts: Counts, label: bool) -> int:
    positive = counts.true_positive + counts.false_negative
    return positive if label else counts.n_rows - positive


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
        exchanges=over_seeds([run.exchanges for run in runs]),
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
        selected=over_seeds([run.judged.selected for run in runs]),
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
