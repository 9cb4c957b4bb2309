r"""Exact curvature made positive definite, and damped by how well it has predicted.

.. math:: B = t H + \big(f (1 - t) + \nu\big)\, s M + \sigma Q^T Q

H is the Hessian of the Lagrangian. Smooth rates bend a hundred times more than losses do, so it is
indefinite in about half of all rounds. M is the Hessian of the losses alone where the run began,
s the sum of the losses' weights: a part 1 - t of H is replaced by it, which takes most of the
rates' part away and needs no second matrix from the clients. Curvature across the active rows, Q,
is added first: a step that holds these rows fixed does not see it. The damping :math:`\nu` follows
Levenberg and Marquardt: it grows when a step achieved much less than predicted.

Near an optimum the mixture is too stiff: along the few directions in which H is indefinite it is
needed, along all others it makes Newton's method a slow one. There the eigenvalues of H relative to
M are made positive one by one instead.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from fcfl._types import Matrix, Vector
from fcfl.methods.sqp.quasi_newton import Exact

# How much of an indefinite Hessian is kept, the most first. Far from an optimum positive
# eigenvalues instead take more rounds (five percent over 83 problems, docs/rounds.md).
_PARTS = (0.5, 0.25, 0.1, 0.03, 0.0)

# Curvature added across the active rows, as shares of the largest, until the matrix is positive
# definite. The least that suffices is taken: with more the step depends on the active set's guess.
_SHARES = (1e-3, 1e-2, 1e-1, 1.0)

# Positive definite means: by this share of the losses' curvature. The second is for the matrix with
# curvature across the active rows, where the step is bounded by those rows as well. Ten times as
# much took a quarter more rounds, a tenth made no difference (eleven problems, docs/rounds.md).
_MARGIN, _ACTIVE_MARGIN = 1e-2, 1e-3

# Lifted eigenvalues, relative to the metric: at least the margin above where they are positive, ten
# times as much where they are negative and may be so by rounding. Across the active rows a tenth of
# the largest curvature is added first.
_POSITIVE, _NEGATIVE, _LIFTED_SHARE = 1e-3, 1e-2, 1e-1

# Levenberg-Marquardt. A step that achieves less than a quarter of what was predicted multiplies the
# damping by four, one that achieves three quarters divides it by ten; below _LEAST it is none. Of
# the factors tried (2 to 10, and 1/2 to 1/10) these took the fewest rounds.
_POOR, _GOOD, _UP, _DOWN = 0.25, 0.75, 4.0, 0.1
_LEAST, _AFTER_REFUSAL = 1e-2, 1e-1

# A step may be this many times as long as the longer of the last full ones, as many as are
# remembered. Two to four times took fewer rounds than no limit; one and a half did not converge.
_GROWTH, _REMEMBERED = 3.0, 2

# A step of length a is that of a matrix larger by 1/a. A share of the difference stays as damping:
# with none the next full step is refused as well (a problem of 520 rows took 200 rounds and more,
# with .3 it takes 27), with all of it steps become too short (29 % more rounds).
_OF_SHORT_STEP = 0.3

# A step that achieves more than was predicted says that M is too stiff: where probabilities are
# near 0 or 1 losses bend less than at the start. Its share f is then halved.
_BETTER_THAN_PREDICTED, _WORSE, _LEAST_SHARE = 1.2, 0.6, 0.02


@dataclass(frozen=True)
class Damping:
    """The metric M, the damping ``level`` of it, and its ``share`` where it stands in for H.

    ``metric`` is empty where curvature is learnt from gradients. ``is_mixed`` says whether the last
    matrix had to be mixed with it. ``lengths`` are those of the last full steps, in the metric.
    """

    metric: Matrix
    level: float = 0.0
    share: float = 1.0
    is_mixed: bool = False
    lengths: tuple[float, ...] = ()

    def refused(self) -> "Damping":
        """The damping after a step that was too long."""
        return replace(self, level=max(_UP * self.level, _AFTER_REFUSAL))

    def taken(self, ratio: float, length: float) -> "Damping":
        """The damping after a step of ``length`` that achieved ``ratio`` of what was predicted."""
        level, share = self.level, self.share
        if length < 1:
            level = max(level, _OF_SHORT_STEP * (1 / length - 1))
        elif ratio > _GOOD:
            level = _DOWN * level if level > _LEAST else 0.0
        elif ratio < _POOR:
            level = max(_UP * level, _LEAST)
        if ratio > _BETTER_THAN_PREDICTED and self.is_mixed:
            share = max(share / 2, _LEAST_SHARE)
        elif ratio < _WORSE:
            share = min(2 * share, 1.0)
        return replace(self, level=level, share=share)

    def raised(self) -> "Damping":
        """The damping for a step that would be too long."""
        return replace(self, level=max(_UP * self.level, _LEAST))

    def arrived(self, step: Vector) -> "Damping":
        """The damping after a full step."""
        return replace(self, lengths=(*self.lengths, self._length(step))[-_REMEMBERED:])

    def forgotten(self) -> "Damping":
        """The damping without the lengths of past steps."""
        return replace(self, lengths=())

    def reaches(self, step: Vector) -> bool:
        """Whether a step is not much longer than the last full ones; the first may be any."""
        return not self.lengths or self._length(step) <= _GROWTH * max(self.lengths)

    def _length(self, step: Vector) -> float:
        return float(np.sqrt(max(float(step @ self.metric @ step), 0.0)))

    def curvature(
        self, hessian: Matrix, active: Matrix, weight: float, *, is_near: bool = False
    ) -> tuple[Exact, "Damping"]:
        """B for the Hessian of a Lagrangian whose losses' weights sum to ``weight``.

        ``active`` has the gradients of what the step holds fixed, one row each. With ``is_near``
        an indefinite Hessian is lifted, otherwise mixed with the metric.
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

    def undamped(self, hessian: Matrix, active: Matrix, weight: float) -> Exact | None:
        """The Hessian as it is, with curvature across the active rows if that is needed.

        None where it is not positive definite: then no quadratic model says how much is to be
        gained.
        """
        return _whole((hessian + hessian.T) / 2, active, weight * self.metric)


def _factored(matrix: Matrix, margin: Matrix) -> Exact | None:
    """The matrix, if it is positive definite by ``margin``."""
    try:
        np.linalg.cholesky(matrix - margin)
        return Exact(np.asarray(np.linalg.cholesky(matrix)))
    except np.linalg.LinAlgError:
        return None


def _whole(matrix: Matrix, active: Matrix, metric: Matrix) -> Exact | None:
    """The matrix with the least curvature across the active rows that makes it definite."""
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
    """The matrix with its eigenvalues relative to the metric made positive, and damped.

    Negative ones change their sign: a step then leaves a saddle point as fast as it approaches a
    minimum.
    """
    if active.any():
        matrix = matrix + _LIFTED_SHARE * _across(matrix, active)
    root = np.linalg.cholesky(metric)
    half = solve_triangular(root, matrix, lower=True)
    values, vectors = np.linalg.eigh(solve_triangular(root, half.T, lower=True))
    least = np.where(values > 0, _POSITIVE, _NEGATIVE)
    lifted = np.maximum(np.abs(values), least) + level
    factor = np.linalg.qr((root @ (vectors * np.sqrt(lifted))).T, mode="r")
    return Exact(np.asarray(factor).T)


def first_damping(hessian: Matrix) -> Damping:
    """No damping yet; the metric is the first Hessian, made positive definite."""
    factor = Exact.from_hessian(hessian).factor
    return Damping(factor @ factor.T)


def no_damping() -> Damping:
    """What a run begins with, and all that learnt curvature needs."""
    return Damping(np.zeros((0, 0)))


def _across(matrix: Matrix, active: Matrix) -> Matrix:
    """As much curvature across the active rows as the matrix has at most."""
    basis = _orthonormal(active)
    largest = np.abs(matrix).sum(axis=1).max()
    return np.asarray((largest * basis.T) @ basis)


def _orthonormal(rows: Matrix) -> Matrix:
    """An orthonormal basis of the rows' span."""
    lengths: Vector = np.linalg.norm(rows, axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(rows / np.maximum(lengths, 1e-300), full_matrices=False)
    basis: Matrix = directions[sizes > 1e-8 * sizes[0]]
    return basis
