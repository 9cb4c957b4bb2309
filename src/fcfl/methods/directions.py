r"""Directions of the two-stage method at an iterate, in the hull of its gradients.

A step is ``params - step_size * direction`` with ``direction = weights @ jacobian`` and the weights
on the simplex. Both stages choose the weights that improve one objective most while protecting
others. Only inner products of gradients enter, so that linear programme has as many variables as
there are gradients, whatever the number of parameters. A direction lowers an objective to first
order where its product with that gradient is positive.

The paper replaces maxima by smooth ones, of the losses with temperature :math:`\delta_l` and of the
violations with :math:`\delta_g` (eq. 10).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from fcfl._types import Matrix, Vector
from fcfl.errors import SolverError
from fcfl.problem.evaluation import Evaluation, smooth_max

FeasibleBy = Literal["smooth", "hard"]
ParetoRows = Literal["all", "one"]
OwnBudgets = Literal["kept", "ignored"]
Protects = Literal["all", "worst"]

SLOPE_TOLERANCE = 1e-7  # on unit-scaled rows; HiGHS's own feasibility tolerance
_LAZY_BATCH = 32  # protected objectives taken into the programme at a time


@dataclass(frozen=True, slots=True)
class Direction:
    """Where a trial goes, and what it may be tilted towards; see `TwoStageState`.

    ``loss_grad`` and ``violation_grad`` are those of the smooth maxima, in stage 1 only.
    """

    direction: Vector
    other: Vector | None
    violation_at_start: float | None = None
    loss_grad: Vector | None = None
    violation_grad: Vector | None = None


def stage_1_direction(
    at: Evaluation, temperatures: tuple[float, float], feasible_by: FeasibleBy
) -> Direction:
    """Eq. 12 and 13 in closed form.

    With the budgets met the direction lowers the smooth maximum of the losses; with one exceeded,
    that of the violations, without raising the former. ``feasible_by`` says by which maximum they
    are judged. The other direction is the bisector, which lowers both, when a budget is exceeded,
    and the violation's gradient, towards which a trial is turned, when none is.
    """
    delta_l, delta_g = temperatures
    loss_grad = smooth_max(at.losses, delta_l)[1] @ at.loss_grads
    if at.block_violations.size == 0:
        return Direction(loss_grad, loss_grad, None, loss_grad, loss_grad)
    smooth_violation, shares = smooth_max(at.block_violations, delta_g)
    violation_grad = shares @ at.violation_grads(at.worst_rows)
    violation = smooth_violation if feasible_by == "smooth" else at.largest_violation
    pair = np.array([loss_grad, violation_grad])
    weights = two_gradient_weights(loss_grad, violation_grad, exceeded=violation > 0)
    direction = weights @ pair
    if violation > 0:
        other = bisector_weights(loss_grad, violation_grad) @ pair
        return Direction(direction, other, None, loss_grad, violation_grad)
    return Direction(direction, violation_grad, violation, loss_grad, violation_grad)


def stage_2_direction(
    at: Evaluation,
    temperatures: tuple[float, float],
    pareto_rows: ParetoRows,
    own_budgets: OwnBudgets,
    protects: Protects = "all",
    *,
    is_cautious: bool,
) -> Direction:
    r"""Eq. 15: improve the mean loss, protect every loss and the smooth-maximum violation.

    .. math:: \max_w\; w^T J \bar g \quad\text{s.t.}\quad w^T J g_k \ge 0 \;\forall k,\;
              w^T J h \ge 0,\; w \text{ on the simplex}

    with :math:`g_k` the gradients of the losses, :math:`\bar g` their mean, h that of the smooth
    maximum of the violations, and J all of them stacked. Where only the worst client is protected
    (below eq. 15), one row takes the place of the :math:`g_k`: the gradient of the smooth maximum
    of the losses. A cautious method also computes the
    direction that lowers everything protected and the mean, the slowest as fast as possible.
    """
    n = at.losses.size
    extra, shares = _violation_rows(at, temperatures[1], pareto_rows, own_budgets)
    jacobian = np.vstack([at.loss_grads, extra])
    m = jacobian.shape[0]
    improve = np.concatenate([np.full(n, 1.0 / n), np.zeros(m - n)])
    kept = np.eye(n) if protects == "all" else smooth_max(at.losses, temperatures[0])[1][None, :]
    protect = np.zeros((len(kept) + (m > n), m))
    protect[: len(kept), :n] = kept
    protect[len(kept) :, n:] = shares
    gramian = jacobian @ jacobian.T
    direction = descent_weights(gramian, improve, protect) @ jacobian
    if not is_cautious:
        return Direction(direction, None)
    lowered = protect if protects == "all" else np.vstack([protect, improve])
    return Direction(direction, safest_weights(gramian, lowered) @ jacobian)


def _violation_rows(
    at: Evaluation, temperature: float, pareto_rows: ParetoRows, own_budgets: OwnBudgets
) -> tuple[Matrix, Vector]:
    """Disparity gradients of stage 2, (blocks, params), and their shares in the maximum."""
    violations = at.block_violations
    if violations.size == 0:
        return np.zeros((0, at.params.size)), np.zeros(0)
    bounds = at.problem.constraints.bounds[at.worst_rows]
    if own_budgets == "ignored" and np.ptp(bounds) > 0:
        violations = violations + bounds
    shares = smooth_max(violations, temperature)[1]
    grads = at.violation_grads(at.worst_rows)
    if pareto_rows == "all":
        return grads, shares
    row = shares @ grads if violations.max() >= 0 else np.zeros(at.params.size)
    return row[None, :], np.ones(1)


# --- the linear programme and its closed forms ---------------------------------------------------


def unit_scale(rows: Matrix) -> Matrix:
    """Scale each row to maximum magnitude 1; neither optimum nor feasibility moves.

    Solver tolerances are absolute while gradients shrink as training succeeds: unscaled, the
    programme becomes vacuous near convergence.
    """
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    tiny = largest < np.finfo(np.float64).tiny
    return np.where(tiny, 0.0, rows / np.where(tiny, 1.0, largest))


def descent_weights(gramian: Matrix, improve: Vector, protect: Matrix) -> Vector:
    r"""Weights on the simplex that improve one objective most and harm no protected one.

    .. math:: \max_w\; w^T G a \quad\text{s.t.}\quad P G w \ge 0,\; \sum_i w_i = 1,\; w \ge 0

    Parameters
    ----------
    gramian
        ``J @ J.T`` of the m gradients.
    improve
        ``a``: the objective to improve, as a combination of the m gradients.
    protect
        ``P``: one row per protected objective, each a combination of the m gradients.

    Notes
    -----
    Always feasible when the protected objectives are convex combinations of the gradients: the
    hull's min-norm point has a non-negative product with all of them. Constraints enter lazily,
    because the optimum touches few of them.
    """
    slopes = unit_scale(protect @ gramian)
    gain = unit_scale((gramian @ improve)[None, :])[0]
    weights = np.zeros(gain.size)
    weights[int(np.argmax(gain))] = 1.0
    active: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    while True:
        slope_now = slopes @ weights
        broken = np.flatnonzero(slope_now < -SLOPE_TOLERANCE)
        broken = np.setdiff1d(broken, active, assume_unique=True)
        if broken.size == 0:
            return weights
        worst_first = broken[np.argsort(slope_now[broken], kind="stable")]
        active = np.concatenate([active, worst_first[:_LAZY_BATCH]])
        weights = _solve(gain, slopes[active])


def safest_weights(gramian: Matrix, protect: Matrix) -> Vector:
    r"""Weights whose direction lowers every protected objective, the slowest as fast as it can be.

    .. math:: \max_{w, t}\; t \quad\text{s.t.}\quad P G w \ge t s,\; \sum_i w_i = 1,\; w \ge 0

    with ``s`` the row scale of ``P G``. The optimum is positive unless the gradients' hull holds 0.
    """
    slopes = unit_scale(protect @ gramian)
    slopes = slopes[slopes.any(axis=1)]  # a flat objective would hold the common slope at zero
    n = gramian.shape[0]
    gain = np.zeros(n + 1)
    gain[n] = 1.0
    with_margin = np.hstack([slopes, -np.ones((slopes.shape[0], 1))])
    return _solve(gain, with_margin, free_last=True)[:n]


def _solve(gain: Vector, slopes: Matrix, *, free_last: bool = False) -> Vector:
    """Maximise ``gain @ w`` subject to ``slopes @ w >= 0`` over the simplex, by HiGHS.

    With ``free_last`` the last variable is not a weight. Rounding is removed from the weights.
    """
    n = gain.size - free_last
    total = np.ones((1, gain.size))
    total[0, n:] = 0.0
    bounds = [(0.0, None)] * n + [(-1.0, 1.0)] * free_last
    for method in ("highs-ds", "highs-ipm"):
        solved = linprog(
            -gain,
            A_ub=-slopes,
            b_ub=np.zeros(slopes.shape[0]),
            A_eq=total,
            b_eq=[1.0],
            bounds=bounds,
            method=method,
        )
        if solved.status == 0:
            weights = np.maximum(solved.x[:n], 0.0)
            return np.concatenate([weights / weights.sum(), solved.x[n:]])
    raise SolverError(
        f"HiGHS failed on a direction problem with {n} gradients and {slopes.shape[0]} "
        f"protected objectives, which always has a solution: {solved.message}"
    )


def two_gradient_weights(loss: Vector, violation: Vector, *, exceeded: bool) -> Vector:
    """Closed form of the programme for stage 1: weights on (loss gradient, violation gradient).

    With budgets met the loss is improved; with a budget exceeded the violation is improved and the
    loss protected, so that the step is orthogonal to the loss gradient when the two disagree.
    """
    a, b, c = loss @ loss, loss @ violation, violation @ violation
    if not exceeded:
        return np.array([1.0, 0.0]) if a >= b else np.array([0.0, 1.0])
    if b >= 0:
        return np.array([0.0, 1.0]) if c >= b else np.array([1.0, 0.0])
    return np.array([-b, a]) / (a - b)


def bisector_weights(loss: Vector, violation: Vector) -> Vector:
    """The hull's point on the angular bisector: it lowers both, unless they are opposite."""
    norms = np.array([np.linalg.norm(violation), np.linalg.norm(loss)])
    return norms / norms.sum() if norms.any() else np.array([1.0, 0.0])
