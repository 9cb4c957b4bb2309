"""FedAvg with one full-batch step a round: gradient descent on the mean loss over all rows.

It knows no budgets; it is the reference that shows what keeping them costs.
"""

from dataclasses import dataclass, replace

import numpy as np

from fcfl._checks import check_count, check_non_negative, check_params, check_positive
from fcfl._types import Point, Reports, Request, Vector
from fcfl.server.method import RoundInfo, Status, describe_round
from fcfl.server.problem import Problem, evaluate_point


@dataclass(frozen=True)
class FedAvgState:
    """The iterate; the request asks for its gradients."""

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    rounds: tuple[int, ...]


@dataclass(frozen=True)
class FedAvg:
    r"""Step :math:`\theta \leftarrow \theta - \eta \sum_k (n_k / n) \nabla l_k`.

    Stops when the gradient's largest entry is at most ``tolerance``.
    """

    step_size: float = 0.5
    rounds: int = 1000
    tolerance: float = 1e-5
    name: str = "fedavg"

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("rounds", self.rounds)
        check_count("rounds", self.rounds)
        check_non_negative("tolerance", self.tolerance)

    def fraction_done(self, state: FedAvgState) -> float:
        """Share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> FedAvgState:
        """Ask for the gradients at ``params``."""
        params = check_params(params)
        request = Request((Point(params, "gradients"),))
        return FedAvgState(problem, params, request, "running", "", (0,))

    def step(self, state: FedAvgState, reports: Reports) -> tuple[FedAvgState, RoundInfo]:
        """Take one step, or stop."""
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        gradient = (state.problem.n_rows / state.problem.n_rows.sum()) @ at.loss_grads
        state = replace(state, params=at.params, rounds=(taken,))
        if np.abs(gradient).max() <= self.tolerance:
            message = f"The mean loss is stationary after {taken} rounds."
            state = replace(state, status="converged", message=message)
        elif taken >= self.rounds:
            state = replace(state, status="stopped", message=f"All {taken} rounds taken.")
        else:
            onward = at.params - self.step_size * gradient
            state = replace(state, request=Request((Point(onward, "gradients"),)))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)
