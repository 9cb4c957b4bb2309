"""A step under an elastic penalty that is raised when the budgets need it."""

import numpy as np

from fcfl._types import Vector
from fcfl.methods.sqp.lagrangian import loss_weights
from fcfl.methods.sqp.quasi_newton import Curvature, Exact, LimitedMemory
from fcfl.methods.sqp.subproblem import Step, Target, solve_step
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE
from fcfl.problem.evaluation import Evaluation

# Factor by which a penalty grows at a time. A penalty bounds the multipliers, so this decides how
# soon a budget with a large price is met, and by how much the merit may become too stiff.
PENALTY_GROWTH = 10.0

# A budget that is exceeded under this penalty, with no step that helps, cannot be met nearby: no
# price below a million nats per unit of disparity buys it.
PENALTY_LIMIT = 1e6

# How often a penalty may grow within a step. Prices of caps reach 300: from 10, that takes two.
# With learnt curvature they are less certain than that, and it grows once.
_GROWTHS = 2

# The most times that the curvature is scaled until it agrees with the step's multipliers. Each
# covers half of the disagreement on a logarithmic scale.
_RESCALINGS = 8


def find_step(
    at: Evaluation, target: Target, curvature: Curvature, penalty: float, assumed_weights: Vector
) -> tuple[Step, float, Curvature]:
    """The step, its penalty, and the curvature it was found with.

    The caps' multipliers may be many times larger after a step than before, and the curvature with
    them: it is scaled until the ``assumed_weights`` of the losses that it stands for and those of
    the step agree to a factor of two. Where rounding decides the step, the older half of the pairs
    that curvature was learnt from is dropped, until it does not.
    """
    step, raised = _solve(at, target, curvature, penalty)
    assumed = float(assumed_weights.sum())
    for _ in range(_RESCALINGS if target.caps.size else 0):
        ratio = float(loss_weights(target, at, step).sum()) / assumed
        if 0.5 <= ratio <= 2.0:
            break
        assumed *= ratio**0.5  # not all the way: a stiffer model wants smaller multipliers
        curvature = curvature.scaled(ratio**0.5)
        step, raised = _solve(at, target, curvature, penalty)
    while isinstance(curvature, LimitedMemory) and curvature.n_pairs:
        if step.is_sound(raised):
            break
        curvature = curvature.newer_half()
        step, raised = _solve(at, target, curvature, penalty)
    return step, raised, curvature


def _solve(
    at: Evaluation, target: Target, curvature: Curvature, penalty: float
) -> tuple[Step, float]:
    """The step, under a larger penalty if that is what meets the linearised budgets.

    The penalty then becomes twice the largest multiplier, at most what it was solved with. If the
    larger ones do not meet them either, it is not to blame, and stays as it is.
    """
    step = solve_step(at, target, curvature, penalty)
    if step.infeasibility <= FEASIBILITY_TOLERANCE or penalty >= PENALTY_LIMIT:
        return step, penalty
    larger = penalty
    for _ in range(_GROWTHS if isinstance(curvature, Exact) else 1):
        larger *= PENALTY_GROWTH
        other = solve_step(at, target, curvature, larger)
        if other.infeasibility <= FEASIBILITY_TOLERANCE:
            needed = 2.0 * float(other.constraint_weights.max(initial=0.0))
            return other, min(max(penalty, needed), larger)
    return step, penalty


def step_within_slack(
    at: Evaluation, target: Target, curvature: Curvature, penalty: float, slack: float
) -> tuple[Step, float, float]:
    r"""The first step of stage 2, its penalty, and the factor c on the curvature B of stage 1.

    At the optimum of stage 1 its Lagrangian L is flat, so that the linearised caps do not bound the
    step. They do to second order: the largest loss rises by about :math:`\tfrac12 d^T B d`, which
    must not exceed the slack. The step is therefore solved for under c B with the least c for which
    it does not. This is the multiplier of the caps: c times the weights of stage 1.
    """
    factor = 1.0
    for _ in range(_RESCALINGS):
        step, raised = _solve(at, target, curvature.scaled(factor), penalty)
        rise = -0.5 * float(step.lagrangian_grad @ step.direction) / factor
        if rise <= 1.1 * slack:
            break
        factor *= (rise / slack) ** 0.5  # exact where no row enters or leaves: d is as 1 / c
    return step, raised, factor


def is_stuck(at: Evaluation, target: Target, step: Step, penalty: float, tolerance: float) -> bool:
    """Whether a constraint is exceeded at a stationary point of the merit: it must weigh more.

    Under the largest penalty that is a stationary point of the sum of the violations.
    """
    exceeded = target.constraints(at.losses, at.violations).max(initial=0.0)
    does_not_help = step.violation_decrease <= 0.1 * step.infeasibility
    steepest = float(np.abs(step.lagrangian_grad).max())
    is_stationary = max(steepest, step.merit_decrease(penalty)) <= tolerance
    return bool(exceeded > FEASIBILITY_TOLERANCE and does_not_help and is_stationary)
