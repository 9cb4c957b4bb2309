"""FairFed (Ezzeldin et al., 2023): average local models, and trust those near the global disparity.

Clients reweigh their own rows. It usually lowers the global disparity; it does not enforce budgets.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_non_negative, check_params
from fcfl._types import ClientId, Matrix, Point, RateKind, Report, Reports, Request, Vector
from fcfl.methods.baselines import (
    Iterate,
    after_round,
    check_local,
    local_models,
    local_training,
    row_shares,
)
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem import Evaluation, Problem, evaluate_point

from .questions import Positions, WeightedTraining, cells


@dataclass(frozen=True)
class FairFedState(Iterate):
    """``weights`` of the clients, and each one's local weights by label and group."""

    weights: Vector
    set_weights: dict[ClientId, Matrix]


@dataclass(frozen=True)
class FairFed:
    r"""Average :math:`\theta \leftarrow \sum_k w_k \theta_k` of models trained on reweighed rows.

    :math:`w_k \leftarrow w_k - \beta (\Delta_k - \bar\Delta)`, from :math:`n_k / n`, with
    :math:`\Delta_k = |D - D_k|`, the distance of the client's disparity from that of all rows;
    negative weights become zero, and they sum to one. A client without two groups keeps its
    weight. Rows of label y and group g weigh :math:`n_y n_g / (n\, n_{yg})` of the client's own.
    """

    step_size: float = 0.5
    rounds: int = 200
    tolerance: float = 1e-4
    beta: float = 1.0
    local_epochs: int = 5
    batch_rows: int = 0
    name: str = "fairfed"
    state_class: ClassVar[type[FairFedState]] = FairFedState
    help: ClassVar[str] = (
        "reweighted local losses, averaged by how near each client's disparity is to that of "
        "all rows; does not enforce budgets"
    )
    enforces_budgets: ClassVar[bool] = False
    over_sites: ClassVar[bool] = False
    rate_kinds: ClassVar[tuple[RateKind, ...]] = ("false_positive", "true_positive")

    def __post_init__(self) -> None:
        check_local(self, fewest=1)
        check_non_negative("beta", self.beta)

    def fraction_done(self, state: FairFedState) -> float:
        """Return share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> FairFedState:
        """Ask for the counts, on which the local weights rest."""
        params = check_params(params)
        cells(problem)
        request = Request((Point(params),))
        return FairFedState(problem, params, request, "running", "", (0,), row_shares(problem), {})

    def step(self, state: FairFedState, reports: Reports) -> tuple[FairFedState, RoundInfo]:
        """Move the clients' weights and average their models."""
        problem, taken = state.problem, state.rounds[0] + 1
        at = evaluate_point(problem, state.request.points[0].params, reports)
        onward, still = at.params, False
        if not state.set_weights:
            negative, positive = cells(problem)
            state = replace(
                state,
                set_weights={
                    client: reweighing(report, negative, positive)
                    for client, report in zip(problem.clients, at.reports, strict=True)
                },
            )
        else:
            weights = next_trust(state.weights, disparity_distances(at), self.beta)
            onward = weights @ local_models(problem, reports)
            moved = np.abs(onward - at.params).max() / self.step_size
            still = bool(max(moved, np.abs(weights - state.weights).max()) <= self.tolerance)
            state = replace(state, weights=weights)
        state = replace(state, params=at.params)
        what = "The average and its weights stand" if still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            local = WeightedTraining(local_training(self, problem), state.set_weights)
            state = replace(state, request=Request((Point(onward, extras=(local,)),)))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)


def reweighing(report: Report, negative: Positions, positive: Positions) -> Matrix:
    r"""Return :math:`n_y n_g / (n\,n_{yg}) - 1`, added to the weight of each label and group."""
    counts = np.array([report.group_counts[negative], report.group_counts[positive]])
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(counts.sum(), 1.0)
    added = np.zeros((2, report.group_counts.size))
    ratios = np.divide(expected, counts, out=np.ones_like(counts), where=counts > 0)
    added[0, negative], added[1, positive] = ratios - 1.0
    return added


def disparity_distances(at: Evaluation) -> Vector:
    """Return the distance of each client's disparity from that of all rows; nan for none.

    With several pairs of groups, the largest distance counts.
    """
    together = signed_gaps(pooled(at.reports), at.problem)
    distances = np.full(len(at.reports), np.nan)
    for k, report in enumerate(at.reports):
        gaps = np.abs(together - signed_gaps(report, at.problem))
        if np.isfinite(gaps).any():
            distances[k] = np.nanmax(gaps)
    return distances


def signed_gaps(report: Report, problem: Problem) -> Vector:
    """Return, for every compared pair, one group's rate minus the later one's; nan if absent.

    With two groups and one metric this is the one signed disparity.
    """
    rates = np.where(report.group_counts > 0, report.rates, np.nan)
    pairs = [
        (a, b)
        for compared in problem.comparisons
        for i, a in enumerate(compared)
        for b in compared[i + 1 :]
    ]
    return np.array([rates[a] - rates[b] for a, b in pairs])


def pooled(reports: tuple[Report, ...]) -> Report:
    """Return the rates of all clients' rows together."""
    rows = sum(report.group_counts for report in reports)
    selected = sum(report.group_counts * report.rates for report in reports)
    rates = selected / np.maximum(rows, 1.0)
    return replace(reports[0], group_counts=np.asarray(rows), rates=np.asarray(rates))


def next_trust(weights: Vector, distances: Vector, beta: float) -> Vector:
    r"""Return :math:`w_k - \beta(\Delta_k - \bar\Delta)`, negative ones zero, summing to one."""
    known = np.isfinite(distances)
    mean = distances[known].mean() if known.any() else 0.0
    moved = np.maximum(weights - beta * np.where(known, distances - mean, 0.0), 0.0)
    shares: Vector = moved / moved.sum()
    return shares
