"""What noisy sums say of rows: counts, curvature, and how rates answer to the parameters."""

from collections.abc import Sequence

import numpy as np

from fcfl._types import LABEL_OF, Matrix, RateId, Vector
from fcfl.releases import Cell, Kind, attributes_of, cells_of


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
