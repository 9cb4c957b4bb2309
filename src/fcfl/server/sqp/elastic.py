"""A step under an elastic penalty that is raised when the budgets need it."""

import numpy as np

from fcfl._types import Vector
from fcfl.server.method import FEASIBILITY_TOLERANCE
from fcfl.server.problem import Evaluation
from fcfl.server.sqp.lagrangian import loss_weights
from fcfl.server.sqp.quasi_newton import Curvature, LimitedMemory
from fcfl.server.sqp.subproblem import Step, Target, solve_step

FIRMER = 10.0  # factor by which a penalty is raised
PENALTY_LIMIT = 1e6
_RESCALINGS = 8  # of the curvature, until it agrees with the step


def find_step(
    at: Evaluation, target: Target, curvature: Curvature, penalty: float, assumed_weights: Vector
) -> tuple[Step, float, Curvature]:
    """The step, its penalty, and the curvature it was found with.

    The caps' multipliers may be many times larger after a step than before, and the curvature with
    them: it is scaled until the ``assumed_weights`` of the losses that it stands for and those of
    the step agree. Where rounding decides the step, what was learnt of curvature longest ago is
    forgotten.
    """
    step, firm = _solve(at, target, curvature, penalty)
    assumed = float(assumed_weights.sum())
    for _ in range(_RESCALINGS if target.caps.size else 0):
        ratio = float(loss_weights(target, at, step).sum()) / assumed
        if 0.5 <= ratio <= 2.0:
            break
        assumed *= ratio**0.5  # not all the way: a stiffer model wants smaller multipliers
        curvature = curvature.scaled(ratio**0.5)
        step, firm = _solve(at, target, curvature, penalty)
    while isinstance(curvature, LimitedMemory) and curvature.n_pairs:
        if step.is_sound(firm):
            break
        curvature = curvature.newer_half()
        step, firm = _solve(at, target, curvature, penalty)
    return step, firm, curvature


def _solve(
    at: Evaluation, target: Target, curvature: Curvature, penalty: float
) -> tuple[Step, float]:
    """The step, under a firmer penalty if that is what meets the linearised budgets."""
    step = solve_step(at, target, curvature, penalty)
    if step.shortfall <= FEASIBILITY_TOLERANCE or penalty >= PENALTY_LIMIT:
        return step, penalty
    firmer = solve_step(at, target, curvature, FIRMER * penalty)
    if firmer.shortfall > FEASIBILITY_TOLERANCE:
        return step, penalty
    needed = 2.0 * float(firmer.constraint_weights.max(initial=0.0))
    return firmer, min(max(penalty, needed), FIRMER * penalty)


def is_stuck(at: Evaluation, target: Target, step: Step, penalty: float, tolerance: float) -> bool:
    """Whether a constraint is exceeded at a stationary point of the merit: it must weigh more.

    Under the largest penalty that is a stationary point of the sum of the violations.
    """
    exceeded = target.constraints(at.losses, at.violations).max(initial=0.0)
    no_relief = step.relief <= 0.1 * step.shortfall
    steepest = float(np.abs(step.lagrangian_grad).max())
    still = max(steepest, step.decrease(penalty)) <= tolerance
    return bool(exceeded > FEASIBILITY_TOLERANCE and no_relief and still)
