"""What noisy sums say of rows: counts, curvature, and how rates answer to the parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcfl._types import LABEL_OF, Matrix, RateId, Vector
from fcfl.releases import Cell, Kind, attributes_of, cells_of

DRIFT = 0.5  # share of a predicted change that is not believed
MOST_ANSWER = 4.0  # times the smooth slopes; at least its inverse


def row_estimate(rates: Sequence[RateId], cells: Vector, kind: Kind = "counts") -> float:
    """All rows of a client, at least one: each attribute's cells have them all."""
    return max(float(cells.sum()) / len(attributes_of(rates)), 1.0)


def group_estimates(
    rates: Sequence[RateId], cells: Vector, kind: Kind = "counts", *, selected: bool = False
) -> Vector:
    """Rows behind each rate, or those of them that are selected."""
    known = cells_of(rates, kind)
    return np.array(
        [
            sum(
                count
                for cell, count in zip(known, cells, strict=True)
                if _is_behind(cell, rate) and (cell.selected or not selected)
            )
            for rate in rates
        ]
    )


def cells_behind(rates: Sequence[RateId]) -> Vector:
    """How many noisy cells the rows behind each rate are the sum of."""
    return group_estimates(rates, np.ones(len(cells_of(rates))))


def _is_behind(cell: Cell, rate: RateId) -> bool:
    label = LABEL_OF[rate.kind]
    same = (cell.attribute, cell.group) == (rate.attribute, rate.group)
    return same and (label is None or cell.label == label)


def curvature_estimate(moments: Vector, n_rows: float, noise: float, l2: float) -> Matrix:
    r"""Curvature of the mean loss, at most: a quarter of the second moments, and L2.

    Eigenvalues below what ``noise``, the standard deviation of all clients' noise together, can
    make are not known: they count as that, and so do not let a step follow the noise.
    """
    n = int((np.sqrt(8 * moments.size + 1) - 1) / 2)
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n)] = moments / n_rows
    matrix += np.triu(matrix, 1).T
    values, vectors = np.linalg.eigh(matrix)
    floor = noise * np.sqrt(n) / n_rows
    known = (np.maximum(values, floor) + floor) / 4.0 + l2
    return np.asarray((vectors * known) @ vectors.T)


def shrunk(slopes: Matrix, group_counts: Matrix, noise: Vector) -> Matrix:
    r"""Slopes of rates, each drawn towards those of the same group at all clients.

    Positive-part Stein estimates. ``slopes`` has shape (clients, rates, parameters), ``noise`` the
    variance of each of its numbers, by client and rate.
    """
    n_params = slopes.shape[2]
    if len(slopes) == 1:
        return slopes
    weights = group_counts / group_counts.sum(axis=0)
    pooled = np.einsum("kr,krn->rn", weights, slopes)
    off = slopes - pooled
    squares = np.maximum(np.square(off).sum(axis=2), 1e-300)
    kept = np.maximum(1.0 - (n_params - 2) * noise / squares, 0.0)
    return np.asarray(pooled + kept[:, :, None] * off)


@dataclass(frozen=True)
class Answer:
    r"""How much more decisions answer to a step than smooth rates do: one factor for all rows.

    Smooth rates bend with all rows, decisions with those on the line alone, which may be twice as
    many as the smooth slopes say, or half. Seen changes c of violations, with noise of variance n,
    are those that slopes predict, p, times the factor f. Of p a share `DRIFT` is not believed, nor
    is f = 1 beforehand, so that f has the mean of a normal law:

    .. math:: f = \frac{1/D^2 + \sum pc/(n + D^2p^2)}{1/D^2 + \sum p^2/(n + D^2p^2)}
    """

    seen: float = 1.0 / DRIFT**2
    predicted: float = 1.0 / DRIFT**2

    @property
    def factor(self) -> float:
        """What slopes are multiplied by."""
        return float(np.clip(self.seen / self.predicted, 1.0 / MOST_ANSWER, MOST_ANSWER))

    def learnt(self, predicted: Vector, seen: Vector, noise: Vector) -> "Answer":
        """After one more step; rows of which nothing was known before say nothing."""
        known = np.isfinite(noise)
        p, c = predicted[known], seen[known]
        weights = 1.0 / np.maximum(noise[known] + (DRIFT * p) ** 2, 1e-12)
        return Answer(
            self.seen + float(weights @ (p * c)), self.predicted + float(weights @ (p * p))
        )
