r"""The small quadratic programme of a step, in its dual.

.. math:: \max_x\; c^T x - \tfrac12 |W^T x|^2 \quad\text{s.t.}\quad x_1..x_N \text{ in the simplex},
          \; 0 \le x_j \le u_j \text{ for the others}

The dual has one variable per objective and constraint, for any number of parameters. Each row of
``W`` is the gradient of a variable's objective or constraint, whitened by the curvature. The
quadratic form is usually singular, because rows may be equal, opposite, zero or more numerous than
columns. The step ``W^T x`` is nevertheless unique.

The active-set method of DAQP is tried first. The interior-point method of Clarabel solves very
large programmes and those on which DAQP fails. Newton steps on the free variables then reduce the
remaining error. A solution is accepted by its own KKT residual, not by a solver's status. `python
-m benchmarks qp` compares the two solvers.
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

# The order of solvers was chosen by `python -m benchmarks qp`.
_SMALL = 3000  # largest number of variables for which the active-set method is tried first
_REDUCE = 100  # largest number of variables for which the columns of W are reduced
# With many more variables than columns, most variables are interchangeable, and the active-set
# method exchanges them one by one. With 1,100 variables and 11 columns it took 10 to 50 s, the
# interior-point method .05 s. The latter's residual of up to 1e-6 under large bounds is acceptable.
_CROWDED = 3  # ratio of variables to columns above which this applies
_ROUGH = 1e-6  # scaled KKT residual at which a solution is accepted in this case
_GOOD = 1e-9  # scaled KKT residual at which a solution is accepted
_BETTER = 1e-12  # the same for up to _REDUCE variables, where a second solver costs little
# Scaled KKT residual above which the programme counts as unsolved. A problem with 35 clients,
# groups of one row and 520 variables had a residual of 1.2e-6. An inaccurate solution is safe: its
# step must pass the line search, and a run ends by the KKT residual of its multipliers.
_USABLE = 1e-4
_POLISHED = 1e-13  # scaled KKT residual at the level of rounding
_TINY = 1e-300  # prevents division by zero for a zero row


@dataclass(frozen=True)
class _Dual:
    """The programme, with ``c`` shifted so that its largest entry on the simplex is zero.

    ``gramian`` is ``W @ W.T``, and ``lengths`` are the norms of the rows of ``W``.
    """

    W: Matrix
    gramian: Matrix
    c: Vector
    on_simplex: NDArray[np.bool_]
    upper: Vector
    lengths: Vector

    @property
    def is_crowded(self) -> bool:
        """Whether the programme has many more variables than columns."""
        return bool(self.c.size > max(_REDUCE, _CROWDED * self.W.shape[1]))

    def tidy(self, x: Vector) -> Vector:
        """Return a nearby feasible point by clipping and normalisation."""
        x = np.clip(x, 0.0, self.upper)
        on = self.on_simplex
        total = x[on].sum()
        x[on] = x[on] / total if total > 0 else 1.0 / on.sum()
        return x

    def pull(self, x: Vector) -> tuple[Vector, float]:
        """Return the scaled gradient of the objective, and the level of the simplex.

        The scale is the size of the gradient's terms, so that rounding errors are near 1e-16.
        """
        q = self.c - self.W @ (self.W.T @ x)
        level = float(x[self.on_simplex] @ q[self.on_simplex])
        scale = max(np.abs(self.c).max(), self.lengths.max() * (self.lengths @ x), _TINY)
        return (q - level * self.on_simplex) / scale, level

    def residual(self, x: Vector) -> float:
        """Return the largest natural residual, which is zero exactly at a solution."""
        pull, _ = self.pull(x)
        bounded = np.clip(-pull, x - self.upper, x)
        return float(np.abs(np.where(self.on_simplex, np.minimum(x, -pull), bounded)).max())


def solve_dual_qp(W: Matrix, c: Vector, n_simplex: int, upper: Vector) -> Vector:
    """Return weights of the objectives (on the simplex) and of the constraints (up to ``upper``).

    Raise `SolverError` if no solver reaches a scaled KKT residual of 1e-4.
    """
    if not (np.isfinite(W).all() and np.isfinite(c).all()):
        raise SolverError("The step's quadratic programme has a non-finite entry.")
    if n_simplex == 1 and upper.size == 0:
        return np.ones(1)
    dual = _pose(W, c, n_simplex, upper)
    good = _BETTER if c.size <= _REDUCE else _ROUGH if dual.is_crowded else _GOOD
    best, best_residual = np.full(c.size, np.nan), np.inf
    for attempt in _attempts(dual):
        x = attempt(dual)
        if not np.isfinite(x).all():
            continue
        x = _polish(dual, dual.tidy(x))
        residual = dual.residual(x)
        if residual < best_residual:
            best, best_residual = x, residual
        if residual <= good:
            return best
    if best_residual > _USABLE:
        raise SolverError(
            f"The step's quadratic programme ({c.size} variables) was not solved: "
            f"residual {best_residual:.1e}."
        )
    return best


def _pose(W: Matrix, c: Vector, n_simplex: int, upper: Vector) -> _Dual:
    """Reduce the programme to few columns; solutions depend on W through inner products only."""
    m, n = W.shape
    if n > m and m <= _REDUCE:
        W = np.asarray(np.linalg.qr(W.T, mode="r")).T  # fewer columns with equal inner products
    gramian = W @ W.T
    on_simplex = np.arange(m) < n_simplex
    bounds = np.concatenate([np.ones(n_simplex), upper])
    shifted = c - on_simplex * c[:n_simplex].max()
    return _Dual(W, gramian, shifted, on_simplex, bounds, np.sqrt(np.diag(gramian)))


def _attempts(dual: _Dual) -> list[Callable[[_Dual], Vector]]:
    """Return the solvers in the order in which they are tried."""
    typical = max(float(np.median(dual.lengths**2)), np.abs(dual.c).max(), _TINY)
    active_set = [lambda d: _by_daqp(d, 1e-14), lambda d: _by_daqp(d, 3e-13)]
    interior = [lambda d: _by_clarabel(d, typical), lambda d: _by_clarabel(d, 1.0)]
    if dual.c.size > _SMALL or dual.is_crowded:
        return [*interior, *active_set]
    return [active_set[0], interior[0], active_set[1], interior[1]]


def _by_daqp(dual: _Dual, dual_tolerance: float) -> Vector:
    """Solve the dense dual by active sets, constraint rows scaled to the objective rows' length.

    With its default tolerance, DAQP ends the proximal loop too early on a scaled singular form and
    reports success. Tolerances from 1e-14 to 3e-13 are reliable. Rows of length zero do not affect
    the quadratic form and are excluded. The largest objective among them receives the remaining
    weight.
    """
    on = dual.on_simplex
    flat = dual.lengths == 0
    x = np.where(flat & ~on & (dual.c > 0), dual.upper, 0.0)
    c, rest = dual.c, int(np.argmax(np.where(flat & on, dual.c, -np.inf)))
    has_rest = bool((flat & on).any())
    if has_rest:
        c = c - c[rest] * on
    if not flat.all():
        x[~flat] = _daqp_of_curved(dual, c, ~flat, dual_tolerance, fills=not has_rest)
    if has_rest:
        x[rest] = max(1.0 - x[on].sum(), 0.0)
    return x


def _daqp_of_curved(
    dual: _Dual, c: Vector, rows: NDArray[np.bool_], dual_tolerance: float, *, fills: bool
) -> Vector:
    """Return weights of rows of positive length; with ``fills`` they sum to one on the simplex."""
    on, lengths, c = dual.on_simplex[rows], dual.lengths[rows], c[rows]
    longest = lengths[on].max(initial=0.0) or lengths.max()
    largest = np.abs(c).max()
    weight = 1.0 if fills else min(1.0, largest / longest**2 or 1.0)  # the size of a weight
    objective = weight * max(weight * longest**2, largest)
    scale = np.where(on, 1.0, np.clip(lengths / longest, 1e-8, 1e8)) / weight
    inverse = 1.0 / (scale * np.sqrt(objective))
    m = c.size
    solved, *_ = daqp.solve(
        dual.gramian[np.ix_(rows, rows)] * np.outer(inverse, inverse),
        -c / scale / objective,
        (on / scale)[None],
        np.append(np.where(on, 1e30, dual.upper[rows] * scale), 1.0),
        np.append(np.zeros(m), 1.0 if fills else -1e30),
        np.append(np.zeros(m), 5 if fills else 0).astype(np.int32),
        primal_tol=1e-11,
        dual_tol=dual_tolerance,
        iter_limit=5 * m + 500,
    )
    weights: Vector = np.asarray(solved, dtype=np.float64) / scale
    return weights


def _by_clarabel(dual: _Dual, objective: float) -> Vector:
    """Solve the primal (step, level, slacks) by interior points; return its multipliers."""
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
    """Take up to three Newton steps on the free variables while the residual decreases."""
    residual = dual.residual(x)
    for _ in range(3):
        if residual <= _POLISHED:
            break
        y = dual.tidy(_newton_step(dual, x))
        if not dual.residual(y) < residual:
            break
        x, residual = y, dual.residual(y)
    return x


def _newton_step(dual: _Dual, x: Vector) -> Vector:
    """Return the minimum-norm solution for the free variables, with the others at their bounds.

    A variable counts as free if the minimum along it is inside its bounds.
    """
    on, H = dual.on_simplex, dual.gramian
    q = dual.c - dual.W @ (dual.W.T @ x)
    level = float(x[on] @ q[on])
    with np.errstate(over="ignore"):  # a zero row has no curvature
        reach = x + (q - level * on) / np.maximum(np.diag(H), _TINY)
    free = (reach > 0) & (on | (reach < dual.upper))
    if not free[on].any():
        free[int(np.argmax(np.where(on, reach, -np.inf)))] = True
    y = np.where(free, x, np.where(on | (reach <= 0), 0.0, dual.upper))
    sums = on[free, None].astype(np.float64)
    scale = max((dual.lengths[free] ** 2).max(), _TINY)
    K = np.block([[H[np.ix_(free, free)] / scale, sums], [sums.T, np.zeros((1, 1))]])
    defect = (dual.c[free] - H[free] @ y - level * sums[:, 0]) / scale
    target = np.append(defect, 1.0 - y[on].sum())
    y[free] += np.linalg.lstsq(K, target, rcond=1e-13)[0][:-1]
    return y
