"""q-FFL (Li et al., 2020): losses raised to a power, so that larger ones count more.

It evens out losses between clients; it knows no groups and does not enforce budgets.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_non_negative, check_params
from fcfl._types import Matrix, Reports, Vector
from fcfl.methods.baselines.iterate import (
    Iterate,
    after_round,
    check_local,
    gradients_or_local,
    local_models,
)
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem.evaluation import Problem, evaluate_point

_TINY = 1e-10  # a loss of zero is taken for this


@dataclass(frozen=True)
class QFFLState(Iterate):
    """The iterate; the request asks for its gradients, or for local models from there."""


@dataclass(frozen=True)
class QFFL:
    r"""Minimise :math:`\sum_k F_k^{q+1} / (q+1)` with the step sizes of q-FedSGD or q-FedAvg.

    Without ``local_epochs`` :math:`u_k = \nabla F_k`, with them
    :math:`u_k = (\theta - \theta_k) / \eta`. With q = 0 and one full-batch step this is FedAvg
    with every client counted once; a large q approaches the smallest maximum of the losses.
    """

    step_size: float = 0.1
    rounds: int = 600
    tolerance: float = 1e-5
    q: float = 5.0
    local_epochs: int = 0
    batch_rows: int = 0
    name: str = "q-ffl"
    state_class: ClassVar[type[QFFLState]] = QFFLState
    enforces_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_local(self, fewest=0)
        check_non_negative("q", self.q)

    def fraction_done(self, state: QFFLState) -> float:
        """Share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> QFFLState:
        """Ask about ``params``."""
        params = check_params(params)
        request = gradients_or_local(self, params, problem)
        return QFFLState(problem, params, request, "running", "", (0,))

    def step(self, state: QFFLState, reports: Reports) -> tuple[QFFLState, RoundInfo]:
        """Take one step, or stop."""
        problem = state.problem
        at = evaluate_point(problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        if self.local_epochs == 0:
            updates = at.loss_grads
        else:
            updates = (at.params - local_models(problem, reports)) / self.step_size
        step, slope = q_step(at.losses, updates, self.q, self.step_size)
        still = bool(np.abs(slope).max() <= self.tolerance)
        what = "The powers' weighted gradient is zero" if still else None
        state = replace(state, params=at.params)
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            onward = at.params - step
            state = replace(state, request=gradients_or_local(self, onward, problem))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)


def q_step(losses: Vector, updates: Matrix, q: float, step_size: float) -> tuple[Vector, Vector]:
    r"""Step :math:`\sum_k \Delta_k / \sum_k h_k`, and the mean update under the powers' weights.

    :math:`\Delta_k = F_k^q u_k` and :math:`h_k = q F_k^{q-1} |u_k|^2 + F_k^q / \eta`, with the
    squared norm. All are divided by the largest :math:`F_k^q`, so that no q under- or overflows.
    """
    floored = np.maximum(losses, _TINY)
    powers = np.exp(q * (np.log(floored) - np.log(floored.max())))
    squared_norms = np.einsum("ij,ij->i", updates, updates)
    h = q * powers / floored * squared_norms + powers / step_size
    total: Vector = powers @ updates
    return total / h.sum(), total / powers.sum()
