"""The one linear programme of the paper, on the Gram matrix of the gradients.

A step is ``params - step * (weights @ jacobian)`` with ``weights`` on the simplex. Both stages
ask for the weights that improve one objective most while protecting others; only inner products
of gradients enter, so the programme has as many variables as there are gradients, whatever the
number of parameters.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from fcfl._types import Matrix, Vector
from fcfl.errors import SolverError

SLOPE_TOLERANCE = 1e-7  # on unit-scaled rows; HiGHS's own feasibility tolerance
_PIVOT_TOLERANCE = 1e-11  # on unit-scaled rows; what the pivots prove is tighter than HiGHS's 1e-7
_LAZY_BATCH = 32  # protected objectives taken into the programme at a time


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
        quick = _by_pivots(gain, slopes[active])
        weights = _by_highs(gain, slopes[active]) if quick is None else quick


def _by_pivots(gain: Vector, slopes: Matrix, max_pivots: int = 60) -> Vector | None:
    """Maximise ``gain @ w`` subject to ``slopes @ w >= 0`` over the simplex, by a few dual pivots.

    The vertex of the largest gain is dual feasible, and the optimum is usually one to three pivots
    away: much less work than setting up a solver. ``None`` unless the result proves itself optimal.
    """
    p, m = slopes.shape
    best = int(np.argmax(gain))
    table = np.zeros((p + 1, m + p + 1))  # columns: weights, slacks of the slopes, right-hand side
    table[0, :m] = table[0, -1] = 1.0
    table[1:, :m] = slopes[:, [best]] - slopes
    table[1:, m:-1] = np.eye(p)
    table[1:, -1] = slopes[:, best]
    reduced = np.concatenate([gain - gain[best], np.zeros(p)])
    basis = np.concatenate([[best], np.arange(m, m + p)])
    for _ in range(max_pivots):
        row = int(np.argmin(table[:, -1]))
        if table[row, -1] >= -_PIVOT_TOLERANCE:
            break
        open_columns = np.flatnonzero(table[row, :-1] < -_PIVOT_TOLERANCE)
        if open_columns.size == 0:
            return None
        ratios = reduced[open_columns] / table[row, open_columns]
        enter = int(open_columns[np.argmin(ratios)])
        table[row] /= table[row, enter]
        others = table[:, enter].copy()
        others[row] = 0.0
        table -= np.outer(others, table[row])
        reduced = reduced - reduced[enter] * table[row, :-1]
        basis[row] = enter
    weights = np.zeros(m + p)
    weights[basis] = table[:, -1]
    weights = weights[:m]
    proven = weights.min() >= -_PIVOT_TOLERANCE and reduced.max() <= _PIVOT_TOLERANCE
    if not proven or (slopes @ weights).min() < -_PIVOT_TOLERANCE * 10:
        return None
    return _onto_simplex(weights)


def _onto_simplex(weights: Vector) -> Vector:
    """Take off what rounding left."""
    positive = np.maximum(weights, 0.0)
    scaled: Vector = positive / positive.sum()
    return scaled


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
    return _by_highs(gain, with_margin, free_last=True)[:n]


def _by_highs(gain: Vector, slopes: Matrix, *, free_last: bool = False) -> Vector:
    """The same by HiGHS; with ``free_last`` the last variable is no weight."""
    n = gain.size - free_last
    total = np.ones((1, gain.size))
    total[0, n:] = 0.0
    bounds = [(0.0, None)] * n + [(-1.0, 1.0)] * free_last
    for method in ("highs-ds", "highs-ipm"):
        answer = linprog(
            -gain,
            A_ub=-slopes,
            b_ub=np.zeros(slopes.shape[0]),
            A_eq=total,
            b_eq=[1.0],
            bounds=bounds,
            method=method,
        )
        if answer.status == 0:
            return np.concatenate([_onto_simplex(answer.x[:n]), answer.x[n:]])
    raise SolverError(
        f"HiGHS failed on a direction problem with {n} gradients and {slopes.shape[0]} "
        f"protected objectives, which always has a solution: {answer.message}"
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
