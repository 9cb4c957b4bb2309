r"""The sum of many clients' curvatures in one matrix: :math:`\sum_k [X_k\ 1]^T D_k\, [X_k\ 1]`.

Nobody needs a client's own matrix where all clients are in one process, and to make, check and
keep one for each would cost more than all rows do.
"""

from typing import Any

import numpy as np

from fcfl._types import Matrix, Vector
from fcfl.data.coded_features import CodedFeatures, FeatureLayout, row_blocks, transposed
from fcfl.models.threads import run_all

_PAIR_ROWS = 65_536  # so many that a table of pairs costs little beside its rows
_FEW_ROWS, _MOST_PAIRS = 1_000, 1 << 20  # up to which all pairs at once are faster than tables
_PRODUCT_ROWS = 8_192  # temporary arrays stay in the cache


class CurvatureSum:
    """A matrix to which clients add, in their order.

    The sum has the same bits as that of the clients' own matrices, for any number of threads.
    """

    def __init__(self, size: int) -> None:
        self.total: Matrix = np.zeros((size, size))

    def add(self, matrix: Matrix) -> None:
        """Add a client's matrix."""
        self.total += matrix

    def add_codes(self, X: CodedFeatures, diagonal: Vector) -> None:
        r"""Add :math:`[X\ 1]^T D\, [X\ 1]` for a client's rows of codes."""
        if X.shape[0] <= _PAIR_ROWS:
            _add_codes(self.total, X, diagonal)
            return
        own = np.zeros_like(self.total)
        for rows in row_blocks(X.shape[0], _PAIR_ROWS):
            _add_codes(own, X[rows], diagonal[rows])
        self.total += own


def _add_codes(matrix: Matrix, X: CodedFeatures, diagonal: Vector) -> None:
    """Add what some rows of codes, and numbers beside them, come to."""
    n_pairs = X.shape[0] * (len(X.layout.columns) + 1) ** 2
    if X.shape[0] <= _FEW_ROWS and n_pairs <= _MOST_PAIRS:
        matrix += _all_pairs(X, diagonal)
    else:
        _add_pairs(matrix, X, diagonal)
    if X.layout.numbers:
        _add_numbers(matrix, X, diagonal)


def _all_pairs(X: CodedFeatures, diagonal: Vector) -> Matrix:
    """The part of codes and intercept in one sum: where there are few rows."""
    layout, (n_rows, n_columns) = X.layout, X.slots.shape
    intercept, nothing = layout.n_features, layout.n_features + 1
    at = np.full((n_rows, n_columns + 1), intercept)
    features = layout.feature_of_slot[X.slots]
    at[:, :-1] = np.where(features == layout.n_features, nothing, features)
    size = layout.n_features + 2 if (at == nothing).any() else layout.n_features + 1
    pairs = (at[:, :, None] * size + at[:, None, :]).reshape(-1)
    weights = np.repeat(diagonal, (n_columns + 1) ** 2)
    sums: Matrix = np.bincount(pairs, weights, size**2).astype(np.float64, copy=False)
    return sums.reshape(size, size)[:nothing, :nothing]


def _add_pairs(matrix: Matrix, X: CodedFeatures, diagonal: Vector) -> None:
    """Add the part of codes and intercept: every pair of columns is summed by pair of codes."""
    layout = X.layout
    codes = _codes_by_column(layout, X.slots)
    widest = max(layout.widths, default=0) + 1
    # Tables of about one length share the multiplication.
    strides = [widest if widest <= 2 * (w + 1) else w + 1 for w in layout.widths]

    def add(a: int) -> None:
        mine, width = layout.columns[a], layout.widths[a]
        sums = np.bincount(codes[a], diagonal, width + 1)[:-1]
        matrix[np.arange(mine.start, mine.stop), np.arange(mine.start, mine.stop)] += sums
        matrix[mine, -1] += sums
        matrix[-1, mine] += sums
        pairs, scaled = np.empty_like(codes[a]), {}
        for b in range(a + 1, len(layout.columns)):
            other, stride = layout.columns[b], strides[b]
            if stride not in scaled:
                scaled[stride] = codes[a] * stride
            np.add(scaled[stride], codes[b], out=pairs)
            table = np.bincount(pairs, diagonal, (width + 1) * stride).reshape(-1, stride)
            inside = table[:-1, : layout.widths[b]]
            matrix[mine, other] += inside
            matrix[other, mine] += inside.T

    run_all(add, range(len(layout.columns)))
    matrix[-1, -1] += diagonal.sum()


def _codes_by_column(layout: FeatureLayout, slots: Any) -> Any:
    """One contiguous line of codes per column, as wide as `numpy.bincount` takes them."""
    codes = np.empty(slots.shape[::-1], dtype=np.int64)
    np.subtract(slots.T, layout.slots[:-1, None], out=codes)
    return codes


def _add_numbers(matrix: Matrix, X: CodedFeatures, diagonal: Vector) -> None:
    """Add the lines and columns of the numbers."""
    layout, at = X.layout, X.layout.number_features
    scaled = X.numbers * diagonal[:, None]
    lines = np.zeros((at.size, layout.n_features + 1))
    lines[:, :-1] = layout.by_feature(transposed(X.ones()) @ scaled).T
    lines[:, -1] = scaled.sum(axis=0)
    matrix[at] += lines
    matrix[:, at] += lines.T
    matrix[np.ix_(at, at)] += product(scaled, X.numbers)


def product(left: Matrix, right: Matrix) -> Matrix:
    """``left.T @ right`` by einsum, whose rounding does not depend on BLAS and its threads."""
    total = np.zeros((left.shape[1], right.shape[1]))
    for rows in row_blocks(left.shape[0], _PRODUCT_ROWS):
        parts = (np.ascontiguousarray(part[rows].T) for part in (left, right))
        total += np.einsum("ji,ki->jk", *parts)
    return total
