r"""The directions of the two stages at an iterate, in the hull of its gradients.

The paper replaces maxima by smooth ones, of the losses with temperature :math:`\delta_l` and of the
violations with :math:`\delta_g` (eq. 10). A step is ``params - step_size * direction``: a direction
lowers an objective to first order where its product with that gradient is positive.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcfl._types import Matrix, Vector
from fcfl.methods.smooth_max import smooth_max
from fcfl.methods.two_stage.direction import (
    bisector_weights,
    descent_weights,
    safest_weights,
    two_gradient_weights,
)
from fcfl.problem.evaluation import Evaluation

FeasibleBy = Literal["smooth", "hard"]
ParetoRows = Literal["all", "one"]
OwnBudgets = Literal["kept", "ignored"]
Protects = Literal["all", "worst"]


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
