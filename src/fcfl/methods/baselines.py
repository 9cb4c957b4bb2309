"""What the baselines share: the iterate, how a run ends, local training, and disparities."""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fcfl._checks import check_count, check_non_negative, check_params, check_positive
from fcfl._types import Matrix, Point, Reports, Request, Vector
from fcfl.extras import LocalTraining, check_batch_rows
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point

_WILD = 10.0  # nats; no model at all has log 2 = 0.69


@dataclass(frozen=True)
class Iterate:
    """What every state has; ``params`` is the model the run would end with now."""

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    rounds: tuple[int, ...]


I = TypeVar("I", bound=Iterate)  # noqa: E741

Positions: TypeAlias = NDArray[np.int64]


class Stepping(Protocol):
    """Options of a method that takes steps."""

    @property
    def step_size(self) -> float: ...  # noqa: D102
    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def tolerance(self) -> float: ...  # noqa: D102


class Local(Stepping, Protocol):
    """Options of a method whose clients may train locally."""

    @property
    def local_epochs(self) -> int: ...  # noqa: D102
    @property
    def batch_rows(self) -> int: ...  # noqa: D102


def check_steps(method: Stepping) -> None:
    """Refuse a step, a number of rounds or a tolerance that makes no sense."""
    check_positive("step_size", method.step_size)
    check_positive("rounds", method.rounds)
    check_count("rounds", method.rounds)
    check_non_negative("tolerance", method.tolerance)


def check_local(method: Local, *, fewest: int) -> None:
    """Refuse local training that makes no sense."""
    check_steps(method)
    for name in ("local_epochs", "batch_rows"):
        check_count(name, getattr(method, name))
    check_batch_rows(method.batch_rows)
    if method.local_epochs < fewest:
        raise ValueError(f"`local_epochs` must be at least {fewest}, got {method.local_epochs!r}.")


def after_round(state: I, at: Evaluation, taken: int, most: int, *, stationary: str | None) -> I:
    """Converged when ``stationary`` names what is, stopped after ``most`` rounds, else running."""
    state = replace(state, rounds=(taken,))
    if stationary is not None:
        message = f"{stationary} after {taken} {'round' if taken == 1 else 'rounds'}."
        return replace(state, status="converged", message=message)
    if taken >= most:
        message, loss = f"All {taken} rounds taken.", float(at.losses.mean())
        if loss > _WILD:
            message += f" The mean loss is {loss:.3g}: try a smaller step size."
        return replace(state, status="stopped", message=message)
    return state


def row_shares(problem: Problem) -> Vector:
    """Each client's share of all rows."""
    shares: Vector = problem.n_rows / problem.n_rows.sum()
    return shares


def local_training(method: Local, problem: Problem) -> LocalTraining:
    """What a client is to do before the next answer."""
    return LocalTraining(
        epochs=method.local_epochs,
        step_size=method.step_size,
        batch_rows=method.batch_rows,
        l2=problem.l2,
    )


def gradients_or_local(method: Local, params: Vector, problem: Problem) -> Request:
    """Ask for gradients at ``params``, or with local epochs for the models trained from there."""
    if method.local_epochs == 0:
        return Request((Point(params, "gradients"),))
    return Request((Point(params, extras=(local_training(method, problem),)),))


def local_models(problem: Problem, reports: Reports) -> Matrix:
    """Where each client ended, one row per client."""
    return np.array([reports[client][0].extras["local_params"] for client in problem.clients])


def project_to_simplex(point: Vector) -> Vector:
    r"""The nearest point with non-negative entries that sum to one.

    :math:`\max(v - \tau, 0)` with the one :math:`\tau` that makes the sum one.
    """
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, point.size + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    inside = np.maximum(point - excess[last], 0.0)
    shares: Vector = inside / inside.sum()
    return shares


def disparity_and_gradient(at: Evaluation, client: int) -> tuple[float, Vector]:
    """Sum over comparisons of the largest minus the smallest smooth rate, and its gradient."""
    report, total, gradient = at.reports[client], 0.0, np.zeros(at.params.size)
    if report.rate_grads is None:
        raise ValueError("This point was asked for values only; it has no gradients.")
    for compared in at.problem.comparisons:
        present = [q for q in compared if report.group_counts[q] > 0]
        if len(present) > 1:
            high = max(present, key=lambda q: report.rates[q])
            low = min(present, key=lambda q: report.rates[q])
            total += float(report.rates[high] - report.rates[low])
            gradient += report.rate_grads[high] - report.rate_grads[low]
    return total, gradient


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
