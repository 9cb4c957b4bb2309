r"""How far rates drift on new rows, because a fit moves along the noise of its own.

A fit with multipliers :math:`\mu` holds rate q by :math:`\nu = A^T \mu`. On new rows that rate
differs, on average and to first order, by

.. math:: d_q = \nu_q \, \mathrm{tr}(H^{-1} C_q)

with H the Hessian of the losses in the objective's weights and :math:`C_q` the covariance of the
rate's gradient: next to nothing for large groups, and more than the budget for a few dozen rows.
Under lower bounds b the multipliers of a client's rows rise. They are those of the quadratic model

.. math:: \min_{\mu \ge 0} \tfrac12 (\mu - \mu_0)^T G (\mu - \mu_0) - (\mu - \mu_0)^T (A r - b),
          \qquad G = A \nabla r\, H^{-1} \nabla r^T A^T

so that the drift under any margin is known from the model without margins.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from fcfl._types import CurvatureWeights, Matrix, Point, Request, Vector
from fcfl.errors import ReportError
from fcfl.federation.federation import Bound
from fcfl.models.gradient_spread import GradientSpread
from fcfl.server.problem import Evaluation, evaluate_point

# Of Adult's larger client (4,700 rows in its smaller group) the drift is what margins have for it
# anyway (`benchmarks.promise drift`); of larger groups it is not worth two passes over the rows.
DRIFTING_BELOW = 5_000
_RIDGE = 1e-9  # opposite rows are parallel: of the multipliers that do the same, the smallest


@dataclass(frozen=True)
class Drift:
    r"""What is known of the drift at a model, before its bounds are lowered.

    ``spreads`` are the traces of all rates, stacked client by client; ``multipliers`` and
    ``values`` those of the rows and their left-hand sides; ``gramians`` the matrices G, with the
    rows of each, which no two share.
    """

    spreads: Vector
    multipliers: Vector
    values: Vector
    gramians: tuple[tuple[NDArray[np.int64], Matrix], ...]

    def multipliers_under(self, bounds: Vector) -> Vector:
        """The rows' multipliers under lower bounds, by the quadratic model."""
        found = np.zeros(len(bounds))
        for rows, gramian in self.gramians:
            pull = gramian @ self.multipliers[rows] + self.values[rows] - bounds[rows]
            scale = max(float(np.trace(gramian)), 1e-300)
            root = np.linalg.cholesky(gramian / scale + _RIDGE * np.eye(len(rows)))
            found[rows] = nnls(root.T, solve_triangular(root, pull / scale, lower=True))[0]
        return found


def spreads_at(
    clients: Bound, at: Evaluation, loss_weights: Vector
) -> tuple[Vector, Matrix, Evaluation] | None:
    """The traces of all rates, a factor F of the inverse Hessian, and gradients beside it.

    None where there is none: a network's Hessian need not be positive definite. Where all groups
    are large, it is not asked.
    """
    counts = np.concatenate([report.group_counts for report in at.reports])
    if not ((counts > 0) & (counts < DRIFTING_BELOW)).any():
        return None
    problem, none = at.problem, np.zeros(at.problem.n_rates)
    weights = {
        client: CurvatureWeights(float(weight), none)
        for client, weight in zip(problem.clients, loss_weights, strict=True)
    }
    bent = _asked(clients, at, Point(at.params, "curvature", weights))
    hessian = problem.l2 * loss_weights.sum() * np.eye(at.params.size) + bent.curvature
    try:
        root = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        return None
    factor: Matrix = solve_triangular(root, np.eye(at.params.size), lower=True).T
    try:
        told = _asked(clients, at, Point(at.params, extras=(GradientSpread(factor),)))
    except ReportError:  # a client of your own need not know the question
        return None
    spreads = np.concatenate([report.extras["gradient_spread"] for report in told.reports])
    return spreads, factor, bent


def _asked(clients: Bound, at: Evaluation, point: Point) -> Evaluation:
    with clients.federation.phase("tighten"):
        reports = clients.evaluate(Request((point,)))
    clients.federation.check_all_answered("how rates answer to the model")
    return evaluate_point(at.problem, at.params, reports)


def drift_at(clients: Bound, at: Evaluation, state: Any) -> Drift | None:
    """The drift of a model, ``state`` being the last one of its training; None if not known."""
    found = spreads_at(clients, at, state.loss_weights)
    if found is None:
        return None
    spreads, factor, bent = found
    constraints = at.problem.constraints
    keys = [(row.client, row.attribute, row.kind) for row in constraints.rows]
    gramians = []
    for key in dict.fromkeys(keys):
        rows = np.array([i for i, one in enumerate(keys) if one == key])
        slopes = bent.violation_grads(rows) @ factor
        gramians.append((rows, slopes @ slopes.T))
    return Drift(spreads, state.row_weights, constraints.apply(at.rates), tuple(gramians))


def drifts_of(clients: Bound, at: Evaluation, state: Any) -> Vector | None:
    """By how much each rate will differ on new rows, stacked client by client; None if unknown."""
    found = spreads_at(clients, at, state.loss_weights)
    if found is None:
        return None
    return np.asarray(state.problem.constraints.weigh_rates(state.row_weights) * found[0])
