"""FedAvg (McMahan et al., 2017): the mean loss over all rows, by local or full-batch steps.

It does not enforce budgets; it is the reference that shows what enforcing them costs.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_params
from fcfl._types import Reports, Vector
from fcfl.methods.baselines.iterate import (
    Iterate,
    after_round,
    check_local,
    gradients_or_local,
    local_models,
    row_shares,
)
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem.evaluation import Problem, evaluate_point


@dataclass(frozen=True)
class FedAvgState(Iterate):
    """The iterate; the request asks for its gradients, or for local models from there."""


@dataclass(frozen=True)
class FedAvg:
    r"""Average of local models :math:`\theta \leftarrow \sum_k (n_k / n) \theta_k`.

    Without ``local_epochs`` every client takes one full-batch step, so that the average is
    :math:`\theta - \eta \sum_k (n_k / n) \nabla l_k` and the fixed point the pooled optimum. Local
    epochs save rounds and move the fixed point away from it, the more the clients differ. Stops
    when the step divided by its size has no entry above ``tolerance``.
    """

    step_size: float = 0.5
    rounds: int = 1000
    tolerance: float = 1e-5
    local_epochs: int = 0
    batch_rows: int = 0
    name: str = "fedavg"
    state_class: ClassVar[type[FedAvgState]] = FedAvgState
    enforces_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_local(self, fewest=0)

    def fraction_done(self, state: FedAvgState) -> float:
        """Share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> FedAvgState:
        """Ask about ``params``."""
        params = check_params(params)
        request = gradients_or_local(self, params, problem)
        return FedAvgState(problem, params, request, "running", "", (0,))

    def step(self, state: FedAvgState, reports: Reports) -> tuple[FedAvgState, RoundInfo]:
        """Take one step, or stop."""
        problem = state.problem
        at = evaluate_point(problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        if self.local_epochs == 0:
            update = row_shares(problem) @ at.loss_grads
        else:
            update = (
                at.params - row_shares(problem) @ local_models(problem, reports)
            ) / self.step_size
        still = bool(np.abs(update).max() <= self.tolerance)
        what = "The mean loss is stationary" if self.local_epochs == 0 else "The average stands"
        state = replace(state, params=at.params)
        state = after_round(state, at, taken, self.rounds, stationary=what if still else None)
        if state.status == "running":
            onward = at.params - self.step_size * update
            state = replace(state, request=gradients_or_local(self, onward, problem))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)
