r"""Baselines from the literature that use the same reports: FedAvg, q-FFL, FairReg and AFL.

They do not enforce budgets; use them to compare other objectives. `methods.registry` lists all
methods by name.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from fcfl._checks import check_count, check_non_negative, check_params, check_positive
from fcfl._types import Matrix, Point, Reports, Request, Vector
from fcfl.extras import LocalTraining, check_batch_rows
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.problem import Evaluation, Problem, evaluate_point

_DIVERGED = 10.0  # mean loss in nats that suggests a smaller step; at zero parameters it is log 2
_STEADY = 50  # decay constant of FairReg's steps: a fixed step oscillates at the kink of |D|
_SMALLEST_LOSS = 1e-10  # lower limit on losses, because q-FFL divides by them


@dataclass(frozen=True)
class Iterate:
    """The state of a baseline; ``params`` is the current result."""

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    rounds: tuple[int, ...]


I = TypeVar("I", bound=Iterate)  # noqa: E741


@dataclass(frozen=True)
class Stepping:
    """Options of a method that takes gradient steps.

    ``step_size`` is the constant or initial size of the steps. A run ends after ``rounds``
    exchanges, or when no entry of the method's stationarity residual exceeds ``tolerance``.
    """

    step_size: float = 0.1
    rounds: int = 600
    tolerance: float = 1e-5
    enforces_budgets: ClassVar[bool] = False
    state_class: ClassVar[type[Any]] = Iterate

    def __post_init__(self) -> None:
        check_steps(self)

    def fraction_done(self, state: Any) -> float:
        """Return the share of the rounds used."""
        return float(state.rounds[0] / self.rounds)


@dataclass(frozen=True)
class _Averaging(Stepping):
    """A method that takes one step per round along a combination of the clients' updates.

    An update is the client's gradient. With ``local_epochs`` it is the change of the client's local
    model divided by the step size.
    """

    local_epochs: int = 0
    batch_rows: int = 0

    def __post_init__(self) -> None:
        check_local(self, fewest=0)

    def init(self, params: Vector, problem: Problem) -> Iterate:
        """Request gradients at ``params``, or local models trained from there."""
        params = check_params(params)
        return Iterate(problem, params, self._request(params, problem), "running", "", (0,))

    def step(self, state: Iterate, reports: Reports) -> tuple[Iterate, RoundInfo]:
        """Take one step, or stop."""
        problem, taken = state.problem, state.rounds[0] + 1
        at = evaluate_point(problem, state.request.points[0].params, reports)
        if self.local_epochs == 0:
            updates = at.loss_grads
        else:
            updates = (at.params - local_models(problem, reports)) / self.step_size
        step, slope = self._combine(at, updates)
        is_still = bool(np.abs(slope).max() <= self.tolerance)
        state = replace(state, params=at.params)
        what = self._stationary() if is_still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            state = replace(state, request=self._request(at.params - step, problem))
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)

    def _request(self, params: Vector, problem: Problem) -> Request:
        """Return the request for gradients or local models."""
        if self.local_epochs == 0:
            return Request((Point(params, "gradients"),))
        return Request((Point(params, extras=(local_training(self, problem),)),))

    def _combine(self, at: Evaluation, updates: Matrix) -> tuple[Vector, Vector]:
        """Return the step, and the combined update, which is zero at convergence."""
        raise NotImplementedError

    def _stationary(self) -> str:
        """Return the message for a combined update of zero."""
        raise NotImplementedError


@dataclass(frozen=True)
class FedAvg(_Averaging):
    r"""Average of local models :math:`\theta \leftarrow \sum_k (n_k / n) \theta_k`.

    McMahan et al. (2017). Without ``local_epochs`` every client takes one full-batch step. The
    average is then :math:`\theta - \eta \sum_k (n_k / n) \nabla l_k`, and its fixed point is the
    pooled optimum. Local epochs save rounds, but they shift the fixed point, more for clients with
    different distributions. FedAvg is the reference for the cost of enforcing budgets.
    """

    step_size: float = 0.5
    rounds: int = 1000
    name: str = "fedavg"

    def _combine(self, at: Evaluation, updates: Matrix) -> tuple[Vector, Vector]:
        update: Vector = row_shares(at.problem) @ updates
        return self.step_size * update, update

    def _stationary(self) -> str:
        return "The average is constant" if self.local_epochs else "The mean loss is stationary"


@dataclass(frozen=True)
class QFFL(_Averaging):
    r"""Minimise :math:`\sum_k F_k^{q+1} / (q+1)` with the step sizes of q-FedSGD or q-FedAvg.

    Li et al. (2020). Larger losses have larger weights, which makes the losses of clients more
    similar. The updates are :math:`u_k = \nabla F_k`, or :math:`u_k = (\theta - \theta_k) / \eta`
    with ``local_epochs``. With q = 0 and one full-batch step this is FedAvg with equal weights of
    clients. As q grows, the result approaches the min-max solution.
    """

    q: float = 5.0
    name: str = "q-ffl"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_non_negative("q", self.q)

    def _combine(self, at: Evaluation, updates: Matrix) -> tuple[Vector, Vector]:
        return q_step(at.losses, updates, self.q, self.step_size)

    def _stationary(self) -> str:
        return "The weighted gradient is zero"


@dataclass(frozen=True)
class FairRegState(Iterate):
    """The state of FairReg: ``params`` is the best point so far, ``lowest`` its penalised loss."""

    lowest: float


@dataclass(frozen=True)
class FairReg(Stepping):
    r"""Minimise :math:`\sum_k (l_k + w |D_k|)`, with equal weights of clients.

    The penalty does not bound the disparities. Steps along the negative gradient have the size
    :math:`(\eta / N) / \sqrt{1 + t/50}`. The result is the point with the lowest penalised loss.
    """

    step_size: float = 0.5
    tolerance: float = 1e-4
    weight: float = 1.0
    name: str = "fair-reg"
    state_class: ClassVar[type[Any]] = FairRegState

    def __post_init__(self) -> None:
        super().__post_init__()
        check_non_negative("weight", self.weight)

    def init(self, params: Vector, problem: Problem) -> FairRegState:
        """Request the gradients at ``params``."""
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
        is_still = bool(np.abs(gradient).max() <= self.tolerance)
        what = "The penalised loss is stationary" if is_still else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        size = self.step_size / np.sqrt(1.0 + taken / _STEADY)
        if state.status == "running":
            request = Request((Point(at.params - size * gradient, "gradients"),))
            state = replace(state, request=request)
        return state, describe_round(at, round=taken, stage=1, step=float(size))


@dataclass(frozen=True)
class AFLState(Iterate):
    """The state of AFL: ``params`` is the average iterate, ``weights`` the mixture of clients."""

    weights: Vector


@dataclass(frozen=True)
class AFL(Stepping):
    r"""Saddle point of :math:`\sum_k \lambda_k F_k(\theta)`, :math:`\lambda` on the simplex.

    Mohri et al. (2019) minimise the loss under the worst mixture of clients. A round updates
    :math:`\theta \leftarrow \theta - \gamma_w \sum_k \lambda_k \nabla F_k`, then
    :math:`\lambda \leftarrow` the projection of :math:`\lambda + \gamma_\lambda F`. The result is
    the average of the iterates. Its worst loss converges, unlike that of the last iterate.
    """

    weight_step: float = 0.1
    name: str = "afl"
    state_class: ClassVar[type[Any]] = AFLState

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("weight_step", self.weight_step)

    def init(self, params: Vector, problem: Problem) -> AFLState:
        """Request the gradients at ``params``; start with equal weights of all clients."""
        params = check_params(params)
        n = len(problem.clients)
        request = Request((Point(params, "gradients"),))
        return AFLState(problem, params, request, "running", "", (0,), np.full(n, 1.0 / n))

    def step(self, state: AFLState, reports: Reports) -> tuple[AFLState, RoundInfo]:
        """Take a descent step in the parameters and an ascent step in the mixture; average."""
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        taken = state.rounds[0] + 1
        gradient = state.weights @ at.loss_grads
        is_saddle = np.abs(gradient).max() <= self.tolerance and (
            at.losses.max() - state.weights @ at.losses <= self.tolerance
        )
        average = at.params if is_saddle else state.params + (at.params - state.params) / taken
        weights = project_to_simplex(state.weights + self.weight_step * at.losses)
        state = replace(state, params=average)
        what = "No mixture of clients has a higher loss" if is_saddle else None
        state = after_round(state, at, taken, self.rounds, stationary=what)
        if state.status == "running":
            onward = Point(at.params - self.step_size * gradient, "gradients")
            state = replace(state, request=Request((onward,)), weights=weights)
        return state, describe_round(at, round=taken, stage=1, step=self.step_size)


# --- shared functions -----------------------------------------------------------------------------


def check_steps(method: Any) -> None:
    """Raise `ValueError` for an invalid step size, number of rounds or tolerance."""
    check_positive("step_size", method.step_size)
    check_positive("rounds", method.rounds)
    check_count("rounds", method.rounds)
    check_non_negative("tolerance", method.tolerance)


def check_local(method: Any, *, fewest: int) -> None:
    """Raise `ValueError` for invalid options of steps or local training."""
    check_steps(method)
    for name in ("local_epochs", "batch_rows"):
        check_count(name, getattr(method, name))
    check_batch_rows(method.batch_rows)
    if method.local_epochs < fewest:
        raise ValueError(f"`local_epochs` must be at least {fewest}, got {method.local_epochs!r}.")


def after_round(state: I, at: Evaluation, taken: int, limit: int, *, stationary: str | None) -> I:
    """Set the status: converged with a ``stationary`` message, stopped after ``limit`` rounds."""
    state = replace(state, rounds=(taken,))
    if stationary is not None:
        message = f"{stationary} after {taken} {'round' if taken == 1 else 'rounds'}."
        return replace(state, status="converged", message=message)
    if taken >= limit:
        message, loss = f"All {taken} rounds taken.", float(at.losses.mean())
        if loss > _DIVERGED:
            message += f" The mean loss is {loss:.3g}: try a smaller step size."
        return replace(state, status="stopped", message=message)
    return state


def row_shares(problem: Problem) -> Vector:
    """Return each client's share of all rows."""
    shares: Vector = problem.n_rows / problem.n_rows.sum()
    return shares


def local_training(method: Any, problem: Problem) -> LocalTraining:
    """Return the request for local training before a client's next report."""
    return LocalTraining(
        epochs=method.local_epochs,
        step_size=method.step_size,
        batch_rows=method.batch_rows,
        l2=problem.l2,
    )


def local_models(problem: Problem, reports: Reports) -> Matrix:
    """Return the parameters of the local models, one row per client."""
    return np.array([reports[client][0].extras["local_params"] for client in problem.clients])


def q_step(losses: Vector, updates: Matrix, q: float, step_size: float) -> tuple[Vector, Vector]:
    r"""Return the step :math:`\sum_k \Delta_k / \sum_k h_k`, and the weighted mean update.

    :math:`\Delta_k = F_k^q u_k` and :math:`h_k = q F_k^{q-1} |u_k|^2 + F_k^q / \eta`. All terms are
    divided by the largest :math:`F_k^q` to prevent underflow and overflow.
    """
    floored = np.maximum(losses, _SMALLEST_LOSS)
    powers = np.exp(q * (np.log(floored) - np.log(floored.max())))
    h = q * powers / floored * (updates**2).sum(axis=1) + powers / step_size
    total: Vector = powers @ updates
    return total / h.sum(), total / powers.sum()


def penalised_loss(at: Evaluation, weight: float) -> tuple[float, Vector]:
    r"""Return :math:`\sum_k (l_k + w |D_k|)` and its gradient."""
    found = [disparity_and_gradient(at, client) for client in range(at.losses.size)]
    value = float(at.losses.sum() + weight * sum(disparity for disparity, _ in found))
    gradient: Vector = at.loss_grads.sum(axis=0) + weight * sum(grad for _, grad in found)
    return value, gradient


def disparity_and_gradient(at: Evaluation, client: int) -> tuple[float, Vector]:
    """Return the sum over comparisons of the range of smooth rates, and its gradient."""
    report, total, gradient = at.reports[client], 0.0, np.zeros(at.params.size)
    assert report.rate_grads is not None
    for compared in at.problem.comparisons:
        present = [q for q in compared if report.group_counts[q] > 0]
        if len(present) > 1:
            high = max(present, key=lambda q: report.rates[q])
            low = min(present, key=lambda q: report.rates[q])
            total += float(report.rates[high] - report.rates[low])
            gradient += report.rate_grads[high] - report.rate_grads[low]
    return total, gradient


def project_to_simplex(point: Vector) -> Vector:
    r"""Return the nearest point with non-negative entries that sum to one.

    The point is :math:`\max(v - \tau, 0)` with the :math:`\tau` that makes its sum one.
    """
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, point.size + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    inside = np.maximum(point - excess[last], 0.0)
    shares: Vector = inside / inside.sum()
    return shares
