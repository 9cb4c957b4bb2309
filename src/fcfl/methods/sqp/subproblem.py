r"""The step of a round: the quadratic programme for its direction, and the search for its length.

**The programme** (`find_step`) linearises the objective and constraints of a stage at a point:

.. math:: \min_{d,t,s}\; t + \tfrac12 d^T B d + \rho \sum_j s_j \quad\text{s.t.}\quad
          a_i + \nabla a_i \cdot d \le t,\; b_j + \nabla b_j \cdot d \le s_j,\; s_j \ge 0

The rows ``a`` are objectives. The rows ``b`` are constraints, feasible if ``<= 0``. The programme
always has a solution. A positive ``s`` is the remaining violation of a linearised constraint. The
multipliers are the weights of the Lagrangian

.. math:: L(\theta) = \sum_k \lambda_k l_k(\theta) + \sum_j \mu_j v_j(\theta)

over clients k and budget rows j, where :math:`\lambda` includes the multipliers of caps on the
losses. L and its Hessian are sums over clients, because each row is linear in the clients' rates.

**The length** (`Search`) must lower a merit function or an augmented Lagrangian. The merit is

.. math:: \phi_\rho(\theta) = f(\theta) + \sum_j \rho_j \max(v_j(\theta), 0)

A step is compared with the worst merit of the last few iterates, not only with the last one
(Grippo, Lampariello and Lucidi, 1986). This accepts full steps for which the curvature of the
constraints temporarily raises the merit (the Maratos effect). Objective and violations are stored
separately, so that the merits of past iterates can be computed for the present penalties.

With exact curvature, a step rejected by the merit is taken if the augmented Lagrangian decreases:

.. math:: \min_t\; t + \sum_i \psi(a_i - t;\, \lambda_i, \sigma_i) + \sum_j \psi(b_j;\, \mu_j,
          \sigma_j), \qquad \psi(c;\, \mu, \sigma) = \begin{cases} \mu c + \tfrac\sigma2 c^2 &
          c > -\mu / \sigma \\ -\mu^2 / 2\sigma & \text{else} \end{cases}

over objective rows ``a`` and constraint rows ``b`` with the multipliers of the step. A full step
along nonlinear budgets exceeds them slightly, and the next step corrects this. The merit multiplies
such a violation by twice its multiplier. The augmented Lagrangian multiplies it by the multiplier
itself, which is the first-order effect of the violation on the objective.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, CurvatureWeights, Matrix, Vector
from fcfl.methods.sqp.curvature import Curvature, Exact, LimitedMemory
from fcfl.methods.sqp.qp import solve_dual_qp
from fcfl.problem import FEASIBILITY_TOLERANCE, Evaluation, Problem, smooth_max

Rows: TypeAlias = tuple[Vector, Vector]
"""Objective rows and constraint rows at a point."""

# Number of rows of each kind in the first working set; violated rows are added. Few rows are active
# at a solution, and the dual solver's time grows fast with the number of rows.
_FIRST_ROWS = 64

# Largest violation of a row outside the working set, below the accuracy of the dual solver, so that
# the result does not depend on the first working set.
_ROW_TOLERANCE = 1e-10

# Multipliers below this are rounding errors: residuals of the dual solver are at most about 1e-9.
_ZERO_WEIGHT = 1e-8

# Growth factor of a penalty, and the penalty at which a budget counts as infeasible if no step
# lowers its violation.
PENALTY_GROWTH, PENALTY_LIMIT = 10.0, 1e6

# Largest number of growths of a penalty within a step. Multipliers of caps reach 300, which takes
# two growths from 10. With L-BFGS multipliers are less accurate, and the penalty grows only once.
_GROWTHS = 2

# Maximum number of rescalings of the curvature to match the step's multipliers. Each one halves the
# mismatch on a logarithmic scale.
_RESCALINGS = 8


@dataclass(frozen=True)
class Multipliers:
    r"""Weights :math:`\lambda` of the losses (clients,) and :math:`\mu` of the rows (rows,)."""

    losses: Vector
    rows: Vector


@dataclass(frozen=True)
class Target:
    """The objective of a stage and its caps on losses.

    The objective is the largest loss without ``temperature``, otherwise the smooth maximum (the
    mean for an infinite temperature). ``caps`` are upper bounds on the losses, one per client, or
    empty.
    """

    temperature: float | None
    caps: Vector

    def loss_weights(self, losses: Vector) -> Vector:
        """Return the gradient of the smooth objective with respect to the losses."""
        if self.temperature == np.inf:
            return np.full(losses.size, 1.0 / losses.size)
        assert self.temperature is not None
        return smooth_max(losses, self.temperature)[1]

    def objectives(self, losses: Vector) -> Vector:
        """Return the rows ``a``: all losses for the maximum, otherwise the one smooth value.

        The smooth maximum is shifted to equal the losses if all losses are equal.
        """
        if self.temperature is None:
            return losses
        if self.temperature == np.inf:
            return np.array([losses.mean()])
        value = smooth_max(losses, self.temperature)[0]
        return np.array([value - self.temperature * np.log(losses.size)])

    def constraints(self, losses: Vector, violations: Vector) -> Vector:
        """Return the rows ``b``: caps first, then budgets."""
        return np.concatenate([losses - self.caps, violations]) if self.caps.size else violations

    def rows(self, at: Evaluation) -> Rows:
        """Return both kinds of rows at a point."""
        return self.objectives(at.losses), self.constraints(at.losses, at.violations)

    def linearised(self, at: Evaluation, direction: Vector) -> Rows:
        """Return both kinds of rows after a step ``direction``, to first order."""
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
        """Return gradients of the selected rows of both kinds; ``constraint`` must be ascending."""
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
    r"""A solution: the direction, the weights of all rows, and the rows to first order.

    The weights are the programme's multipliers. Weights of objectives are on the simplex. Weights
    of constraints (caps first, then budgets) are between 0 and the penalty. ``lagrangian_grad`` is
    the weighted sum of all gradients, which equals :math:`-B d`. ``here`` and ``predicted`` are the
    rows at the start of the step and, to first order, at its end.
    """

    direction: Vector
    objective_weights: Vector
    constraint_weights: Vector
    lagrangian_grad: Vector
    here: Rows
    predicted: Rows

    @property
    def objective_decrease(self) -> float:
        """Return the decrease of the largest objective, to first order."""
        return float(self.here[0].max() - self.predicted[0].max())

    @property
    def violation_decreases(self) -> Vector:
        """Return the decrease of each violation, to first order."""
        return np.asarray(np.maximum(self.here[1], 0.0) - np.maximum(self.predicted[1], 0.0))

    @property
    def infeasibility(self) -> float:
        """Return the sum of the violations that remain, to first order."""
        return float(np.maximum(self.predicted[1], 0.0).sum())

    @property
    def half_curvature(self) -> float:
        r"""Return :math:`\tfrac12 d^T B d`."""
        return -0.5 * float(self.lagrangian_grad @ self.direction)

    def merit_decrease(self, penalty: float) -> float:
        """Return the decrease of the merit under ``penalty``, to first order."""
        return self.objective_decrease + penalty * float(self.violation_decreases.sum())

    def is_sound(self, penalty: float) -> bool:
        """Return whether the merit decreases by at least a quarter of ``d · B d``.

        For an exact solution it decreases by at least half. The test fails if the curvature is
        nearly singular and rounding errors dominate the step.
        """
        smallest = 0.5 * self.half_curvature - _ROW_TOLERANCE * (1.0 + penalty)
        return self.merit_decrease(penalty) >= smallest


def solve_step(at: Evaluation, target: Target, curvature: Curvature, penalty: float) -> Step:
    r"""Solve the programme by working sets, to which violated rows are added.

    The dual has one variable per row, with x on the simplex for ``a`` and :math:`0 \le x \le \rho`
    for ``b``. The step is :math:`d = -B^{-1} J^T x`, where J has the gradients of both kinds of
    rows. Working sets are small, because most clients are neither the worst nor at their budget.
    The result also solves the programme with all rows, because it violates no excluded row.
    """
    a, b = target.rows(at)
    objective, constraint = _largest(a, _FIRST_ROWS), _largest(b, _FIRST_ROWS)
    plain = target.gradients(at, objective, constraint)
    whitened = [curvature.whiten(part) for part in plain]
    while True:
        values = np.concatenate([a[objective], b[constraint]])
        upper = np.full(constraint.size, penalty)
        x = solve_dual_qp(np.vstack(whitened), values, objective.size, upper)
        x_objective, x_constraint = x[: objective.size], x[objective.size :]
        lagrangian_grad = x_objective @ plain[0] + x_constraint @ plain[1]
        direction = -curvature.solve(lagrangian_grad)
        after_a, after_b = target.linearised(at, direction)
        worse = _outside(after_a > after_a[objective].max() + _ROW_TOLERANCE, objective)
        broken = _outside(after_b > _ROW_TOLERANCE, constraint)
        if worse.size == 0 and broken.size == 0:
            break
        max_rows = max(_FIRST_ROWS, x.size)
        worse = worse[_largest(after_a[worse], max_rows)]
        broken = broken[_largest(after_b[broken], max_rows)]
        more = target.gradients(at, worse, broken)
        plain = np.vstack([plain[0], more[0]]), np.vstack([plain[1], more[1]])
        whitened = [
            np.vstack([old, curvature.whiten(new)]) for old, new in zip(whitened, more, strict=True)
        ]
        objective = np.concatenate([objective, worse])
        constraint = np.concatenate([constraint, broken])
    weights = np.zeros(a.size), np.zeros(b.size)
    weights[0][objective], weights[1][constraint] = x_objective, x_constraint
    return Step(direction, *weights, lagrangian_grad, (a, b), (after_a, after_b))


def _largest(values: Vector, size: int) -> NDArray[np.int64]:
    """Return the ascending positions of the ``size`` largest values."""
    if values.size <= size:
        return np.arange(values.size)
    return np.sort(np.argsort(-values, kind="stable")[:size])


def _outside(wanted: NDArray[np.bool_], inside: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the wanted rows outside the working set."""
    wanted[inside] = False
    return np.flatnonzero(wanted)


def kkt_residual(at: Evaluation, target: Target, step: Step) -> float:
    r"""Return the KKT residual under the step's weights x; it is 0 at a KKT point.

    .. math:: \max\Big\{ \frac1s \max\big(|\nabla L|_\infty,\; \max_i a_i - x_a^T a,\;
              x_b^T (-b)_+ \big),\; \max_j (b_j)_+ \Big\}

    Terms are the Lagrangian's gradient, the gap between the objective and its weighted rows, the
    weights of inactive constraints times their slack, and the largest violation. With caps, the
    losses' weights sum to s, which may exceed twenty. Division by s normalises the first three
    terms to a Lagrangian whose losses' weights sum to one.
    """
    a, b = step.here
    on_losses = 1.0 + step.constraint_weights[: target.caps.size].sum()
    gap = a.max() - step.objective_weights @ a
    slack = step.constraint_weights @ np.maximum(-b, 0.0)
    steepest = np.abs(step.lagrangian_grad).max()
    return float(max(max(steepest, gap, slack) / on_losses, b.max(initial=0.0)))


def model_gap(step: Step) -> float:
    """Return the remaining improvement predicted by the quadratic model.

    It is the largest of the objective's change, the duality gap, and half of ``d · B d``.
    """
    a, b = step.here
    dual = step.objective_weights @ a + step.constraint_weights @ b
    return max(abs(step.objective_decrease), abs(float(a.max() - dual)), step.half_curvature)


# --- the Lagrangian -------------------------------------------------------------------------------


def multipliers_of(target: Target, at: Evaluation, step: Step) -> Multipliers:
    """Return the weights of losses and budgets, predicted for the end of the step.

    For the maximum, the losses' weights are the multipliers of the subproblem. For a smooth
    objective, they are its gradient at the linearly predicted losses, which approximates that at
    the next iterate better than the gradient at the present losses. Multipliers of caps are added.
    """
    n_caps = target.caps.size
    if target.temperature is None:
        weights = step.objective_weights.copy()
    else:
        weights = target.loss_weights(at.losses + at.slopes(step.direction)[0])
    weights[:n_caps] += step.constraint_weights[:n_caps]
    return Multipliers(weights, step.constraint_weights[n_caps:])


def lagrangian_grad(multipliers: Multipliers, target: Target, at: Evaluation) -> Vector:
    r"""Return :math:`\sum_k \lambda_k \nabla l_k + \sum_j \mu_j \nabla v_j` at ``at``, (params,).

    For a smooth objective, the weights are its gradient at this point instead of the multipliers.
    Its own curvature is then included in the difference between two gradients.
    """
    weights, n_caps = multipliers.losses, target.caps.size
    if target.temperature is not None:
        capped = np.zeros(weights.size)
        # With caps the objective is the mean, so a weight minus 1/N is the cap's multiplier.
        capped[:n_caps] = weights[:n_caps] - 1.0 / weights.size
        weights = target.loss_weights(at.losses) + (capped if n_caps else 0.0)
    active = np.flatnonzero(multipliers.rows)
    gradient: Vector = weights @ at.loss_grads
    if active.size:
        gradient = gradient + multipliers.rows[active] @ at.violation_grads(active)
    return gradient


def lagrangian_hessian(multipliers: Multipliers, target: Target, at: Evaluation) -> Matrix:
    r"""Return the Lagrangian's Hessian (n, n): clients' parts, L2 term and the objective's part.

    A smooth maximum with temperature :math:`\delta` and weights w has curvature of its own: it adds
    :math:`\frac1\delta \sum_k w_k (g_k - \bar g)(g_k - \bar g)^T` with :math:`g_k` the gradients of
    the losses and :math:`\bar g = \sum_k w_k g_k`.
    """
    hessian = at.problem.l2 * multipliers.losses.sum() * np.eye(at.params.size)
    hessian += at.curvature
    if target.temperature is not None and np.isfinite(target.temperature):
        weights = target.loss_weights(at.losses)
        centred = at.loss_grads - weights @ at.loss_grads
        hessian += (centred.T * (weights / target.temperature)) @ centred
    return np.asarray(hessian)


def active_grads(multipliers: Multipliers, target: Target, at: Evaluation) -> Matrix:
    """Return the gradients of the rows that the step holds fixed to first order.

    These are budgets and caps with a positive multiplier. For the maximum, they include the
    differences between the largest losses and their weighted mean.
    """
    weights = multipliers.losses
    held = [at.violation_grads(np.flatnonzero(multipliers.rows > _ZERO_WEIGHT))]
    if target.temperature is None:
        worst = np.flatnonzero(weights > _ZERO_WEIGHT)
        losses = np.array([at.loss_grad(int(k)) for k in worst])
        held.append(losses - weights[worst] @ losses / weights[worst].sum())
    elif target.caps.size:
        capped = np.flatnonzero(weights > 1.0 / weights.size + _ZERO_WEIGHT)
        held.extend(at.loss_grad(int(k))[None] for k in capped)
    return np.vstack(held)


def curvature_weights(
    problem: Problem, multipliers: Multipliers
) -> dict[ClientId, CurvatureWeights]:
    r"""Return each client's weights in the Lagrangian, of its loss and of each of its rates.

    With rows :math:`v = A r - b` over the stacked rates r, rate q has the net weight
    :math:`(A^T \mu)_q`. A client receives only these weights, and no multipliers of other clients.
    """
    shape = (len(problem.clients), problem.n_rates)
    rates = problem.constraints.weigh_rates(multipliers.rows).reshape(shape)
    return {
        client: CurvatureWeights(float(multipliers.losses[i]), rates[i])
        for i, client in enumerate(problem.clients)
    }


# --- the elastic penalty --------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A step with its penalty and curvature, and the predicted multipliers."""

    step: Step
    penalty: float
    curvature: Curvature
    multipliers: Multipliers


def find_step(
    at: Evaluation, target: Target, curvature: Curvature, penalty: float, assumed_weights: Vector
) -> Found:
    """Compute a step; raise the penalty and rescale the curvature if necessary.

    A step may increase the caps' multipliers many times, and the curvature of the Lagrangian is
    proportional to them. Therefore the curvature is rescaled until the sums of ``assumed_weights``
    and of the step's weights of losses agree to a factor of two. While rounding errors dominate a
    step of L-BFGS, the older half of its pairs is dropped.
    """
    assumed = float(assumed_weights.sum())
    found = _solve(at, target, curvature, penalty)
    for _ in range(_RESCALINGS if target.caps.size else 0):
        ratio = float(found.multipliers.losses.sum()) / assumed
        if 0.5 <= ratio <= 2.0:
            break
        assumed *= ratio**0.5  # half of the ratio, because a stiffer model has smaller multipliers
        found = _solve(at, target, found.curvature.scaled(ratio**0.5), penalty)
    while isinstance(found.curvature, LimitedMemory) and found.curvature.n_pairs:
        if found.step.is_sound(found.penalty):
            break
        found = _solve(at, target, found.curvature.newer_half(), penalty)
    return found


def _solve(at: Evaluation, target: Target, curvature: Curvature, penalty: float) -> Found:
    """Compute a step, with a larger penalty if this satisfies the linearised budgets.

    The new penalty is twice the largest multiplier, but at most the penalty that was tried. If
    larger penalties do not satisfy the linearised budgets either, the penalty is unchanged.
    """
    given = step = solve_step(at, target, curvature, penalty)
    raised = larger = penalty
    for _ in range(_GROWTHS if isinstance(curvature, Exact) else 1):
        if step.infeasibility <= FEASIBILITY_TOLERANCE or penalty >= PENALTY_LIMIT:
            break
        larger *= PENALTY_GROWTH
        step = solve_step(at, target, curvature, larger)
        raised = min(max(penalty, 2.0 * float(step.constraint_weights.max(initial=0.0))), larger)
    if step.infeasibility > FEASIBILITY_TOLERANCE:
        step, raised = given, penalty
    return Found(step, raised, curvature, multipliers_of(target, at, step))


def step_within_slack(
    at: Evaluation,
    target: Target,
    curvature: Curvature,
    penalty: float,
    slack: float,
    before: Multipliers,
) -> Found:
    r"""Compute the first step of stage 2; ``curvature`` and ``before`` are those of stage 1.

    At the optimum of stage 1 the gradient of its Lagrangian is zero, so the linearised caps do not
    bound the step. To second order, the largest loss rises by about :math:`\tfrac12 d^T B d`, which
    must not exceed the slack. The step is therefore computed with the curvature c B, for the
    smallest sufficient c. Since c is the multiplier of the caps, c times the weights of stage 1 is
    added to the weights of the step.
    """
    factor = 1.0
    for _ in range(_RESCALINGS):
        found = _solve(at, target, curvature.scaled(factor), penalty)
        rise = found.step.half_curvature / factor
        if rise <= 1.1 * slack:
            break
        factor *= (rise / slack) ** 0.5  # exact for a constant active set, as d ~ 1 / c
    multipliers = Multipliers(
        found.multipliers.losses + factor * before.losses,
        found.multipliers.rows + factor * before.rows,
    )
    return replace(found, curvature=curvature.scaled(factor), multipliers=multipliers)


def is_stuck(found: Found, tolerance: float) -> bool:
    """Return whether a constraint is exceeded at a stationary point of the merit.

    Its penalty must then grow. At the largest penalty, the point is a stationary point of the sum
    of the violations.
    """
    step = found.step
    exceeded = step.here[1].max(initial=0.0)
    does_not_help = float(step.violation_decreases.sum()) <= 0.1 * step.infeasibility
    steepest = float(np.abs(step.lagrangian_grad).max())
    is_stationary = max(steepest, step.merit_decrease(found.penalty)) <= tolerance
    return bool(exceeded > FEASIBILITY_TOLERANCE and does_not_help and is_stationary)


# Share of the predicted decrease that a step must achieve (Armijo), for the merit and for the
# augmented Lagrangian. The first is small and rejects only steps with a negligible decrease.
_ARMIJO, _ARMIJO_OF_AUGMENTED = 1e-4, 0.1

# Largest violation at which the augmented Lagrangian may also measure the accuracy of predictions.
_SMALL_VIOLATION = 1e-3

# A violation v adds μ v + (ρ / .01) v² / 2. With a penalty ρ of twice the multiplier, this equals
# the term of the merit at .01 and is smaller below. Above .01 the augmented Lagrangian is not used.
_STRICT = 1e-2

# Lower limit on twice a loss's multiplier, from which its stiffness is computed.
_LEAST_STIFFNESS = 0.1

# Rounding error of merits, which are sums of a few thousand float64 numbers of size one.
_MERIT_ROUNDING, _DECREASE_ROUNDING = 1e-12, 1e-11

# Ratio of a penalty to its multiplier. A ratio above 1 makes the merit exact: its minimiser solves
# the constrained problem. The value 2 allows for a multiplier that still grows.
_ENOUGH = 2.0

# Bounds on the penalty of a violation without a multiplier. With exact curvature, it is the
# largest penalty of the other budgets, clipped to these bounds. With a hundred active rows, their
# multipliers are near .01.
_LEAST, _LEAST_OF_ALL = 0.1, 0.01

Merit: TypeAlias = tuple[float, Vector]
"""An objective and the violations, which `weigh` adds with penalties as weights."""


def merit_of_rows(rows: Rows) -> Merit:
    """Return the largest objective and the violations."""
    return float(rows[0].max()), np.maximum(rows[1], 0.0)


def weigh(merit: Merit, penalties: Vector) -> float:
    """Return the merit under ``penalties``."""
    return float(merit[0] + penalties @ merit[1])


@dataclass(frozen=True)
class Search:
    r"""The requested step lengths, and the data for accepting one of them.

    A ``settled`` search takes its first length without a comparison. ``merits`` are those of the
    last iterates, the newest last. ``here`` and ``predicted`` are the rows at the start of the step
    and, to first order, at its end; ``multipliers`` belong to these rows. ``half_curvature`` is
    :math:`\tfrac12 d^T B d`, which the quadratic model subtracts from the first-order decrease.
    """

    lengths: tuple[float, ...]
    settled: bool
    merits: tuple[Merit, ...]
    here: Rows
    predicted: Rows
    multipliers: Rows
    penalties: Vector
    half_curvature: float
    uses_augmented: bool

    def accepts(self, index: int, rows: Rows) -> bool:
        r"""Return whether the point of length ``lengths[index]`` may be the next iterate.

        .. math:: \phi(\theta + a d) \le \max_i \phi(\theta_i) - 10^{-4} a \Delta

        over the last iterates :math:`\theta_i`, with the predicted decrease :math:`\Delta`. A point
        is also accepted if the augmented Lagrangian decreases by a tenth of its prediction.
        """
        if self.settled:
            return index == 0
        if self.uses_augmented and self._augmented_ratio(index, rows) >= _ARMIJO_OF_AUGMENTED:
            return True
        worst = max(weigh(before, self.penalties) for before in self.merits)
        limit = worst - _ARMIJO * self.lengths[index] * self._predicted_decrease()
        merit = weigh(merit_of_rows(rows), self.penalties)
        return merit <= limit + _MERIT_ROUNDING * max(abs(worst), 1.0)

    def ratio(self, index: int, rows: Rows) -> float:
        """Return the decrease since the last iterate as a share of the predicted decrease.

        The share refers to the merit. With small violations, return the share of the augmented
        Lagrangian if it is larger.
        """
        share = self._merit_ratio(index, rows)
        if not self.uses_augmented or rows[1].max(initial=0.0) > _SMALL_VIOLATION:
            return share
        return max(share, self._augmented_ratio(index, rows))

    def shorter(self, rows: Rows) -> float:
        r"""Return the length to try after rejection of the shortest length a at ``rows``.

        It is the minimiser of the parabola through the merits at 0 and a with the predicted slope
        at 0, clipped to between a / 10 and a / 2.
        """
        length, slope = min(self.lengths), self._predicted_decrease()
        rise = weigh(merit_of_rows(rows), self.penalties) - weigh(self.merits[-1], self.penalties)
        above = max(rise + length * slope, 1e-300)
        return float(np.clip(length**2 * slope / (2 * above), 0.1 * length, 0.5 * length))

    def next_penalties(self, multipliers: Vector) -> Vector:
        """Return the next penalties, which decrease only if the last step was shortened.

        A penalty far above its multiplier rejects full steps along which the constraint is
        nonlinear. For neural networks this caused hundreds of short steps.
        """
        lowered = lowered_penalties(self.penalties, multipliers)
        if self.lengths[0] < 1:
            return lowered
        return np.asarray(np.maximum(lowered, self.penalties))

    def augmented(self, rows: Rows) -> float:
        """Return the augmented Lagrangian at a point with these rows."""
        stiffness = np.maximum(2.0 * self.multipliers[0], _LEAST_STIFFNESS) / _STRICT
        level = _shared_level(rows[0], self.multipliers[0], stiffness)
        above = _psi(rows[0] - level, self.multipliers[0], stiffness)
        return level + above + _psi(rows[1], self.multipliers[1], self.penalties / _STRICT)

    def _predicted_decrease(self) -> float:
        """Return the decrease of the merit along the full step, to first order."""
        here, there = merit_of_rows(self.here), merit_of_rows(self.predicted)
        return weigh((here[0] - there[0], here[1] - there[1]), self.penalties)

    def _merit_ratio(self, index: int, rows: Rows) -> float:
        r"""Return the merit's decrease over :math:`a \Delta - a^2 \tfrac12 d^T B d`."""
        length, merit = self.lengths[index], merit_of_rows(rows)
        actual = weigh(self.merits[-1], self.penalties) - weigh(merit, self.penalties)
        predicted = length * self._predicted_decrease() - length**2 * self.half_curvature
        return _ratio(actual, predicted, 10 * _MERIT_ROUNDING)

    def _augmented_ratio(self, index: int, rows: Rows) -> float:
        """Return the augmented Lagrangian's decrease as a share of its prediction.

        Return 0 if the step begins or ends far from the budgets or raises the largest loss, because
        linear predictions are inaccurate and squares of violations too large in these cases.
        """
        rise = rows[0].max() - self.here[0].max()
        exceeded = [part.max(initial=0.0) for part in (self.here[1], rows[1])]
        if max(rise, *exceeded) > _STRICT:
            return 0.0
        length, here = self.lengths[index], self.augmented(self.here)
        a, b = (h + length * (p - h) for h, p in zip(self.here, self.predicted, strict=True))
        predicted = here - self.augmented((a, b)) - length**2 * self.half_curvature
        actual = here - self.augmented(rows)
        return _ratio(actual, predicted, _DECREASE_ROUNDING * max(abs(here), 1.0))


def _ratio(actual: float, predicted: float, rounding: float) -> float:
    """Return the ratio, 1 if both values are rounding errors, 0 without a predicted decrease."""
    if max(abs(actual), abs(predicted)) <= rounding:
        return 1.0
    return actual / predicted if predicted > 0 else 0.0


def lowered_penalties(penalties: Vector, multipliers: Vector, least: float = _LEAST) -> Vector:
    """Return penalties halfway to twice their multipliers; raise smaller ones to that value."""
    enough = np.maximum(_ENOUGH * multipliers, least)
    return np.asarray(np.maximum(enough, (penalties + enough) / 2))


def least_penalty(multipliers: Vector) -> float:
    """Return the penalty of a violation without a multiplier, given the other multipliers."""
    largest = _ENOUGH * float(multipliers.max(initial=0.0))
    return float(np.clip(largest, _LEAST_OF_ALL, _LEAST))


def _psi(excess: Vector, multipliers: Vector, stiffness: Vector) -> float:
    """Return the sum of ψ over rows."""
    reach = np.maximum(excess, -multipliers / stiffness)
    return float(np.sum(multipliers * reach + 0.5 * stiffness * reach**2))


def _shared_level(values: Vector, weights: Vector, stiffness: Vector) -> float:
    """Return the minimising t in the augmented Lagrangian, which depends on objective rows only.

    At t the non-negative slopes of the rows sum to one. It is the highest of the levels at which
    the slopes of the k largest rows would sum to one.
    """
    ends = values + weights / stiffness  # where a row's slope becomes zero
    order = np.argsort(-ends, kind="stable")
    total = np.cumsum(stiffness[order])
    return float(((np.cumsum((stiffness * ends)[order]) - 1.0) / total).max())
