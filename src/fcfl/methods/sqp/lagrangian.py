r"""The Lagrangian of a stage: its weights, its gradient, its curvature.

.. math:: L(\theta) = \sum_k \lambda_k l_k(\theta) + \sum_j \mu_j v_j(\theta)

over clients k and constraint rows j. The weights :math:`\lambda` include the multipliers of caps on
the losses. It is a sum over clients, because each row is linear in the clients' rates.
"""

from dataclasses import dataclass

import numpy as np

from fcfl._types import ClientId, CurvatureWeights, Matrix, Vector
from fcfl.methods.sqp.subproblem import Step, Target
from fcfl.problem.evaluation import Evaluation, Problem

# A multiplier below this is rounding: the dual solver leaves residuals of at most about 1e-9.
_WEIGHT = 1e-8


@dataclass(frozen=True)
class Multipliers:
    r"""Weights :math:`\lambda` of the losses (clients,) and :math:`\mu` of the rows (rows,)."""

    losses: Vector
    rows: Vector


def loss_weights(target: Target, at: Evaluation, step: Step) -> Vector:
    """Weight of each client's loss in the Lagrangian, predicted for the end of the step.

    For the maximum they are multipliers of the subproblem. For a smooth objective they are its
    gradient at the losses that the linear model predicts: nearer to those of the next iterate than
    its gradient here. Multipliers of caps are added.
    """
    if target.temperature is None:
        weights = step.objective_weights.copy()
    else:
        weights = target.loss_weights(at.losses + at.slopes(step.direction)[0])
    weights[: target.caps.size] += step.constraint_weights[: target.caps.size]
    return weights


def lagrangian_grad(multipliers: Multipliers, target: Target, at: Evaluation) -> Vector:
    r"""Gradient :math:`\sum_k \lambda_k \nabla l_k + \sum_j \mu_j \nabla v_j` at ``at``, (params,).

    A smooth objective weighs the losses as they are at this point, not as the multipliers say: its
    own curvature is then part of the difference between two gradients. Only rows with a multiplier
    are gathered.
    """
    weights, n_caps = multipliers.losses, target.caps.size
    if target.temperature is not None:
        capped = np.zeros(weights.size)
        # With caps the objective is the mean; what a weight has beyond 1/N is the cap's multiplier.
        capped[:n_caps] = weights[:n_caps] - 1.0 / weights.size
        weights = target.loss_weights(at.losses) + (capped if n_caps else 0.0)
    active = np.flatnonzero(multipliers.rows)
    gradient: Vector = weights @ at.loss_grads
    if active.size:
        gradient = gradient + multipliers.rows[active] @ at.violation_grads(active)
    return gradient


def lagrangian_hessian(multipliers: Multipliers, target: Target, at: Evaluation) -> Matrix:
    r"""Hessian of the Lagrangian: the clients' parts, the L2 term, the objective's; (n, n).

    A smooth maximum with temperature :math:`\delta` and weights w bends by itself: it adds
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
    """Gradients of what the step holds fixed to first order, one row each.

    These are the budgets and caps with a positive multiplier and, of the losses that share the
    maximum, the differences from their mean. Curvature across these rows does not change the step,
    so that it may be added to make the Hessian positive definite (`Exact.from_hessian`).
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
    r"""Each client's weights in the Lagrangian: of its loss, and net of each of its rates.

    With rows :math:`v = A r - b` over the stacked rates r, rate q has the net weight
    :math:`(A^T \mu)_q`. A client learns these weights, not the multipliers of others.
    """
    shape = (len(problem.clients), problem.n_rates)
    rates = problem.constraints.weigh_rates(multipliers.rows).reshape(shape)
    return {
        client: CurvatureWeights(float(multipliers.losses[i]), rates[i])
        for i, client in enumerate(problem.clients)
    }
