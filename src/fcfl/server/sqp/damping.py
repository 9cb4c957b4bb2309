r"""Exact curvature made positive definite, and damped by how well it has predicted.

.. math:: B = t H + \big(f (1 - t) + \nu\big)\, s M + \sigma Q^T Q

H is the Hessian of the Lagrangian. Smooth rates bend a hundred times more than losses do, so it is
indefinite in about half of all rounds. M is the Hessian of the losses alone where the run began,
s the sum of the losses' weights: a part 1 - t of H is replaced by it, which takes most of the
rates' part away and needs no second matrix from the clients. Curvature across the active rows, Q,
is added first: a step that holds these rows fixed does not see it. The damping :math:`\nu` follows
Levenberg and Marquardt: it grows when a step achieved much less than predicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fcfl._types import Matrix, Vector
from fcfl.server.sqp.quasi_newton import Exact

# How much of the Hessian is kept, the most first. With |eigenvalues| instead, steps are eight to
# fourteen long and nine of ten are cut (docs/rounds.md).
_PARTS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)

# Curvature added across the active rows, as shares of the largest, until the matrix is positive
# definite. The least that suffices is taken: with more the step depends on the active set's guess.
_SHARES = (1e-3, 1e-2, 1e-1, 1.0)

# Positive definite means: by this share of the losses' curvature. The second is for the matrix with
# curvature across the active rows, where the step is bounded by those rows as well. Ten times as
# much took a quarter more rounds, a tenth made no difference (eleven problems, docs/rounds.md).
_MARGIN, _ACTIVE_MARGIN = 1e-2, 1e-3

# Levenberg-Marquardt. A step that achieves less than a quarter of what was predicted multiplies the
# damping by four, one that achieves three quarters divides it by ten; below _LEAST it is none. Of
# the factors tried (2 to 10, and 1/2 to 1/10) these took the fewest rounds.
_POOR, _GOOD, _UP, _DOWN = 0.25, 0.75, 4.0, 0.1
_LEAST, _AFTER_REFUSAL = 1e-2, 1e-1

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
    matrix had to be mixed with it.
    """

    metric: Matrix
    level: float = 0.0
    share: float = 1.0
    is_mixed: bool = False

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

    def curvature(self, hessian: Matrix, active: Matrix, weight: float) -> tuple[Exact, "Damping"]:
        """B for the Hessian of a Lagrangian whose losses' weights sum to ``weight``.

        ``active`` has the gradients of what the step holds fixed, one row each.
        """
        metric = weight * self.metric
        for part, candidate, margin in self._candidates(hessian, active, metric):
            try:
                np.linalg.cholesky(candidate - margin * metric)
                factor = np.linalg.cholesky(candidate)
            except np.linalg.LinAlgError:
                continue
            return Exact(np.asarray(factor)), replace(self, is_mixed=part < 1)
        return Exact.from_hessian(candidate), replace(self, is_mixed=True)

    def _candidates(
        self, hessian: Matrix, active: Matrix, metric: Matrix
    ) -> Iterator[tuple[float, Matrix, float]]:
        """Parts of H, matrices and margins in the order in which they are tried."""
        symmetric = (hessian + hessian.T) / 2
        for part in _PARTS:
            mixed = part * symmetric + (self.share * (1 - part) + self.level) * metric
            yield part, mixed, _MARGIN
            if part == 1 and active.any():
                across = _orthonormal(active)
                largest = np.abs(mixed).sum(axis=1).max()
                added = (largest * across.T) @ across
                for share in _SHARES:
                    yield part, mixed + share * added, _ACTIVE_MARGIN


def first_damping(hessian: Matrix) -> Damping:
    """No damping yet; the metric is the first Hessian, made positive definite."""
    factor = Exact.from_hessian(hessian).factor
    return Damping(factor @ factor.T)


def no_damping() -> Damping:
    """What a run begins with, and all that learnt curvature needs."""
    return Damping(np.zeros((0, 0)))


def _orthonormal(rows: Matrix) -> Matrix:
    """An orthonormal basis of the rows' span."""
    lengths: Vector = np.linalg.norm(rows, axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(rows / np.maximum(lengths, 1e-300), full_matrices=False)
    basis: Matrix = directions[sizes > 1e-8 * sizes[0]]
    return basis
