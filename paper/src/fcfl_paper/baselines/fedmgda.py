"""FedMGDA+ (Hu et al., 2022): a direction that lowers every client's loss, near the row shares.

It stops where no such direction is left; it knows no groups and does not enforce budgets.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import clarabel
import numpy as np
from scipy import sparse

from fcfl._checks import check_non_negative, check_params
from fcfl._types import Matrix, Point, Reports, Request, Vector
from fcfl.errors import SolverError
from fcfl.methods.baselines import Iterate, after_round, check_steps, row_shares
from fcfl.methods.method import RoundInfo, describe_round
from fcfl.problem import Problem, evaluate_point

_SHORTEST = 1e-10  # a step below this share of `step_size` counts as none
_ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve
_SOLVED = ("Solved", "AlmostSolved")


@dataclass(frozen=True)
class FedMGDAState(Iterate):
    """``params`` is the last accepted point; the request is about the step tried from it.

    ``pull`` weighs the losses so that ``direction`` is the gradient of their sum.
    """

    direction: Vector
    pull: Vector
    value: float
    size: float


@dataclass(frozen=True)
class FedMGDA:
    r"""Step along the shortest :math:`d = \sum_k \lambda_k u_k`, :math:`u_k = g_k / |g_k|`.

    :math:`\lambda` is on the simplex and within ``freedom`` of the row shares :math:`n_k / n`: 0 is
    FedAvg on normalised gradients, 1 is MGDA. A step must lower :math:`\sum_k \lambda_k l_k/|g_k|`,
    else it is halved. A gradient no longer than ``tolerance`` counts as zero and stays so: that
    client cannot be helped further. Stops at a Pareto-stationary point, :math:`|d| \le`
    ``tolerance``.
    """

    step_size: float = 1.0
    rounds: int = 600
    tolerance: float = 1e-3
    freedom: float = 0.1
    name: str = "fedmgda"
    state_class: ClassVar[type[FedMGDAState]] = FedMGDAState
    help: ClassVar[str] = (
        "every client's loss, until one could only gain at another's cost; does not enforce budgets"
    )
    enforces_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_steps(self)
        check_non_negative("freedom", self.freedom)

    def fraction_done(self, state: FedMGDAState) -> float:
        """Return share of the rounds taken."""
        return state.rounds[0] / self.rounds

    def init(self, params: Vector, problem: Problem) -> FedMGDAState:
        """Ask for the gradients at ``params``."""
        params = check_params(params)
        request = Request((Point(params, "gradients"),))
        none = np.zeros(len(problem.clients))
        zero = np.zeros(params.size)
        return FedMGDAState(
            problem, params, request, "running", "", (0,), zero, none, np.inf, self.step_size
        )

    def step(self, state: FedMGDAState, reports: Reports) -> tuple[FedMGDAState, RoundInfo]:
        """Accept or halve the step, and choose the next direction."""
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        squared_norm = float(state.direction @ state.direction)
        wanted = state.value - _ARMIJO * state.size * squared_norm
        still, tried = False, state.size
        if state.pull @ at.losses > wanted:
            state, note = replace(state, size=state.size / 2), "refused"
            still = state.size < _SHORTEST * self.step_size
        else:
            norms = np.linalg.norm(at.loss_grads, axis=1)
            inverse = np.where(norms > self.tolerance, 1.0 / np.maximum(norms, 1e-300), 0.0)
            units = at.loss_grads * inverse[:, None]
            weights = common_descent(units, row_shares(at.problem), self.freedom)
            direction, pull = weights @ units, weights * inverse
            still, note = bool(np.linalg.norm(direction) <= self.tolerance), "accepted"
            state = replace(
                state, params=at.params, direction=direction, pull=pull,
                value=float(pull @ at.losses), size=min(2.0 * state.size, self.step_size),
            )  # fmt: skip
        what = "No direction lowers all losses: Pareto-stationary" if still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            onward = Point(state.params - state.size * state.direction, "gradients")
            state = replace(state, request=Request((onward,)))
        return state, describe_round(at, round=taken, stage=1, step=tried, note=note)


def common_descent(units: Matrix, shares: Vector, freedom: float) -> Vector:
    r"""Return weights of the shortest :math:`\sum_k \lambda_k u_k` near the shares."""
    low, high = np.maximum(shares - freedom, 0.0), np.minimum(shares + freedom, 1.0)
    return shortest_mixture(units @ units.T, low, high)


def shortest_mixture(gramian: Matrix, low: Vector, high: Vector) -> Vector:
    r"""Minimise :math:`\lambda^T G \lambda` over the simplex within ``low`` and ``high``."""
    n = low.size
    if n == 1:
        return np.ones(1)
    if not (high > low).any():
        return low
    settings = clarabel.DefaultSettings()
    settings.verbose = settings.presolve_enable = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    eye = sparse.eye_array(n, format="csc")
    A = sparse.csc_matrix(sparse.vstack([np.ones((1, n)), eye, -eye], format="csc"))
    bounds = np.concatenate([[1.0], high, -low])
    P = sparse.csc_matrix(np.triu(gramian))
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    found = clarabel.DefaultSolver(P, np.zeros(n), A, bounds, cones, settings).solve()
    if str(found.status) not in _SOLVED:
        raise SolverError(f"The mixture of {n} gradients was not found: {found.status}.")
    weights = np.clip(np.array(found.x), low, high)
    shares: Vector = weights / weights.sum()
    return shares
