"""Choose the L2 weight and the objective by cross-validation inside the clients.

Every client splits its own training rows into folds, scores each candidate on the rows it held
out, and says only sums over them: their count, the sum of the losses under each candidate, and the
sums of their products. A candidate is judged by the worst-served client's held-out loss. Each
objective is taken at its best L2 weight; of those not worse than the best by more than one
standard error of the difference, on the same rows, the one with the lowest mean loss is chosen. The
L2 weight is then where a parabola in its logarithm, through that objective's losses near their
lowest, has its minimum: a single lowest point is mostly noise. If that is the strong end of the
grid, as for few rows it may be, a decade more is tried. The result says how flat it
was, and when min-max buys the worst client nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Matrix, Point, RateId, Request, Vector
from fcfl.data import ClientData
from fcfl.data.client_data import client_seed
from fcfl.federation.in_process import InProcess
from fcfl.federation.loop import Progress, run
from fcfl.models.linear import linear_client, linear_logits
from fcfl.rules import Rule
from fcfl.runs.settings import Experiment
from fcfl.server.method import RoundInfo
from fcfl.server.problem import build_problem
from fcfl.server.sqp.sqp import SQP
from fcfl.training.rounds import Watch

N_FOLDS = 5
L2_GRID = (1e-1, 5.6e-2, 3e-2, 1.8e-2, 1e-2, 5.6e-3, 3e-3, 1.8e-3, 1e-3, 5.6e-4, 3e-4)
L2_ABOVE = (1.0, 5.6e-1, 3e-1, 1.8e-1)  # tried too when the grid's strong end is chosen
OBJECTIVE_GRID: tuple[float | Literal["max"], ...] = (10.0, 0.3, "max")
REACH = 3  # steps of the L2 grid to either side of the lowest loss that the parabola goes through
SLACK = 1.0  # standard errors that the worst client may be behind the best candidate
MOST_ROWS = 100_000  # used for choosing; more rows would not change the choice
_TOLERANCE = 1e-4  # KKT residual of a fit that is only compared

_CHOOSING = RoundInfo(0, 0, "", np.nan, np.nan, np.nan, 0.0, "choosing l2 and objective")

Candidate = tuple[float, float | Literal["max", "mean"]]
Folds = Mapping[ClientId, NDArray[np.intp]]


@dataclass(frozen=True)
class Rows:
    """The rows to choose by, and what is compared between their groups."""

    clients: Mapping[ClientId, ClientData]
    rules: Sequence[Rule]
    rates: Sequence[RateId]
    min_group_rows: float = 1.0


@dataclass(frozen=True)
class HeldOut:
    """What a client says about rows it held out: sums over them, for all candidates at once.

    ``loss_sums[i]`` sums the losses under candidate i, ``product_sums[i, j]`` their products under
    i and j. Rows count by their weight.
    """

    n_rows: float
    loss_sums: Vector
    product_sums: Matrix

    @property
    def means(self) -> Vector:
        """Mean loss under each candidate."""
        return self.loss_sums / self.n_rows

    def standard_error(self, i: int, j: int | None = None) -> float:
        """Standard error of candidate i's mean loss, or of its difference from candidate j's."""
        square, shift = self.product_sums[i, i], self.means[i]
        if j is not None:
            square = square - 2 * self.product_sums[i, j] + self.product_sums[j, j]
            shift = shift - self.means[j]
        variance = max(square / self.n_rows - shift**2, 0.0)
        return float(np.sqrt(variance / max(self.n_rows - 1, 1)))


def sum_up(losses: Matrix, weights: Vector | None = None) -> HeldOut:
    """Sums of a client's held-out losses, one row per row and one column per candidate."""
    if weights is None:
        weights = np.ones(losses.shape[0])
    return HeldOut(float(weights.sum()), weights @ losses, losses.T @ (weights[:, None] * losses))


def select(experiment: Experiment, rows: Rows, on_round: Watch | None = None) -> dict[str, Any]:
    """Cross-validate all candidates; the choice, the table and one sentence of reading."""
    rows = replace(rows, clients=_usable(rows.clients, experiment.seed))
    folds = {c: fold_of_rows(data, experiment.seed, c) for c, data in rows.clients.items()}
    if all(fold.max() < 0 for fold in folds.values()):
        return _nothing_to_hold_out(experiment)
    candidates = _candidates(experiment, len(rows.clients), L2_GRID)
    open_l2 = experiment.l2_or_default == "auto"
    first = len(L2_GRID) / len((*L2_GRID, *L2_ABOVE)) if open_l2 else 1.0  # of all there may be
    losses = _held_out_losses(experiment, rows, folds, candidates, _part(on_round, 0.0, first))
    chosen = decide(candidates, _sums(losses, rows, folds))
    if not open_l2 or chosen["l2"] < max(L2_GRID):
        return chosen
    above = _candidates(experiment, len(rows.clients), L2_ABOVE)
    more = _held_out_losses(experiment, rows, folds, above, _part(on_round, first, 1.0))
    losses = {client: np.hstack([more[client], losses[client]]) for client in losses}
    return decide([*above, *candidates], _sums(losses, rows, folds))


def _part(on_round: Watch | None, low: float, high: float) -> Watch:
    """Tells ``on_round`` shares of a part as shares of the whole."""

    def part(info: RoundInfo, share: float) -> None:
        if on_round is not None:
            on_round(info, low + (high - low) * share)

    return part


def _held_out_losses(
    experiment: Experiment,
    rows: Rows,
    folds: Folds,
    candidates: list[Candidate],
    on_round: Watch,
) -> dict[ClientId, Matrix]:
    """Each client's losses on its rows, fold after fold, one column per candidate."""
    parts: dict[ClientId, list[Matrix]] = {}
    for fold in range(N_FOLDS):
        away = {c: np.flatnonzero(folds[c] == fold) for c in folds}
        held_out = {c: rows.clients[c].take(index) for c, index in away.items() if index.size}
        losses: dict[ClientId, list[Vector]] = {client: [] for client in held_out}
        for done, params in enumerate(_fit_path(experiment, rows, folds, fold, candidates)):
            for client, data in held_out.items():
                losses[client].append(row_losses(data, params))
            on_round(_CHOOSING, (fold + (done + 1) / len(candidates)) / N_FOLDS)
        for client, columns in losses.items():
            parts.setdefault(client, []).append(np.column_stack(columns))
    return {client: np.vstack(folded) for client, folded in parts.items()}


def _sums(losses: Mapping[ClientId, Matrix], rows: Rows, folds: Folds) -> dict[ClientId, HeldOut]:
    """What each client says about them."""
    sums = {}
    for client, matrix in losses.items():
        weights, fold = rows.clients[client].weights, folds[client]
        order = np.argsort(fold, kind="stable")[-matrix.shape[0] :]
        sums[client] = sum_up(matrix, None if weights is None else weights[order])
    return sums


def _candidates(
    experiment: Experiment, n_clients: int, l2_grid: tuple[float, ...]
) -> list[Candidate]:
    """What is open, from much to little regularised, from the mean towards the maximum.

    One client alone is both.
    """
    l2, objective = experiment.l2_or_default, experiment.objective_or_default
    weights = l2_grid if l2 == "auto" else (float(l2),)
    grid = OBJECTIVE_GRID if n_clients > 1 else ("max",)
    tilts: Any = grid if objective == "auto" else (objective,)
    return [(weight, tilt) for weight in weights for tilt in tilts]


def _usable(clients: Mapping[ClientId, ClientData], seed: int) -> dict[ClientId, ClientData]:
    """Each client's training rows, a random part of them where there are very many."""
    most = max(MOST_ROWS // len(clients), 500)
    rows = {}
    for client, data in clients.items():
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
    rows: Rows,
    folds: Folds,
    fold: int,
    candidates: list[Candidate],
) -> Iterator[Vector]:
    """Fit each candidate without the fold's rows, from where the one before ended."""
    kept = {c: data.take(np.flatnonzero(folds[c] != fold)) for c, data in rows.clients.items()}
    runtime = InProcess({c: linear_client(c, data, rows.rates) for c, data in kept.items()})
    params = np.zeros(next(iter(kept.values())).n_features + 1)
    counted = runtime.evaluate(Request((Point(params),)))
    for l2, objective in candidates:
        problem, _ = build_problem(
            rows.rules, rows.rates, counted, l2=l2, min_group_rows=rows.min_group_rows
        )
        method = SQP(
            np.inf if objective == "mean" else objective,
            curvature=experiment.curvature,
            rounds=(60, 0),
            tolerance=_TOLERANCE,
            feasibility=_TOLERANCE,
        )
        for progress, _ in run(method, Progress(method.init(params, problem)), runtime):
            params = progress.state.params
        yield params


def row_losses(data: ClientData, params: Vector) -> Vector:
    """Cross-entropy of each row."""
    logits = linear_logits(data.X, params)
    losses: Vector = np.logaddexp(0.0, logits) - data.y * logits
    return losses


def decide(candidates: list[Candidate], totals: Mapping[ClientId, HeldOut]) -> dict[str, Any]:
    """The objective with the lowest mean loss of those near the best; then the L2 weight."""
    table = [_line(candidate, i, totals) for i, candidate in enumerate(candidates)]
    best = min(range(len(table)), key=lambda i: table[i]["worst_loss"])
    for i, line in enumerate(table):
        worst = totals[line["worst_client"]]
        line["standard_error_of_difference"] = worst.standard_error(i, best)
        behind = line["worst_loss"] - table[best]["worst_loss"]
        line["near_best"] = bool(behind <= SLACK * line["standard_error_of_difference"])
    curves = [
        [line for line in table if line["objective"] == objective]
        for objective in dict.fromkeys(objective for _, objective in candidates)
    ]
    bests = [min(curve, key=lambda line: line["worst_loss"]) for curve in curves]
    near = [i for i, line in enumerate(bests) if line["near_best"]]
    curve = curves[min(near, key=lambda i: bests[i]["mean_loss"])]
    l2 = lowest_between([line["l2"] for line in curve], [line["worst_loss"] for line in curve])
    chosen = min(curve, key=lambda line: abs(np.log(line["l2"] / l2)) if l2 else 0.0)
    return {
        "l2": l2,
        "objective": chosen["objective"],
        "folds": N_FOLDS,
        "best": table[best],
        "chosen": chosen,
        "near_best": sum(line["near_best"] for line in table),
        "spread": max(line["worst_loss"] for line in table) - table[best]["worst_loss"],
        "table": table,
        "sentence": _sentence(l2, chosen, table[best], table),
    }


def lowest_between(weights: list[float], losses: list[float]) -> float:
    """The L2 weight, to two digits, where a parabola in its logarithm is lowest.

    It is drawn through the losses near the lowest one, and never left; where it does not open
    upwards, the lowest loss's own weight is taken.
    """
    lowest = int(np.argmin(losses))
    near = slice(max(lowest - REACH, 0), lowest + REACH + 1)
    if len(losses[near]) < 3:
        return weights[lowest]
    logs = np.log(weights[near])
    bend, slope, _ = np.polyfit(logs, losses[near], 2)
    if bend <= 0:
        return weights[lowest]
    return float(f"{np.exp(np.clip(-slope / (2 * bend), logs.min(), logs.max())):.2g}")


def _line(candidate: Candidate, i: int, totals: Mapping[ClientId, HeldOut]) -> dict[str, Any]:
    worst = max(totals, key=lambda client: totals[client].means[i])
    return {
        "l2": candidate[0],
        "objective": candidate[1],
        "worst_client": worst,
        "worst_loss": float(totals[worst].means[i]),
        "worst_loss_standard_error": totals[worst].standard_error(i),
        "mean_loss": float(np.mean([sums.means[i] for sums in totals.values()])),
    }


def _sentence(
    l2: float, chosen: Mapping[str, Any], best: Mapping[str, Any], table: list[dict[str, Any]]
) -> str:
    """What was chosen, how flat it was, and whether min-max bought anything."""
    near = sum(line["near_best"] for line in table)
    nearby = "" if l2 == chosen["l2"] else f" at l2 {chosen['l2']:g}"
    said = (
        f"Chose l2 {l2:g} and objective {_tilt(chosen['objective'])} by "
        f"{N_FOLDS}-fold cross-validation: held-out loss of the worst client "
        f"({chosen['worst_client']}) {chosen['worst_loss']:.4f} ± "
        f"{chosen['worst_loss_standard_error']:.4f}{nearby}; the best is "
        f"{best['worst_loss']:.4f}, and {near} of {len(table)} settings are within one standard "
        "error of it."
    )
    at_max = [line["worst_loss"] for line in table if line["objective"] == "max"]
    others = [line["worst_loss"] for line in table if line["objective"] != "max"]
    if at_max and others and min(at_max) >= min(others):
        said += " Min-max buys the worst client nothing on held-out rows."
    return said


def _tilt(objective: float | str) -> str:
    return objective if isinstance(objective, str) else f"{objective:g}"


def _nothing_to_hold_out(experiment: Experiment) -> dict[str, Any]:
    """Clients of a handful of rows: a moderate choice, and it is said."""
    l2, objective = experiment.l2_or_default, experiment.objective_or_default
    return {
        "l2": 1e-2 if l2 == "auto" else l2,
        "objective": 1.0 if objective == "auto" else objective,
        "folds": 0,
        "table": [],
        "sentence": f"No client has the {2 * N_FOLDS} training rows that cross-validation needs; "
        "l2 and objective were not chosen but set to a middle value.",
    }
