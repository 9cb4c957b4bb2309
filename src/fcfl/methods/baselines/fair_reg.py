"""FedAvg with a disparity penalty: the sum of the clients' losses and weighted disparities.

A penalty is a price, not a bound: it does not enforce budgets.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_non_negative, check_params
from fcfl._types import Point, Reports, Request, Vector
from fcfl.methods.baselines.iterate import Iterate, after_round, check_steps, disparity_and_gradient
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point

_STEADY = 50  # rounds until steps shrink: at the kink of |D| a fixed step would rattle for ever


@dataclass(frozen=True)
class FairRegState(Iterate):
    """``params`` is the best point so far, ``lowest`` its penalised loss."""

    lowest: float


@dataclass(frozen=True)
class FairReg:
    r"""Minimise :math:`\sum_k (l_k + w |D_k|)`, each client once whatever its rows.

    Steps :math:`\eta / N` along the negative gradient, shrinking with
    :math:`1/\sqrt{1 + t/50}`; the point with the lowest penalised loss is the result.
    """

    step_size: float = 0.5
    rounds: int = 600
    tolerance: float = 1e-4
    weight: float = 1.0
    name: str = "fair-reg"
    state_class: ClassVar[type[FairRegState]] = FairRegState
    enforces_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_steps(self)
        check_non_negative("weight", self.weight)

    def fraction_done(self, state: FairRegState) -> float:
        """Share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> FairRegState:
        """Ask for the gradients at ``params``."""
        params = check_params(params)
        request = Request((Point(params, "gradients"),))
        return FairRegState(problem, params, request, "running", "", (0,), np.inf)

    def step(self, state: FairRegState, reports: Reports) -> tuple[FairRegState, RoundInfo]:
        """Take one step, or stop."""
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        value, gradient = penalised_loss(at, self.weight)
        gradient = gradient / at.losses.size
        if value < state.lowest:
            state = replace(state, params=at.params, lowest=value)
        still = bool(np.abs(gradient).max() <= self.tolerance)
        what = "The penalised loss is stationary" if still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        size = self.step_size / np.sqrt(1.0 + taken / _STEADY)
        if state.status == "running":
            request = Request((Point(at.params - size * gradient, "gradients"),))
            state = replace(state, request=request)
        return state, describe_round(at, round=taken, stage=1, step=float(size))


def penalised_loss(at: Evaluation, weight: float) -> tuple[float, Vector]:
    r""":math:`\sum_k (l_k + w |D_k|)` and its gradient."""
    found = [disparity_and_gradient(at, client) for client in range(at.losses.size)]
    value = float(at.losses.sum() + weight * sum(disparity for disparity, _ in found))
    gradient: Vector = at.loss_grads.sum(axis=0) + weight * sum(grad for _, grad in found)
    return value, gradient
