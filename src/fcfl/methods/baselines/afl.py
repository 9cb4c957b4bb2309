"""AFL (Mohri et al., 2019): the worst mixture of clients, by descent and ascent.

It bounds the loss under any mixture of the clients; it knows no groups and enforces no budget.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_params, check_positive
from fcfl._types import Point, Reports, Request, Vector
from fcfl.methods.baselines.iterate import Iterate, after_round, check_steps, project_to_simplex
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem.evaluation import Problem, evaluate_point


@dataclass(frozen=True)
class AFLState(Iterate):
    """``params`` is the average of the iterates, ``weights`` the mixture of clients."""

    weights: Vector


@dataclass(frozen=True)
class AFL:
    r"""Saddle point of :math:`\sum_k \lambda_k F_k(\theta)`, :math:`\lambda` on the simplex.

    :math:`\theta \leftarrow \theta - \gamma_w \sum_k \lambda_k \nabla F_k`, then
    :math:`\lambda \leftarrow` the projection of :math:`\lambda + \gamma_\lambda F`. The result is
    the average of the iterates, whose worst loss converges; the last iterate's need not.
    """

    step_size: float = 0.1
    weight_step: float = 0.1
    rounds: int = 600
    tolerance: float = 1e-5
    name: str = "afl"
    state_class: ClassVar[type[AFLState]] = AFLState
    enforces_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_steps(self)
        check_positive("weight_step", self.weight_step)

    def fraction_done(self, state: AFLState) -> float:
        """Share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> AFLState:
        """Every client counts the same, and the gradients at ``params`` are asked for."""
        params = check_params(params)
        n = len(problem.clients)
        request = Request((Point(params, "gradients"),))
        return AFLState(problem, params, request, "running", "", (0,), np.full(n, 1.0 / n))

    def step(self, state: AFLState, reports: Reports) -> tuple[AFLState, RoundInfo]:
        """Descend in the parameters, ascend in the mixture, average."""
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        gradient = state.weights @ at.loss_grads
        saddle = np.abs(gradient).max() <= self.tolerance and (
            at.losses.max() - state.weights @ at.losses <= self.tolerance
        )
        average = at.params if saddle else state.params + (at.params - state.params) / taken
        weights = project_to_simplex(state.weights + self.weight_step * at.losses)
        state = replace(state, params=average)
        what = "No mixture of clients has a lower loss" if saddle else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            onward = Point(at.params - self.step_size * gradient, "gradients")
            state = replace(state, request=Request((onward,)), weights=weights)
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)
