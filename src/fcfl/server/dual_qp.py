r"""The small quadratic programme of a step, in its dual.

.. math:: \max_x\; c^T x - \tfrac12 |W^T x|^2 \quad\text{s.t.}\quad x_1..x_N \text{ in the simplex},
          \; 0 \le x_j \le u_j \text{ for the others}

One variable per objective and constraint, whatever the number of parameters. ``W`` has one row
per variable: its gradient, whitened by the curvature. Rows may be equal, opposite, zero or more
than the columns, so the quadratic form is usually singular; the step ``W^T x`` is unique all the
same.

DAQP's active-set method solves the small ones, Clarabel's interior-point method the large ones
and whatever DAQP gets wrong; a Newton step on the free variables then takes off what a solver's
tolerance left. A solution is judged by its own KKT residual, never by a solver's word. The choice
was made by measurement: docs/qp-solvers.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import clarabel
import daqp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import Matrix, Vector
from fcfl.errors import SolverError

_SMALL = 400  # variables up to which the active-set method is the faster one
_GOOD = 1e-9  # scaled KKT residual at which a solution is taken
_USABLE = 1e-6  # scaled KKT residual above which no solver has solved it
_TINY = 1e-300


@dataclass(frozen=True)
class _Dual:
    """The programme with ``c`` shifted on the simplex, so that its largest entry there is zero."""

    W: Matrix
    c: Vector
    on_simplex: NDArray[np.bool_]
    upper: Vector

    @property
    def lengths(self) -> Vector:
        squared: Vector = (self.W * self.W).sum(axis=1)
        return np.sqrt(squared)

    def tidy(self, x: Vector) -> Vector:
        """The nearest feasible point, nearly: clipped, and summing to one on the simplex."""
        x = np.clip(x, 0.0, self.upper)
        on = self.on_simplex
        total = x[on].sum()
        x[on] = x[on] / total if total > 0 else 1.0 / on.sum()
        return x

    def pull(self, x: Vector) -> tuple[Vector, float]:
        """Scaled gradient of the objective (positive: wants to grow), and the simplex's level."""
        q = self.c - self.W @ (self.W.T @ x)
        level = float(x[self.on_simplex] @ q[self.on_simplex])
        scale = max(np.abs(self.c).max(), np.abs(q - self.c).max(), _TINY)
        return (q - level * self.on_simplex) / scale, level

    def residual(self, x: Vector) -> float:
        """Largest natural residual: zero exactly at a solution."""
        pull, _ = self.pull(x)
        bounded = np.clip(-pull, x - self.upper, x)
        return float(np.abs(np.where(self.on_simplex, np.minimum(x, -pull), bounded)).max())


def solve_dual_qp(W: Matrix, c: Vector, n_simplex: int, upper: Vector) -> Vector:
    """Weights of the objectives (on the simplex) and of the constraints (within ``upper``).

    Raises `SolverError` when no solver reaches a scaled KKT residual of 1e-6.
    """
    if not (np.isfinite(W).all() and np.isfinite(c).all()):
        raise SolverError("The step's quadratic programme has a non-finite entry.")
    if W.shape[1] > W.shape[0]:
        W = np.asarray(np.linalg.qr(W.T, mode="r")).T  # the same inner products in fewer columns
    on_simplex = np.arange(W.shape[0]) < n_simplex
    bounds = np.concatenate([np.ones(n_simplex), upper])
    dual = _Dual(W, c - on_simplex * c[:n_simplex].max(), on_simplex, bounds)
    if n_simplex == 1 and upper.size == 0:
        return np.ones(1)
    best, best_residual = np.full(c.size, np.nan), np.inf
    for attempt in _attempts(dual):
        x = attempt(dual)
        if not np.isfinite(x).all():
            continue
        x = _polish(dual, dual.tidy(x))
        residual = dual.residual(x)
        if residual < best_residual:
            best, best_residual = x, residual
        if residual <= _GOOD:
            return best
    if best_residual > _USABLE:
        raise SolverError(
            f"The step's quadratic programme ({c.size} variables) was not solved: "
            f"residual {best_residual:.1e}."
        )
    return best


def _attempts(dual: _Dual) -> list[Callable[[_Dual], Vector]]:
    """Solvers in the order in which they are tried."""
    typical = max(float(np.median(dual.lengths**2)), np.abs(dual.c).max(), _TINY)
    active_set = [lambda d: _by_daqp(d, 1e-14), lambda d: _by_daqp(d, 3e-13)]
    interior = [lambda d: _by_clarabel(d, typical), lambda d: _by_clarabel(d, 1.0)]
    if dual.c.size > _SMALL:
        return [*interior, *active_set]
    return [active_set[0], interior[0], active_set[1], interior[1]]


def _by_daqp(dual: _Dual, dual_tolerance: float) -> Vector:
    """Active set on the dense dual, constraint rows brought to the objective rows' length.

    DAQP's default tolerance ends its proximal loop too early on a scaled singular form and reports
    success; 1e-14 to 3e-13 is where it is right.
    """
    lengths, on = dual.lengths, dual.on_simplex
    longest = lengths[on].max() or lengths.max() or 1.0
    objective = max(longest**2, np.abs(dual.c).max())
    scale = np.where(on | (lengths == 0), 1.0, np.clip(lengths / longest, 1e-8, 1e8))
    V = dual.W / (scale * np.sqrt(objective))[:, None]
    m = dual.c.size
    x, *_ = daqp.solve(
        V @ V.T,
        -dual.c / scale / objective,
        on[None].astype(np.float64),
        np.append(np.where(on, 1e30, dual.upper * scale), 1.0),
        np.append(np.zeros(m), 1.0),
        np.append(np.zeros(m), 5).astype(np.int32),
        primal_tol=1e-11,
        dual_tol=dual_tolerance,
        iter_limit=5 * m + 500,
    )
    solution: Vector = np.asarray(x, dtype=np.float64) / scale
    return solution


def _by_clarabel(dual: _Dual, objective: float) -> Vector:
    """Interior point on the primal (step, level, slacks), whose multipliers are the solution."""
    W, on = dual.W, dual.on_simplex
    m, r = W.shape
    n_others = int((~on).sum())
    settings = clarabel.DefaultSettings()
    settings.verbose = settings.presolve_enable = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    rows = sparse.csc_array(np.hstack([W / np.sqrt(objective), -on[:, None].astype(np.float64)]))
    slack = -sparse.eye_array(n_others, format="csc")
    none = sparse.csc_array((m - n_others, n_others))
    blocks = [[rows, sparse.vstack([none, slack])], [None, slack]] if n_others else [[rows]]
    A = sparse.csc_matrix(sparse.block_array(blocks, format="csc"))
    P = sparse.csc_matrix(sparse.diags_array(np.append(np.ones(r), np.zeros(1 + n_others))))
    q = np.concatenate([np.zeros(r), [1.0], dual.upper[~on]])
    h = np.concatenate([-dual.c / objective, np.zeros(n_others)])
    cones = [clarabel.NonnegativeConeT(m + n_others)]
    return np.array(clarabel.DefaultSolver(P, q, A, h, cones, settings).solve().z)[:m]


def _polish(dual: _Dual, x: Vector) -> Vector:
    """Up to three least-norm Newton steps on the free variables, while the residual falls."""
    on, W = dual.on_simplex, dual.W
    residual = dual.residual(x)
    for _ in range(3):
        pull, level = dual.pull(x)
        free = (x > -pull) & (on | (x < dual.upper - pull))
        fixed = np.where((pull < 0) | on, 0.0, dual.upper)
        y = np.where(free, x, fixed)
        F, sums = W[free], on[free, None].astype(np.float64)
        scale = max((F * F).sum(axis=1).max(initial=0.0), _TINY)
        K = np.block([[F @ F.T / scale, sums], [sums.T, np.zeros((1, 1))]])
        defect = (dual.c[free] - F @ (W.T @ y) - level * sums[:, 0]) / scale
        step = np.linalg.lstsq(K, np.append(defect, 1.0 - y[on].sum()), rcond=1e-13)[0]
        y[free] += step[:-1]
        y = dual.tidy(y)
        if not dual.residual(y) < residual:
            break
        x, residual = y, dual.residual(y)
    return x
