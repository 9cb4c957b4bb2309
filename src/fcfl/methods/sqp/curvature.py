r"""Curvature of the Lagrangian, as a positive definite matrix B.

A step uses two operations of B: `whiten` returns rows ``W`` with ``W W^T = J B^{-1} J^T``, and
`solve` returns ``B^{-1} g``. B is one of two classes:

* `Exact`: a Cholesky factor. The curvature of smooth rates is a hundred times that of losses, so
  the Hessian H of the Lagrangian is indefinite in about half of all rounds. `Damping` makes it
  positive definite and adapts the damping to the accuracy of past predictions:

  .. math:: B = t H + \big(f (1 - t) + \nu\big)\, s M + \sigma Q^T Q

  The metric M is the Hessian of the losses at the start, and s is the sum of the losses' weights.
  First, curvature is added along the gradients Q of the active rows, which does not affect a step
  that holds these rows fixed. If this is not sufficient, M replaces a share 1 - t of H. :math:`\nu`
  is a Levenberg-Marquardt damping.

* `LimitedMemory`: L-BFGS with Powell's damping, for any number of parameters.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from fcfl._types import Matrix, Vector
from fcfl.errors import SolverError

# Number of entries up to which rows are whitened one by one. For larger matrices BLAS starts
# threads, which costs milliseconds on a busy machine.
_FEW_ENTRIES = 100_000

# Powell's damping: smallest curvature along a step, as a share of the model's. BFGS requires
# positive curvature along every step to remain positive definite; the Lagrangian may be nonconvex.
_POWELL = 0.2

# Shares t of an indefinite Hessian to try, largest first.
_PARTS = (0.5, 0.25, 0.1, 0.03, 0.0)

# Curvature to add across the active rows, as shares of the largest curvature. The first share that
# makes the matrix positive definite is used, because the more is added, the more the step depends
# on the estimated active set.
_SHARES = (1e-3, 1e-2, 1e-1, 1.0)

# A matrix is accepted if it exceeds this share of the metric. The second value applies to matrices
# with added curvature across the active rows, because these rows also bound the step.
_MARGIN, _ACTIVE_MARGIN = 1e-2, 1e-3

# Lower limits on lifted eigenvalues, relative to the metric, for positive and for negative ones.
# The limit for negative ones is larger, because a small one may be a rounding error. Before
# lifting, a tenth of the largest curvature is added across the active rows.
_POSITIVE, _NEGATIVE, _LIFTED_SHARE = 1e-3, 1e-2, 1e-1

# Levenberg-Marquardt: the damping is multiplied by four after a step that achieves less than a
# quarter of its prediction, and divided by ten after one that achieves more than three quarters.
# Below _SMALLEST it is 0.
_POOR, _GOOD, _UP, _DOWN = 0.25, 0.75, 4.0, 0.1
_SMALLEST, _AFTER_REFUSAL = 1e-2, 1e-1

# Largest ratio of a step's length to the longest of the last full steps, and their number.
_GROWTH, _STORED = 3.0, 2

# A step of length a equals the full step of a matrix multiplied by 1/a. The damping is raised to at
# least this share of the increase 1/a - 1. With 0 the next full step would be rejected too, with 1
# steps would be too short.
_OF_SHORT_STEP = 0.3

# If a step achieves more than predicted, M is too stiff: losses have less curvature where
# probabilities are near 0 or 1 than at the start. The share f of M is then halved.
_BETTER_THAN_PREDICTED, _WORSE, _LEAST_SHARE = 1.2, 0.6, 0.02


class Curvature(Protocol):
    """A positive definite matrix ``B`` behind three operations.

    `whiten` maps rows ``J`` of shape (m, params) to ``W`` with ``W W^T = J B^{-1} J^T``, `solve`
    maps ``g`` to ``B^{-1} g``, `scaled` returns ``factor * B``.
    """

    def whiten(self, rows: Matrix) -> Matrix: ...  # noqa: D102
    def solve(self, gradient: Vector) -> Vector: ...  # noqa: D102
    def scaled(self, factor: float) -> "Curvature": ...  # noqa: D102


@dataclass(frozen=True)
class Exact:
    """A dense positive definite matrix ``B = L L^T``."""

    factor: Matrix

    def __post_init__(self) -> None:
        if not np.isfinite(self.factor).all():
            raise SolverError("The curvature of a step has a non-finite entry.")

    @classmethod
    def from_hessian(cls, hessian: Matrix, floor: float = 1e-8) -> "Exact":
        """Return the Hessian if it is positive definite by ``floor`` times its largest entry.

        Otherwise return the matrix with its absolute eigenvalues, none smaller than that.
        """
        symmetric = (hessian + hessian.T) / 2
        smallest = floor * max(float(np.abs(symmetric).max()), 1.0)
        found = _factored(symmetric, smallest * np.eye(symmetric.shape[0]))
        if found is not None:
            return found
        values, vectors = np.linalg.eigh(symmetric)
        lifted = np.maximum(np.abs(values), smallest)
        return cls(np.asarray(np.linalg.qr((vectors * np.sqrt(lifted)).T, mode="r")).T)

    def whiten(self, rows: Matrix) -> Matrix:
        """Return ``J L^{-T}``."""
        if rows.size <= _FEW_ENTRIES:
            solved = [self._solve_lower(row) for row in rows]
            return np.array(solved).reshape(rows.shape)
        whitened: Matrix = self._solve_lower(rows.T).T
        return whitened

    def solve(self, gradient: Vector) -> Vector:
        """Return ``B^{-1} g``."""
        return self._solve_lower(self._solve_lower(gradient), trans="T")

    def scaled(self, factor: float) -> "Exact":
        """Return ``factor * B``."""
        return Exact(np.sqrt(factor) * self.factor)

    def _solve_lower(self, right: Matrix, trans: Literal["N", "T"] = "N") -> Matrix:
        """Return ``L^{-1} right``, or with ``L^T``.

        SciPy's check for NaN takes longer than the solution, and the factor has been checked.
        """
        solved: Matrix = solve_triangular(
            self.factor, right, trans=trans, lower=True, check_finite=False
        )
        return solved


@dataclass(frozen=True)
class Damping:
    """The metric M, the damping ``level``, and the ``share`` f of M that replaces H.

    ``metric`` is empty before the first Hessian, and with L-BFGS. ``is_mixed`` is true if the last
    matrix contained the metric in place of H or had lifted eigenvalues. ``lengths`` are the lengths
    of the last full steps in the metric.
    """

    metric: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    level: float = 0.0
    share: float = 1.0
    is_mixed: bool = False
    lengths: tuple[float, ...] = ()

    def refused(self) -> "Damping":
        """Return the damping after a rejected step."""
        return replace(self, level=max(_UP * self.level, _AFTER_REFUSAL))

    def taken(self, ratio: float, length: float) -> "Damping":
        """Return the damping after a step that achieved ``ratio`` of its prediction."""
        level, share = self.level, self.share
        if length < 1:
            level = max(level, _OF_SHORT_STEP * (1 / length - 1))
        elif ratio > _GOOD:
            level = _DOWN * level if level > _SMALLEST else 0.0
        elif ratio < _POOR:
            level = max(_UP * level, _SMALLEST)
        if ratio > _BETTER_THAN_PREDICTED and self.is_mixed:
            share = max(share / 2, _LEAST_SHARE)
        elif ratio < _WORSE:
            share = min(2 * share, 1.0)
        return replace(self, level=level, share=share)

    def raised(self) -> "Damping":
        """Return a larger damping to shorten a step."""
        return replace(self, level=max(_UP * self.level, _SMALLEST))

    def arrived(self, step: Vector) -> "Damping":
        """Return the damping after a full step."""
        return replace(self, lengths=(*self.lengths, self._length(step))[-_STORED:])

    def reaches(self, step: Vector) -> bool:
        """Return whether a step is not much longer than the last full ones, if there are any."""
        return not self.lengths or self._length(step) <= _GROWTH * max(self.lengths)

    def _length(self, step: Vector) -> float:
        return float(np.sqrt(max(float(step @ self.metric @ step), 0.0)))

    def curvature(
        self, hessian: Matrix, active: Matrix, weight: float, *, is_near: bool = False
    ) -> tuple[Exact, "Damping"]:
        """Return B for the Hessian of a Lagrangian whose losses' weights sum to ``weight``.

        ``active`` has the gradients of the rows that the step holds fixed. Near an optimum
        (``is_near``) the eigenvalues of an indefinite Hessian are lifted one by one, because a
        mixture with the metric is too stiff in most directions.
        """
        metric = weight * self.metric
        symmetric = (hessian + hessian.T) / 2
        whole = _whole(symmetric + self.level * metric, active, metric)
        if whole is not None:
            return whole, replace(self, is_mixed=False)
        mixed = replace(self, is_mixed=True)
        if is_near:
            return _lifted(symmetric, active, metric, self.level), mixed
        for part in _PARTS:
            candidate = part * symmetric + (self.share * (1 - part) + self.level) * metric
            found = _factored(candidate, _MARGIN * metric)
            if found is not None:
                return found, mixed
        return Exact.from_hessian(candidate), mixed


def first_damping(hessian: Matrix) -> Damping:
    """Return zero damping, with the first Hessian made positive definite as metric."""
    factor = Exact.from_hessian(hessian).factor
    return Damping(factor @ factor.T)


def _factored(matrix: Matrix, margin: Matrix) -> Exact | None:
    """Return the factor of a matrix if it is positive definite after subtracting ``margin``."""
    try:
        np.linalg.cholesky(matrix - margin)
        return Exact(np.asarray(np.linalg.cholesky(matrix)))
    except np.linalg.LinAlgError:
        return None


def _whole(matrix: Matrix, active: Matrix, metric: Matrix) -> Exact | None:
    """Return the matrix with the least curvature across the active rows that makes it definite."""
    found = _factored(matrix, _MARGIN * metric)
    if found is not None or not active.any():
        return found
    added = _across(matrix, active)
    for share in _SHARES:
        found = _factored(matrix + share * added, _ACTIVE_MARGIN * metric)
        if found is not None:
            return found
    return None


def _lifted(matrix: Matrix, active: Matrix, metric: Matrix, level: float) -> Exact:
    """Return the matrix with positive eigenvalues relative to the metric, and damping.

    Negative eigenvalues change their sign, so that a step leaves a saddle point as fast as it
    approaches a minimum.
    """
    if active.any():
        matrix = matrix + _LIFTED_SHARE * _across(matrix, active)
    root = np.linalg.cholesky(metric)
    half = solve_triangular(root, matrix, lower=True)
    values, vectors = np.linalg.eigh(solve_triangular(root, half.T, lower=True))
    smallest = np.where(values > 0, _POSITIVE, _NEGATIVE)
    lifted = np.maximum(np.abs(values), smallest) + level
    factor = np.linalg.qr((root @ (vectors * np.sqrt(lifted))).T, mode="r")
    return Exact(np.asarray(factor).T)


def _across(matrix: Matrix, active: Matrix) -> Matrix:
    """Return curvature across the span of the active rows, with the size of the matrix's norm."""
    lengths: Vector = np.linalg.norm(active, axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(active / np.maximum(lengths, 1e-300), full_matrices=False)
    basis = directions[sizes > 1e-8 * sizes[0]]
    largest = np.abs(matrix).sum(axis=1).max()
    return np.asarray((largest * basis.T) @ basis)


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
        r"""Return rows of a factor of ``J B^{-1} J^T``, by the first loop of the recursion.

        :math:`g^T B^{-1} g = \gamma |q|^2 + \sum_i \rho_i (s_i^T q_i)^2`, a sum of squares without
        cancellation.
        """
        rest = rows.copy()
        extra = np.empty((rows.shape[0], self.n_pairs))
        for i in range(self.n_pairs - 1, -1, -1):
            s, y = self.steps[i], self.changes[i]
            rho = 1.0 / (s @ y)
            along = rest @ s
            extra[:, i] = np.sqrt(rho) * along
            rest -= np.outer(rho * along, y)
        return np.hstack([np.sqrt(self.scale) * rest, extra])

    def solve(self, gradient: Vector) -> Vector:
        """Return ``B^{-1} g`` by the two-loop recursion."""
        rest = gradient.copy()
        weights = np.empty(self.n_pairs)
        for i in range(self.n_pairs - 1, -1, -1):
            s, y = self.steps[i], self.changes[i]
            weights[i] = (s @ rest) / (s @ y)
            rest -= weights[i] * y
        rest *= self.scale
        for i, (s, y) in enumerate(zip(self.steps, self.changes, strict=True)):
            rest += (weights[i] - (y @ rest) / (s @ y)) * s
        return rest

    def updated(self, s: Vector, y: Vector, Bs: Vector, memory: int) -> "LimitedMemory":
        r"""Return the memory with one more pair, damped so that ``s · y`` stays positive.

        ``Bs`` is the product of the present matrix with the step. If
        :math:`s^T y < 0.2\, s^T B s`, y is replaced by :math:`\phi y + (1 - \phi) B s` with the
        :math:`\phi` that makes both sides equal (Powell, 1978). At most ``memory`` pairs are kept;
        the scale is :math:`s^T y / y^T y` of the newest.
        """
        model = s @ Bs
        if not model > 0:
            return self
        if s @ y < _POWELL * model:
            share = (1 - _POWELL) * model / (model - s @ y)
            y = share * y + (1 - share) * Bs
        steps = np.vstack([self.steps, s])[-memory:]
        changes = np.vstack([self.changes, y])[-memory:]
        return LimitedMemory(steps, changes, float((s @ y) / (y @ y)))

    def scaled(self, factor: float) -> "LimitedMemory":
        """Return ``factor * B``."""
        return LimitedMemory(self.steps, factor * self.changes, self.scale / factor)

    @property
    def n_pairs(self) -> int:
        """Return the number of stored pairs."""
        return int(self.steps.shape[0])

    def newer_half(self) -> "LimitedMemory":
        """Return the memory with the newer half of its pairs, rounded down."""
        older = (self.n_pairs + 1) // 2
        return LimitedMemory(self.steps[older:], self.changes[older:], self.scale)


def no_memory(n_params: int, scale: float = 1.0) -> LimitedMemory:
    """Return the identity times ``1 / scale``, before any step."""
    return LimitedMemory(np.zeros((0, n_params)), np.zeros((0, n_params)), scale)
