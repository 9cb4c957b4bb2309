"""Choose the L2 weight and the consistency by cross-validation inside the clients.

Every client splits its own training rows into folds and says, for each candidate, only sums over
the rows it held out: their count, the sum of their losses and of the squares. A candidate is
judged by the worst-served client's held-out loss; among those within one standard error of the
best, the one with the lowest mean loss is taken. Where that is flat, min-max buys the worst
client nothing, and the result says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Point, Request, Vector
from fcfl.client.linear import linear_client, linear_logits
from fcfl.data import ClientData
from fcfl.data.client_data import client_seed
from fcfl.errors import SolverError
from fcfl.experiment.settings import Experiment
from fcfl.experiment.tasks import TableTask
from fcfl.experiment.training import Watch
from fcfl.runtime.in_process import InProcess
from fcfl.runtime.loop import Progress, run
from fcfl.server.method import RoundInfo
from fcfl.server.problem import state_problem
from fcfl.server.sqp import SQP

N_FOLDS = 5
L2_GRID = (1e-1, 1e-2, 1e-3, 1e-4)
CONSISTENCY_GRID: tuple[float | Literal["max"], ...] = (10.0, 1.0, 0.3, 0.1, "max")
MOST_ROWS = 100_000  # used for choosing; more rows would not change the choice
_TOLERANCE = 1e-4  # KKT residual of a fit that is only compared

_CHOOSING = RoundInfo(0, 0, "", np.nan, np.nan, np.nan, 0.0, "choosing l2 and consistency")

Candidate = tuple[float, float | Literal["max"]]


@dataclass(frozen=True)
class HeldOut:
    """What a client says about rows it held out: sums only."""

    n_rows: int
    loss_sum: float
    loss_square_sum: float

    def plus(self, other: "HeldOut") -> "HeldOut":
        """The sums of both."""
        return HeldOut(
            self.n_rows + other.n_rows,
            self.loss_sum + other.loss_sum,
            self.loss_square_sum + other.loss_square_sum,
        )

    @property
    def mean(self) -> float:
        """Mean loss of the rows."""
        return self.loss_sum / self.n_rows

    @property
    def standard_error(self) -> float:
        """Standard error of that mean."""
        variance = max(self.loss_square_sum / self.n_rows - self.mean**2, 0.0)
        return float(np.sqrt(variance / max(self.n_rows - 1, 1)))


def select(experiment: Experiment, task: TableTask, watch: Watch | None = None) -> dict[str, Any]:
    """Cross-validate all candidates; the choice, the table and one sentence of reading."""
    candidates = _candidates(experiment)
    rows = _usable_rows(task, experiment.seed)
    folds = {c: fold_of_rows(rows[c], experiment.seed, c) for c in rows}
    scored = [c for c in rows if folds[c].max() >= 0]
    if not scored:
        return _nothing_to_hold_out(experiment)
    sums: dict[Candidate, dict[ClientId, HeldOut]] = {candidate: {} for candidate in candidates}
    fits = 0
    for fold in range(N_FOLDS):
        for candidate, held_out in _fit_path(experiment, task, rows, folds, fold, candidates):
            _accumulate(sums[candidate], held_out)
            fits += 1
            if watch is not None:
                watch(_CHOOSING, fits / (N_FOLDS * len(candidates)))
    return _decide(sums)


def _candidates(experiment: Experiment) -> list[Candidate]:
    """The grid, from much to little regularised, from the mean towards the maximum."""
    l2, consistency = experiment.l2_or_default, experiment.consistency_or_default
    weights = L2_GRID if l2 == "auto" else (float(l2),)
    tilts: Any = CONSISTENCY_GRID if consistency == "auto" else (consistency,)
    return [(weight, tilt) for weight in weights for tilt in tilts]


def _usable_rows(task: TableTask, seed: int) -> dict[ClientId, ClientData]:
    """Each client's training rows, a random part of them where there are very many."""
    train = task.federation.train
    most = max(MOST_ROWS // len(train), 500)
    rows = {}
    for client, data in train.items():
        if data.n_rows > most:
            random = np.random.default_rng(client_seed(seed, client))
            data = data.take(np.sort(random.permutation(data.n_rows)[:most]))
        rows[client] = data
    return rows


def fold_of_rows(data: ClientData, seed: int, client: ClientId) -> NDArray[np.intp]:
    """A fold for each row, spread evenly over labels and groups.

    A client with fewer than two rows a fold holds nothing out (fold -1): its rows are always
    trained on.
    """
    if data.n_rows < 2 * N_FOLDS:
        return np.full(data.n_rows, -1)
    random = np.random.default_rng(client_seed(seed, client)).random(data.n_rows)
    keys: list[NDArray[Any]] = [random, *data.groups.values(), data.y]
    order = np.lexsort(keys)
    folds = np.empty(data.n_rows, dtype=np.intp)
    folds[order] = np.arange(data.n_rows) % N_FOLDS
    return folds


def _fit_path(
    experiment: Experiment,
    task: TableTask,
    rows: Mapping[ClientId, ClientData],
    folds: Mapping[ClientId, NDArray[np.intp]],
    fold: int,
    candidates: list[Candidate],
) -> Iterator[tuple[Candidate, dict[ClientId, HeldOut] | None]]:
    """Fit all candidates without the fold's rows, each from the one before; score on those rows."""
    kept = {c: rows[c].take(np.flatnonzero(folds[c] != fold)) for c in rows}
    away = {c: rows[c].take(np.flatnonzero(folds[c] == fold)) for c in rows}
    runtime = InProcess({c: linear_client(c, data, task.rates) for c, data in kept.items()})
    params = np.zeros(task.federation.schema.n_features + 1)
    counted = runtime.evaluate(Request((Point(params),)))
    for l2, consistency in candidates:
        problem, _ = state_problem(task.rules, task.rates, counted, l2=l2)
        method = SQP(
            consistency, curvature=experiment.curvature, rounds=(60, 0), tolerance=_TOLERANCE
        )
        try:
            for progress, _ in run(method, Progress(method.init(params, problem)), runtime):
                params = progress.state.params
        except SolverError:
            yield (l2, consistency), None
            continue
        yield (l2, consistency), {c: held_out(away[c], params) for c in away if away[c].n_rows}


def held_out(data: ClientData, params: Vector) -> HeldOut:
    """Sums of the losses of one client's rows."""
    logits = linear_logits(data.X, params)
    losses = np.logaddexp(0.0, logits) - data.y * logits
    return HeldOut(data.n_rows, float(losses.sum()), float(losses @ losses))


def _accumulate(total: dict[ClientId, HeldOut], more: Mapping[ClientId, HeldOut] | None) -> None:
    for client, sums in (more or {}).items():
        total[client] = total[client].plus(sums) if client in total else sums


def _decide(sums: Mapping[Candidate, Mapping[ClientId, HeldOut]]) -> dict[str, Any]:
    """The one-standard-error rule."""
    table = [_line(candidate, by_client) for candidate, by_client in sums.items() if by_client]
    best = min(table, key=lambda line: line["worst_loss"])
    near = best["worst_loss"] + best["worst_loss_standard_error"]
    chosen = min(
        (line for line in table if line["worst_loss"] <= near), key=lambda line: line["mean_loss"]
    )
    spread = max(line["worst_loss"] for line in table) - best["worst_loss"]
    return {
        "l2": chosen["l2"],
        "consistency": chosen["consistency"],
        "folds": N_FOLDS,
        "best": best,
        "chosen": chosen,
        "within_one_standard_error": sum(line["worst_loss"] <= near for line in table),
        "spread": spread,
        "table": table,
        "sentence": _sentence(chosen, best, table, near),
    }


def _line(candidate: Candidate, by_client: Mapping[ClientId, HeldOut]) -> dict[str, Any]:
    worst = max(by_client, key=lambda client: by_client[client].mean)
    return {
        "l2": candidate[0],
        "consistency": candidate[1],
        "worst_client": worst,
        "worst_loss": by_client[worst].mean,
        "worst_loss_standard_error": by_client[worst].standard_error,
        "mean_loss": float(np.mean([sums.mean for sums in by_client.values()])),
    }


def _sentence(
    chosen: Mapping[str, Any], best: Mapping[str, Any], table: list[dict[str, Any]], near: float
) -> str:
    """What was chosen, how flat it was, and whether min-max bought anything."""
    within = sum(line["worst_loss"] <= near for line in table)
    said = (
        f"Chose l2 {chosen['l2']:g} and consistency {_tilt(chosen['consistency'])} by "
        f"{N_FOLDS}-fold cross-validation: held-out loss of the worst client "
        f"({chosen['worst_client']}) {chosen['worst_loss']:.4f}; the best is "
        f"{best['worst_loss']:.4f} ± {best['worst_loss_standard_error']:.4f}, and {within} of "
        f"{len(table)} settings are within that."
    )
    at_max = [line["worst_loss"] for line in table if line["consistency"] == "max"]
    others = [line["worst_loss"] for line in table if line["consistency"] != "max"]
    if at_max and others and min(at_max) >= min(others):
        said += " Min-max buys the worst client nothing on held-out rows."
    return said


def _tilt(consistency: float | str) -> str:
    return "max" if consistency == "max" else f"{consistency:g}"


def _nothing_to_hold_out(experiment: Experiment) -> dict[str, Any]:
    """Clients of a handful of rows: a moderate choice, and it is said."""
    l2, consistency = experiment.l2_or_default, experiment.consistency_or_default
    return {
        "l2": 1e-2 if l2 == "auto" else l2,
        "consistency": 1.0 if consistency == "auto" else consistency,
        "folds": 0,
        "table": [],
        "sentence": f"No client has the {2 * N_FOLDS} training rows that cross-validation needs; "
        "l2 and consistency were not chosen but set to a middle value.",
    }
