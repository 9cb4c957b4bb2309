"""The problem a method solves, and one point of it as the server sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcfl._types import ClientId, Matrix, RateId, Report, Reports, Vector, brief_repr, curvature_sum
from fcfl.problem.constraints import Constraints, build_constraints
from fcfl.rules import Rule


@dataclass(frozen=True)
class Problem:
    r"""Clients, their row counts, the constraints, and the L2 weight added to every loss.

    What a method solves is built of these: minimise some function of the losses
    :math:`l_k(\theta) + \frac{\lambda}{2} |\theta|^2` subject to :math:`A r(\theta) \le b`.

    ``comparisons`` are the positions of rates that some rule compares with each other, budget or
    not. ``references`` are rows disclosed to the server, for the one method that needs them.
    """

    clients: tuple[ClientId, ...]
    n_rows: Vector
    n_rates: int
    constraints: Constraints
    l2: float = 0.0
    rates: tuple[RateId, ...] = ()
    comparisons: tuple[tuple[int, ...], ...] = ()
    references: Matrix | None = None

    __repr__ = brief_repr


def build_problem(
    rules: Sequence[Rule],
    rates: Sequence[RateId],
    reports: Reports,
    *,
    l2: float = 0.0,
    min_group_rows: float | None = 1.0,
) -> tuple[Problem, tuple[str, ...]]:
    """Build the problem from the rules and one report per client (only its counts are used).

    Also returns a sentence for every group that is left out because it has too few rows.
    """
    clients = tuple(reports)
    counts = np.array([reports[client][0].group_counts for client in clients])
    counts = counts.reshape(len(clients), len(rates))
    constraints, notes = build_constraints(rules, clients, rates, counts, min_group_rows)
    n_rows = np.array([reports[client][0].n_rows for client in clients])
    rates, compared = tuple(rates), compared_rates(rules, rates)
    return Problem(clients, n_rows, len(rates), constraints, l2, rates, compared), notes


def compared_rates(rules: Sequence[Rule], rates: Sequence[RateId]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the rates that some rule compares, each comparison once."""
    kinds = dict.fromkeys((kind, rule.attribute) for rule in rules for kind in rule.kinds)
    return tuple(
        tuple(i for i, rate in enumerate(rates) if (rate.kind, rate.attribute) == key)
        for key in kinds
    )


@dataclass(frozen=True)
class Evaluation:
    """All clients' losses, violations and, if they were asked for, gradients at one point.

    ``reports`` are in the order of ``problem.clients``. Everything is computed when it is first
    used and kept: a method reads the same losses many times, and often no gradient at all.
    ``curvature_sum`` is there if the clients' curvatures were added up on the way.
    """

    problem: Problem
    params: Vector
    reports: tuple[Report, ...]
    curvature_sum: Matrix | None = None

    __repr__ = brief_repr

    @cached_property
    def losses(self) -> Vector:
        """Loss of each client, the L2 term included."""
        losses = np.array([report.loss for report in self.reports])
        losses += 0.5 * self.problem.l2 * (self.params @ self.params)
        return losses

    @cached_property
    def loss_grads(self) -> Matrix:
        """Gradient of each client's loss, of shape (clients, params)."""
        return np.array([self.loss_grad(client) for client in range(len(self.reports))])

    @cached_property
    def rates(self) -> Vector:
        """Smooth rates of all clients, stacked client by client: (clients · rates,)."""
        return np.concatenate([report.rates for report in self.reports])

    @cached_property
    def violations(self) -> Vector:
        """Violation of every row, of shape (rows,), feasible where ``<= 0``."""
        return self.problem.constraints.violations(self.rates)

    @cached_property
    def worst_rows(self) -> NDArray[np.int64]:
        """The row that decides each block."""
        return self.problem.constraints.worst_rows(self.violations)

    @property
    def block_violations(self) -> Vector:
        """Violation of each block: the paper's disparity minus budget."""
        return self.violations[self.worst_rows]

    def violation_grads(self, rows: NDArray[np.int64]) -> Matrix:
        """Return gradients of the violations of ``rows``; only the rates they touch are read."""
        return self.problem.constraints.gradients(self._rate_grad, rows, self.params.size)

    def _rate_grad(self, column: int) -> Vector:
        client, rate = divmod(column, self.problem.n_rates)
        grads = self.reports[client].rate_grads
        if grads is None:
            raise ValueError("This point was asked for values only; it has no gradients.")
        gradient: Vector = grads[rate]
        return gradient

    def loss_grad(self, client: int) -> Vector:
        """Return the gradient of one client's loss."""
        grad = self.reports[client].loss_grad
        if grad is None:
            raise ValueError("This point was asked for values only; it has no gradients.")
        return grad + self.problem.l2 * self.params

    def slopes(self, direction: Vector) -> tuple[Vector, Vector]:
        """Return derivatives of all losses and of all violations along ``direction``.

        Without the gradients of the rows themselves: one product per client, however many rows.
        """
        losses = np.array([report.loss_grad @ direction for report in self.reports])  # type: ignore[operator]
        losses += self.problem.l2 * (self.params @ direction)
        rates = np.concatenate([report.rate_grads @ direction for report in self.reports])  # type: ignore[operator]
        return losses, self.problem.constraints.apply(rates)

    @property
    def curvature(self) -> Matrix:
        """The sum of the clients' parts of the Lagrangian's Hessian, of shape (params, params)."""
        if self.curvature_sum is not None:
            return self.curvature_sum
        total = np.zeros((self.params.size, self.params.size))
        for report in self.reports:
            if report.curvature is None:
                raise ValueError("This point was asked for no curvature; it has none.")
            total += report.curvature
        return total

    @property
    def largest_violation(self) -> float:
        """The largest violation, minus infinity without constraints."""
        return float(self.violations.max()) if self.violations.size else -np.inf


def evaluate_point(
    problem: Problem, params: Vector, reports: Reports, index: int = 0
) -> Evaluation:
    """Return the evaluation of point ``index`` of the request from the reports."""
    own = tuple(reports[client][index] for client in problem.clients)
    return Evaluation(problem, params, own, curvature_sum(reports, index))


def smooth_max(values: ArrayLike, temperature: float) -> tuple[float, Vector]:
    r"""Return the smooth maximum of ``values`` (eq. 10 of the paper) and its gradient.

    .. math:: \hat m_\delta(v) = \delta \log \sum_i e^{v_i / \delta}
              \in [\max_i v_i,\; \max_i v_i + \delta \log n]

    The gradient is ``softmax(values / temperature)``, a point on the simplex. The maximum of no
    values is minus infinity.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        return -np.inf, np.zeros(0)
    largest = values.max()
    terms = np.exp((values - largest) / temperature)  # at most 1, so nothing overflows
    total = terms.sum()
    return float(largest + temperature * np.log(total)), terms / total
