"""FedFB (Zeng et al., 2021): FairBatch across clients; the weights of labels within groups move.

It steers the selection rates of all rows together towards each other through losses. It does not
enforce budgets.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_params, check_positive
from fcfl._types import Matrix, Point, RateKind, Reports, Request, Vector
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

from .questions import LossesByLabel, WeightedTraining, cells


@dataclass(frozen=True)
class FedFBState(Iterate):
    """``negatives``: the weight of each group's rows with label 0; with label 1 it is 2 minus that.

    In the paper's notation it is n λ_0z / m_z.
    """

    negatives: Vector


@dataclass(frozen=True)
class FedFB:
    r"""Average models trained on rows of weight :math:`n \lambda_{yz} / m_z`, both starting at 1.

    :math:`\lambda_{0z} \leftarrow \lambda_{0z} + \alpha f_z / \sqrt t`, clipped to
    :math:`[0, 2 m_z / n]`, and :math:`\lambda_{1z} = 2 m_z / n - \lambda_{0z}`. With
    :math:`P_z = (S_{0z} + m_{1z} - S_{1z}) / m_z`, the selection rate as the sums S of losses
    suggest it, :math:`f_z = P_z - P_0`, and group 0 moves against the sum of the others.
    """

    step_size: float = 0.5
    rounds: int = 200
    tolerance: float = 1e-4
    weight_step: float = 0.1
    local_epochs: int = 5
    batch_rows: int = 0
    name: str = "fedfb"
    state_class: ClassVar[type[FedFBState]] = FedFBState
    help: ClassVar[str] = (
        "losses whose weights steer the selection rates of all rows together; does not "
        "enforce budgets"
    )
    enforces_budgets: ClassVar[bool] = False
    over_sites: ClassVar[bool] = False
    rate_kinds: ClassVar[tuple[RateKind, ...]] = ("false_positive", "true_positive")

    def __post_init__(self) -> None:
        check_local(self, fewest=1)
        check_positive("weight_step", self.weight_step)

    def fraction_done(self, state: FedFBState) -> float:
        """Return share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> FedFBState:
        """Start with the same weight for both labels of every group."""
        params = check_params(params)
        negatives = np.ones(cells(problem)[0].size)
        request = self._ask(params, problem, negatives)
        return FedFBState(problem, params, request, "running", "", (0,), negatives)

    def _ask(self, params: Vector, problem: Problem, negatives: Vector) -> Request:
        added = np.zeros((2, problem.n_rates))
        negative, positive = cells(problem)
        added[0, negative], added[1, positive] = negatives - 1.0, 1.0 - negatives
        weights = dict.fromkeys(problem.clients, added)
        local = WeightedTraining(local_training(self, problem), weights)
        return Request((Point(params, extras=(local, LossesByLabel())),))

    def step(self, state: FedFBState, reports: Reports) -> tuple[FedFBState, RoundInfo]:
        """Average the models, then move the weights."""
        problem, taken = state.problem, state.rounds[0] + 1
        at = evaluate_point(problem, state.request.points[0].params, reports)
        onward = row_shares(problem) @ local_models(problem, reports)
        counts, losses = cell_sums(at)
        moves = self.weight_step / np.sqrt(taken) * lean(counts, losses)
        rows = np.maximum(counts.sum(axis=0), 1.0)
        negatives = np.clip(state.negatives + problem.n_rows.sum() / rows * moves, 0.0, 2.0)
        moved = np.abs(onward - at.params).max() / self.step_size
        still = bool(max(moved, np.abs(negatives - state.negatives).max()) <= self.tolerance)
        state = replace(state, params=at.params, negatives=negatives)
        what = "The average and the weights stand" if still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            state = replace(state, request=self._ask(onward, problem, negatives))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)


def cell_sums(at: Evaluation) -> tuple[Matrix, Matrix]:
    """Return rows and summed losses of each label (line) and group (column), over all clients."""
    places = cells(at.problem)
    counts, losses = np.zeros((2, places[0].size)), np.zeros((2, places[0].size))
    for report in at.reports:
        set_losses = report.extras["set_losses"]
        for label, columns in enumerate(places):
            counts[label] += report.group_counts[columns]
            losses[label] += report.group_counts[columns] * set_losses[label, columns]
    return counts, losses


def lean(counts: Matrix, losses: Matrix) -> Vector:
    """Return each group's selection rate minus the first's, which moves against all others.

    A group without rows does not lean.
    """
    rows = counts.sum(axis=0)
    selected = (losses[0] + counts[1] - losses[1]) / np.maximum(rows, 1.0)
    present = np.flatnonzero(rows > 0)
    leans = np.zeros(rows.size)
    if present.size:
        first, others = present[0], present[1:]
        leans[others] = selected[others] - selected[first]
        leans[first] = -leans[others].sum()
    return leans
