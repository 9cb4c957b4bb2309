"""One step of SQP from where a training ended, on other rows: what a fold's own end is near to.

At the end of a training the multipliers are known. On the same rows without a few the KKT
conditions have nearly the same solution, and one Newton step on them comes near it: a fold then
costs one report, not a training.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fcfl._types import Fold, Point, Vector
from fcfl.server.problem import Evaluation
from fcfl.server.sqp.elastic import find_step
from fcfl.server.sqp.lagrangian import active_grads, curvature_weights, lagrangian_hessian
from fcfl.server.sqp.quasi_newton import Curvature
from fcfl.server.sqp.sqp_state import SQPState
from fcfl.server.sqp.subproblem import Target

_LEAST_PENALTY = 0.1  # nats per unit of disparity, for budgets that cost nothing where they are


def ask_step(method: Any, state: SQPState, fold: Fold) -> Point:
    """What a step without the rows of ``fold`` needs."""
    if not method.is_exact(state.params.size):
        return Point(state.params, "gradients", fold=fold)
    weights = curvature_weights(state.problem, state.multipliers)
    return Point(state.params, "curvature", weights, fold=fold)


def merit_of(method: Any, state: SQPState) -> Callable[[Evaluation], float]:
    """What a step is to lower: the objective, and each budget's excess at twice its price."""
    target = Target(method.resolved(state.params.size).temperature, np.zeros(0))
    weights = np.maximum(2.0 * state.row_weights, _LEAST_PENALTY)

    def merit(at: Evaluation) -> float:
        excess = np.maximum(at.violations, 0.0)
        return float(target.objectives(at.losses).max() + weights @ excess)

    return merit


def take_step(method: Any, state: SQPState, at: Evaluation) -> Vector:
    """The parameters after a full step from ``at``, with the multipliers of ``state``."""
    options = method.resolved(state.params.size)
    target = Target(options.temperature, np.zeros(0))
    curvature: Curvature = state.memory
    if options.exact:
        hessian = lagrangian_hessian(state.multipliers, target, at)
        active = active_grads(state.multipliers, target, at)
        undamped = replace(state.damping, level=0.0)
        curvature, _ = undamped.curvature(hessian, active, float(state.loss_weights.sum()))
    step, _, _ = find_step(at, target, curvature, state.penalty, state.loss_weights)
    return np.asarray(state.params + step.direction)
