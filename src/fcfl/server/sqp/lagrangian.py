r"""The Lagrangian :math:`\sum_k \lambda_k l_k + \sum_j \mu_j v_j`: weights, gradient, curvature."""

from dataclasses import dataclass

import numpy as np

from fcfl._types import ClientId, CurvatureWeights, Matrix, Vector
from fcfl.server.problem import Evaluation, Problem
from fcfl.server.sqp.subproblem import Step, Target

_WEIGHT = 1e-8  # a multiplier below this is rounding


@dataclass(frozen=True)
class Multipliers:
    """Weights of the clients' losses and of the constraints' rows."""

    losses: Vector
    rows: Vector


def loss_weights(target: Target, at: Evaluation, step: Step) -> Vector:
    """Weight of each client's loss in the Lagrangian, predicted for the end of the step."""
    if target.temperature is None:
        weights = step.objective_weights.copy()
    else:
        weights = target.loss_weights(at.losses + at.slopes(step.direction)[0])
    weights[: target.caps.size] += step.constraint_weights[: target.caps.size]
    return weights


def lagrangian_grad(multipliers: Multipliers, target: Target, at: Evaluation) -> Vector:
    """Gradient of the Lagrangian at ``at``; a smooth objective weighs the losses as they are."""
    weights, n_caps = multipliers.losses, target.caps.size
    if target.temperature is not None:
        capped = np.zeros(weights.size)
        capped[:n_caps] = weights[:n_caps] - 1.0 / weights.size
        weights = target.loss_weights(at.losses) + (capped if n_caps else 0.0)
    active = np.flatnonzero(multipliers.rows)
    gradient: Vector = weights @ at.loss_grads
    if active.size:
        gradient = gradient + multipliers.rows[active] @ at.violation_grads(active)
    return gradient


def lagrangian_hessian(multipliers: Multipliers, target: Target, at: Evaluation) -> Matrix:
    """The clients' parts, the L2 term, and that of a smooth maximum itself."""
    hessian = at.problem.l2 * multipliers.losses.sum() * np.eye(at.params.size)
    for report in at.reports:
        assert report.curvature is not None
        hessian += report.curvature
    if target.temperature is not None and np.isfinite(target.temperature):
        weights = target.loss_weights(at.losses)
        centred = at.loss_grads - weights @ at.loss_grads
        hessian += (centred.T * (weights / target.temperature)) @ centred
    return np.asarray(hessian)


def active_grads(multipliers: Multipliers, target: Target, at: Evaluation) -> Matrix:
    """Gradients of what the step holds fixed to first order.

    These are the budgets and the caps with weight and, of the largest losses, the differences from
    their mean.
    """
    weights = multipliers.losses
    held = [at.violation_grads(np.flatnonzero(multipliers.rows > _WEIGHT))]
    if target.temperature is None:
        worst = np.flatnonzero(weights > _WEIGHT)
        losses = np.array([at.loss_grad(int(k)) for k in worst])
        held.append(losses - weights[worst] @ losses / weights[worst].sum())
    elif target.caps.size:
        capped = np.flatnonzero(weights > 1.0 / weights.size + _WEIGHT)
        held.extend(at.loss_grad(int(k))[None] for k in capped)
    return np.vstack(held)


def curvature_weights(
    problem: Problem, multipliers: Multipliers
) -> dict[ClientId, CurvatureWeights]:
    """Each client's weights in the Lagrangian: of its loss, and net of each of its rates."""
    shape = (len(problem.clients), problem.n_rates)
    rates = problem.constraints.weigh_rates(multipliers.rows).reshape(shape)
    return {
        client: CurvatureWeights(float(multipliers.losses[i]), rates[i])
        for i, client in enumerate(problem.clients)
    }
