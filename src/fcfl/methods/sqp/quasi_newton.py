r"""Curvature of the Lagrangian, exact or by damped limited-memory BFGS.

Either is a positive definite ``B`` behind two operations: `whiten` gives rows ``W`` with
``W W^T = J B^{-1} J^T``, `solve` gives ``B^{-1} g``. That is all a step needs.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from fcfl._types import Matrix, Vector
from fcfl.errors import SolverError

# Entries up to which rows are whitened one by one: for a matrix BLAS starts threads, which cost
# milliseconds on a busy machine.
_FEW_ENTRIES = 100_000

# Powell's damping: the curvature along a step is at least this share of the model's. The Lagrangian
# need not be convex, and BFGS stays positive definite only while it is along every step.
_DAMPING = 0.2


class Curvature(Protocol):
    """A positive definite matrix ``B``, known by what it does.

    `whiten` takes rows ``J`` of shape (m, params) to ``W`` with ``W W^T = J B^{-1} J^T``, `solve`
    takes ``g`` to ``B^{-1} g``, `scaled` gives ``factor * B``.
    """

    def whiten(self, rows: Matrix) -> Matrix: ...  # noqa: D102
    def solve(self, gradient: Vector) -> Vector: ...  # noqa: D102
    def scaled(self, factor: float) -> "Curvature": ...  # noqa: D102


@dataclass(frozen=True)
class Exact:
    """A dense matrix made positive definite: ``B = L L^T``."""

    factor: Matrix

    def __post_init__(self) -> None:
        if not np.isfinite(self.factor).all():
            raise SolverError("The curvature of a step has a non-finite entry.")

    @classmethod
    def from_hessian(cls, hessian: Matrix, floor: float = 1e-8) -> "Exact":
        """The Hessian itself if it is positive definite by ``floor`` times its largest entry.

        Else the matrix with its absolute eigenvalues, at least so large.
        """
        symmetric = (hessian + hessian.T) / 2
        largest = max(float(np.abs(symmetric).max()), 1.0)
        try:
            np.linalg.cholesky(symmetric - floor * largest * np.eye(symmetric.shape[0]))
            return cls(np.asarray(np.linalg.cholesky(symmetric), dtype=np.float64))
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(symmetric)
        lifted = np.maximum(np.abs(values), floor * largest)
        root: Matrix = np.asarray(np.linalg.qr((vectors * np.sqrt(lifted)).T, mode="r"))
        return cls(root.T)

    def whiten(self, rows: Matrix) -> Matrix:
        """``W = J L^{-T}``."""
        if rows.size <= _FEW_ENTRIES:
            solved = [self._solve_lower(row) for row in rows]
            return np.array(solved).reshape(rows.shape)
        whitened: Matrix = self._solve_lower(rows.T).T
        return whitened

    def solve(self, gradient: Vector) -> Vector:
        """``B^{-1} g``."""
        return self._solve_lower(self._solve_lower(gradient), trans="T")

    def scaled(self, factor: float) -> "Exact":
        """``factor * B``."""
        return Exact(np.sqrt(factor) * self.factor)

    def _solve_lower(self, right: Matrix, trans: Literal["N", "T"] = "N") -> Matrix:
        """``L^{-1} right``, or with ``L^T``.

        SciPy would look through the whole factor for a NaN each time, which takes longer than the
        solution; it was looked through once.
        """
        solved: Matrix = solve_triangular(
            self.factor, right, trans=trans, lower=True, check_finite=False
        )
        return solved


@dataclass(frozen=True)
class LimitedMemory:
    r"""BFGS from the last pairs of steps ``s`` and gradient changes ``y``, oldest first.

    The inverse is :math:`V_k^T \dots V_1^T \gamma V_1 \dots V_k + \sum_i \rho_i (\cdot)(\cdot)^T`
    with :math:`V = I - \rho y s^T`; it is never formed.
    """

    steps: Matrix
    changes: Matrix
    scale: float = 1.0

    def whiten(self, rows: Matrix) -> Matrix:
        r"""Rows of a factor of ``J B^{-1} J^T``, by the first loop of the two-loop recursion.

        :math:`g^T B^{-1} g = \gamma |q|^2 + \sum_i \rho_i (s_i^T q_i)^2`, a sum of squares: nothing
        cancels.
        """
        rest = rows.copy()
        extra = np.empty((rows.shape[0], self.steps.shape[0]))
        for i in range(self.steps.shape[0] - 1, -1, -1):
            s, y = self.steps[i], self.changes[i]
            rho = 1.0 / (s @ y)
            along = rest @ s
            extra[:, i] = np.sqrt(rho) * along
            rest -= np.outer(rho * along, y)
        return np.hstack([np.sqrt(self.scale) * rest, extra])

    def solve(self, gradient: Vector) -> Vector:
        """``B^{-1} g`` by the two-loop recursion."""
        rest = gradient.copy()
        weights = np.empty(self.steps.shape[0])
        for i in range(self.steps.shape[0] - 1, -1, -1):
            s, y = self.steps[i], self.changes[i]
            weights[i] = (s @ rest) / (s @ y)
            rest -= weights[i] * y
        rest *= self.scale
        for i, (s, y) in enumerate(zip(self.steps, self.changes, strict=True)):
            rest += (weights[i] - (y @ rest) / (s @ y)) * s
        return rest

    def updated(self, s: Vector, y: Vector, Bs: Vector, memory: int) -> "LimitedMemory":
        r"""The memory with one more pair, damped so that ``s · y`` stays positive.

        ``Bs`` is the product of the present matrix with the step. Where
        :math:`s^T y < 0.2\, s^T B s`, y is replaced by :math:`\phi y + (1 - \phi) B s` with the
        :math:`\phi` that makes the product exactly that (Powell, 1978). At most ``memory`` pairs
        are kept; the scale is :math:`s^T y / y^T y` of the newest.
        """
        model = s @ Bs
        if not model > 0:
            return self
        if s @ y < _DAMPING * model:
            share = (1 - _DAMPING) * model / (model - s @ y)
            y = share * y + (1 - share) * Bs
        steps = np.vstack([self.steps, s])[-memory:]
        changes = np.vstack([self.changes, y])[-memory:]
        return LimitedMemory(steps, changes, float((s @ y) / (y @ y)))

    def scaled(self, factor: float) -> "LimitedMemory":
        """``factor * B``."""
        return LimitedMemory(self.steps, factor * self.changes, self.scale / factor)

    @property
    def n_pairs(self) -> int:
        """How many pairs are remembered."""
        return int(self.steps.shape[0])

    def newer_half(self) -> "LimitedMemory":
        """The memory with the newer half of its pairs; of one pair, none remains."""
        older = (self.n_pairs + 1) // 2
        return LimitedMemory(self.steps[older:], self.changes[older:], self.scale)


def no_memory(n_params: int, scale: float = 1.0) -> LimitedMemory:
    """The identity, before any step."""
    return LimitedMemory(np.zeros((0, n_params)), np.zeros((0, n_params)), scale)
