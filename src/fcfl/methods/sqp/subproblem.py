r"""One step's quadratic programme: what a stage minimises and keeps, linearised at a point.

.. math:: \min_{d,t,s}\; t + \tfrac12 d^T B d + \rho \sum_j s_j \quad\text{s.t.}\quad
          a_i + \nabla a_i \cdot d \le t,\; b_j + \nabla b_j \cdot d \le s_j,\; s_j \ge 0

The rows ``a`` are objectives, the rows ``b`` constraints, feasible when ``<= 0``. It is always
solvable; ``s`` tells by how much the linearised constraints cannot be met.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Matrix, Vector
from fcfl.methods.smooth_max import smooth_max
from fcfl.methods.sqp.augmented import Rows
from fcfl.methods.sqp.dual_qp import solve_dual_qp
from fcfl.methods.sqp.quasi_newton import Curvature
from fcfl.problem.evaluation import Evaluation

# Rows of each kind in the first working set; more enter when they are violated. Few rows are active
# at a solution, and the dual solver's time grows fast with their number.
_FIRST_ROWS = 64

# By how much a row outside the working set may be violated: below the accuracy of the dual solver,
# so that a result does not depend on which rows it began with.
_ROW_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Target:
    """What a stage minimises and what it keeps.

    Without ``temperature`` it minimises the largest loss; with one, the smooth maximum (infinite:
    the mean). ``caps`` are losses that no client may exceed; empty when there are none.
    """

    temperature: float | None
    caps: Vector

    def loss_weights(self, losses: Vector) -> Vector:
        """Gradient of the smooth objective with respect to the losses, on the simplex."""
        if self.temperature == np.inf:
            return np.full(losses.size, 1.0 / losses.size)
        assert self.temperature is not None
        return smooth_max(losses, self.temperature)[1]

    def objectives(self, losses: Vector) -> Vector:
        """The objective rows ``a``: all losses for the maximum, else the one smooth value."""
        if self.temperature is None:
            return losses
        if self.temperature == np.inf:
            return np.array([losses.mean()])
        # The mean of N equal losses is each of them: shifted so that any temperature says so.
        value = smooth_max(losses, self.temperature)[0]
        return np.array([value - self.temperature * np.log(losses.size)])

    def constraints(self, losses: Vector, violations: Vector) -> Vector:
        """The constraint rows ``b``: caps first, then budgets."""
        return np.concatenate([losses - self.caps, violations]) if self.caps.size else violations

    def rows(self, at: Evaluation) -> Rows:
        """Both kinds of rows: what the line search judges a point by."""
        return self.objectives(at.losses), self.constraints(at.losses, at.violations)

    def linearised(self, at: Evaluation, direction: Vector) -> Rows:
        """Both kinds of rows after a step ``direction``, to first order."""
        losses, violations = at.slopes(direction)
        change = losses
        if self.temperature is not None:
            change = np.array([self.loss_weights(at.losses) @ losses])
        kept = np.concatenate([losses, violations]) if self.caps.size else violations
        a, b = self.rows(at)
        return a + change, b + kept

    def gradients(
        self, at: Evaluation, objective: NDArray[np.int64], constraint: NDArray[np.int64]
    ) -> tuple[Matrix, Matrix]:
        """Gradients of the chosen rows of both kinds; ``constraint`` is ascending."""
        n_params, n_caps = at.params.size, self.caps.size
        if self.temperature is None:
            objectives = [at.loss_grad(int(k)) for k in objective]
        else:
            objectives = [self.loss_weights(at.losses) @ at.loss_grads for _ in objective]
        capped = [at.loss_grad(int(k)) for k in constraint if k < n_caps]
        budgets = at.violation_grads(constraint[constraint >= n_caps] - n_caps)
        kept = np.vstack([np.array(capped).reshape(-1, n_params), budgets]) if capped else budgets
        return np.array(objectives).reshape(-1, n_params), kept


@dataclass(frozen=True)
class Step:
    r"""A solution: the direction, the weights of all rows, and what the linear model predicts.

    ``objective_decrease`` is how much the largest objective falls to first order,
    ``violation_decreases`` how much each violation does (caps first, then budgets),
    ``infeasibility`` the sum of the violations that remain. The weights are the programme's
    multipliers: those of the objectives are on the simplex, those of the constraints between 0 and
    the penalty; ``lagrangian_grad`` is the sum of all gradients under them, which is
    :math:`-B d`.
    """

    direction: Vector
    objective_weights: Vector
    constraint_weights: Vector
    lagrangian_grad: Vector
    objective_decrease: float
    violation_decreases: Vector
    infeasibility: float

    @property
    def violation_decrease(self) -> float:
        """How much the sum of the violations falls."""
        return float(self.violation_decreases.sum())

    def merit_decrease(self, penalty: float) -> float:
        """How much the linearised merit falls under ``penalty``."""
        return self.objective_decrease + penalty * self.violation_decrease

    def is_sound(self, penalty: float) -> bool:
        """Whether the merit falls by half of ``d · B d`` or more, as with any solution it does.

        It does not where a nearly singular curvature has left the step to rounding. A quarter is
        asked for, so that the solver's tolerance is not mistaken for that.
        """
        bend = -float(self.lagrangian_grad @ self.direction)
        return self.merit_decrease(penalty) >= 0.25 * bend - _ROW_TOLERANCE * (1.0 + penalty)


def solve_step(at: Evaluation, target: Target, curvature: Curvature, penalty: float) -> Step:
    r"""The programme's solution, by working sets: a row enters only if it would be violated.

    Its dual has one variable per row, x on the simplex for ``a`` and :math:`0 \le x \le \rho` for
    ``b``; the step is :math:`d = -B^{-1} J^T x` with J the gradients of both kinds of rows.

    Most clients are neither the worst nor at their budget, so few rows are ever gathered. The
    result is that of the programme with all rows, because no row left out is violated by it.
    """
    a = target.objectives(at.losses)
    b = target.constraints(at.losses, at.violations)
    objective, constraint = _largest(a), _largest(b)
    rows = _gather(target, at, curvature, objective, constraint)
    while True:
        values = np.concatenate([a[objective], b[constraint]])
        upper = np.full(constraint.size, penalty)
        x = solve_dual_qp(np.vstack(rows.whitened), values, objective.size, upper)
        x_objective, x_constraint = x[: objective.size], x[objective.size :]
        lagrangian_grad = x_objective @ rows.plain[0] + x_constraint @ rows.plain[1]
        direction = -curvature.solve(lagrangian_grad)
        after_a, after_b = target.linearised(at, direction)
        worse = _outside(after_a > after_a[objective].max() + _ROW_TOLERANCE, objective)
        broken = _outside(after_b > _ROW_TOLERANCE, constraint)
        if worse.size == 0 and broken.size == 0:
            break
        most = max(_FIRST_ROWS, x.size)
        worse, broken = _worst(worse, after_a, most), _worst(broken, after_b, most)
        rows = rows.with_more(_gather(target, at, curvature, worse, broken))
        objective = np.concatenate([objective, worse])
        constraint = np.concatenate([constraint, broken])
    left = np.maximum(after_b, 0.0)
    return Step(
        direction,
        _spread(x_objective, objective, a.size),
        _spread(x_constraint, constraint, b.size),
        lagrangian_grad,
        float(a.max() - after_a.max()),
        np.maximum(b, 0.0) - left,
        float(left.sum()),
    )


@dataclass(frozen=True)
class _Rows:
    """Gradients of the working set, plain and whitened: objective rows and constraint rows."""

    plain: tuple[Matrix, Matrix]
    whitened: tuple[Matrix, Matrix]

    def with_more(self, more: "_Rows") -> "_Rows":
        return _Rows(_stack(self.plain, more.plain), _stack(self.whitened, more.whitened))


def _stack(first: tuple[Matrix, Matrix], second: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    return np.vstack([first[0], second[0]]), np.vstack([first[1], second[1]])


def _gather(
    target: Target,
    at: Evaluation,
    curvature: Curvature,
    objective: NDArray[np.int64],
    constraint: NDArray[np.int64],
) -> _Rows:
    """Gradients of the chosen rows, plain and whitened; ``constraint`` is ascending."""
    plain = target.gradients(at, objective, constraint)
    return _Rows(plain, (curvature.whiten(plain[0]), curvature.whiten(plain[1])))


def _largest(values: Vector) -> NDArray[np.int64]:
    """The rows to begin with, ascending: all if there are few, else the largest."""
    if values.size <= _FIRST_ROWS:
        return np.arange(values.size)
    return np.sort(np.argsort(-values, kind="stable")[:_FIRST_ROWS])


def _outside(wanted: NDArray[np.bool_], inside: NDArray[np.int64]) -> NDArray[np.int64]:
    """The wanted rows that are not in the working set yet."""
    wanted[inside] = False
    return np.flatnonzero(wanted)


def _worst(rows: NDArray[np.int64], values: Vector, most: int) -> NDArray[np.int64]:
    """At most ``most`` of the rows, those with the largest values, ascending."""
    return np.sort(rows[np.argsort(-values[rows], kind="stable")[:most]])


def _spread(weights: Vector, rows: NDArray[np.int64], size: int) -> Vector:
    """The weights of all rows: zero for those outside the working set."""
    full = np.zeros(size)
    full[rows] = weights
    return full


def kkt_residual(at: Evaluation, target: Target, step: Step) -> float:
    r"""How far the point is from optimal under the step's weights x; zero exactly at a KKT point.

    .. math:: \max\Big\{ \frac1s \max\big(|\nabla L|_\infty,\; \max_i a_i - x_a^T a,\;
              x_b^T (-b)_+ \big),\; \max_j (b_j)_+ \Big\}

    In words: the Lagrangian's gradient, the gap between the objective and its weighted rows, the
    weights of inactive constraints times their slack, and the largest violation. The first three
    are those of the Lagrangian in which the losses' weights sum to one: with caps they sum to s,
    which may be twenty and more, while gradients are known no better for it. A network in float32
    did not get below 1e-5 without the division (docs/networks.md).
    """
    a = target.objectives(at.losses)
    b = target.constraints(at.losses, at.violations)
    on_losses = 1.0 + step.constraint_weights[: target.caps.size].sum()
    gap = a.max() - step.objective_weights @ a
    slack = step.constraint_weights @ np.maximum(-b, 0.0)
    violation = b.max(initial=0.0)
    steepest = np.abs(step.lagrangian_grad).max()
    return float(max(max(steepest, gap, slack) / on_losses, violation))
