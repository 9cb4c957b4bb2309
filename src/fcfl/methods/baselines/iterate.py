"""What the baselines share: the iterate, how a run ends, local training, and disparities."""

from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fcfl._checks import check_count, check_non_negative, check_positive
from fcfl._types import Matrix, Point, Reports, Request, Vector
from fcfl.extras import LocalTraining, check_batch_rows
from fcfl.methods.method import Status
from fcfl.problem.evaluation import Evaluation, Problem

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
