"""A trial of the two-stage method: where it goes, and whether it is accepted."""

import numpy as np

from fcfl._types import Vector
from fcfl.methods.smooth_max import smooth_max
from fcfl.methods.two_stage.direction import bisector_weights
from fcfl.methods.two_stage.stage_directions import Protects
from fcfl.methods.two_stage.two_stage_state import TwoStageState
from fcfl.problem.evaluation import Evaluation

# Refusals until a trial goes wholly in the other direction. Each doubles the tilt: 1/16, 1/8, 1/4,
# 1/2, 1. The direction of the paper is so left only as far as it fails.
LARGEST_TILT = 5


def is_accepted(state: TwoStageState, trial: Evaluation, protects: Protects = "all") -> bool:
    """Whether Lemma 1 (stage 1) or Lemma 2 (stage 2) holds for the trial and the budgets allow it.

    Lemma 1: the smooth maximum of the losses does not rise, and it or that of the violations falls.
    Lemma 2: no client's loss rises, or where only the worst is protected the largest does not, and
    their mean falls. In both stages the smooth maximum of the violations neither rises nor becomes
    positive.
    """
    delta_l, delta_g = state.temperatures
    before = smooth_max(state.violations, delta_g)[0]
    after = smooth_max(trial.block_violations, delta_g)[0]
    if after > max(before, 0.0) or not _keeps_budgets(state, trial.block_violations):
        return False
    if state.stage == 2:
        bounds = state.losses if protects == "all" else state.losses.max()
        none_rises = bool((trial.losses <= bounds).all())
        return none_rises and bool(trial.losses.mean() < state.losses.mean())
    loss = smooth_max(state.losses, delta_l)[0]
    trial_loss = smooth_max(trial.losses, delta_l)[0]
    return trial_loss <= loss and (trial_loss < loss or after < before)


def _keeps_budgets(state: TwoStageState, violations: Vector) -> bool:
    """Whether no budget that is met becomes exceeded and no violation grows.

    In stage 1 with a budget exceeded, only the smooth maximum must not grow: one budget may get
    worse for the sake of another. If each of them had to improve, the method would get stuck.
    """
    before = state.violations
    if state.stage == 1 and (before > 0).any():
        return True
    return bool((violations <= np.maximum(before, 0.0)).all())


def trial_point(state: TwoStageState, weight_decay: float, *, is_tilted: bool) -> Vector:
    """``params - step_size * (d + weight_decay * params)``, with ``d`` tilted if that is asked."""
    direction = state.direction
    assert direction is not None
    if is_tilted and state.other is not None:
        direction = _tilted(state, direction, state.other)
    return state.params - state.step_size * (direction + weight_decay * state.params)


def _tilted(state: TwoStageState, direction: Vector, other: Vector) -> Vector:
    """The direction, turned along the budgets and mixed with the other one; both in the hull."""
    if state.violation_at_start is not None:
        mixed = turned(direction, other, state.violation_at_start, state.step_size)
        other = bisector_weights(direction, other) @ np.array([direction, other])
        direction = mixed
    tilt = 2.0 ** (state.tilt - LARGEST_TILT) if state.tilt else 0.0
    return (1 - tilt) * direction + tilt * other


def turned(direction: Vector, other: Vector, violation: float, step_size: float) -> Vector:
    r"""The direction turned along the budgets: the nearest to it of those that do not break one.

    .. math:: (1 - s)\, d + s\, h, \quad s \text{ smallest with } v - \eta\, h^T d_s \le 0

    for the violation v and its gradient h. Where d is the gradient of the losses it is zero at a
    constrained optimum, though d itself is not.
    """
    share = _share_to_reach(direction, other, violation / step_size)
    return (1 - share) * direction + share * other


def _share_to_reach(direction: Vector, other: Vector, slope_needed: float) -> float:
    """Smallest share of ``other`` in the mix whose product with ``other`` is ``slope_needed``."""
    slope, steepest = direction @ other, other @ other
    if slope >= slope_needed or steepest <= slope:
        return 0.0
    return min(float((slope_needed - slope) / (steepest - slope)), 1.0)
