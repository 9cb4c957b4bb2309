r"""The sum of many clients' curvatures in one matrix: :math:`\sum_k [X_k\ 1]^T D_k\, [X_k\ 1]`.

Nobody needs a client's own matrix where all clients are in one process, and to make, check and
keep one for each would cost more than all rows do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fcfl._types import Matrix, Vector
from fcfl.data.coded_features import CodedFeatures, row_blocks, transposed
from fcfl.models.compiled import kernels
from fcfl.models.fused_columns import FusedColumns, Part, fuse
from fcfl.models.threads import run_all

_PAIR_ROWS = 65_536  # so many that a table of pairs costs little beside its rows
_FEW_ROWS, _MOST_PAIRS = 1_000, 1 << 20  # up to which all pairs at once are faster than tables
_MOST_CODES = 256  # of a part: a table of pairs stays in the cache
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
    """Add the part of codes and intercept: every pair of parts is summed by pair of codes."""
    fused = fuse(X.layout, _most_codes(X.shape[0]))
    parts, pair_sums = fused.parts, _pair_sums(fused, X, diagonal)

    def add(a: int) -> None:
        mine, tables = parts[a], []
        own, table_with = pair_sums(a)
        _add_own(matrix, mine, own)
        for b in range(a + 1, len(parts)):
            if parts[b].is_fused:
                tables.append(table_with(b))
            else:
                _add_block(matrix, mine, parts[b], mine.by_feature(table_with(b)[:, :-1]))
        if tables:  # all at once: to sum over one costs as much as some thousand rows
            _add_fused(matrix, mine, fused, len(parts) - len(tables), np.hstack(tables))

    run_all(add, range(len(parts)))
    matrix[-1, -1] += diagonal.sum()


_Tables = Callable[[int], tuple[Vector, Callable[[int], Matrix]]]
"""For a part, its sums by code, and what gives the table of sums by pair with another part."""


def _pair_sums(fused: FusedColumns, X: CodedFeatures, diagonal: Vector) -> _Tables:
    """Sums of the diagonal by code and by pair of codes: the same bits, compiled or not."""
    sizes, compiled = [part.size for part in fused.parts], kernels()
    codes = fused.codes_by_part(X.slots, np.int64 if compiled is None else np.int32)
    # Tables of about one length share the multiplication.
    widest = max(sizes, default=0)
    strides = [widest if widest <= 2 * size else size for size in sizes]

    def of_part(a: int) -> tuple[Vector, Callable[[int], Matrix]]:
        scaled: dict[int, Any] = {}

        def counted(b: int) -> Matrix:
            stride = strides[b]
            if stride not in scaled:
                scaled[stride] = codes[a] * stride
            pairs = scaled[stride] + codes[b]
            table: Any = np.bincount(pairs, diagonal, sizes[a] * stride).reshape(-1, stride)
            inside: Matrix = table[:, : sizes[b]]
            return inside

        def added(b: int) -> Matrix:
            table = np.zeros((sizes[a], sizes[b]))
            compiled.add_pairs(codes[a], codes[b], diagonal, sizes[b], table)
            return table

        own: Any = np.bincount(codes[a], diagonal, sizes[a])
        return own, counted if compiled is None else added

    return of_part


def _most_codes(n_rows: int) -> int:
    """Codes of a part, so that a table of pairs has about a fourth as many entries as rows."""
    return min(1 << max(n_rows.bit_length() // 2 - 1, 0), _MOST_CODES)


def _add_own(matrix: Matrix, part: Part, sums: Vector) -> None:
    """Add what a part comes to with itself and with the intercept, from its sums by code."""
    at, own = part.features, part.by_feature(sums)
    if part.is_fused:
        matrix[np.ix_(at, at)] += part.of_code @ (sums[:, None] * part.of_code.T.toarray())
    else:
        matrix[at, at] += own
    matrix[at, -1] += own
    matrix[-1, at] += own


def _add_block(matrix: Matrix, rows: Part, column: Part, block: Matrix) -> None:
    """Add what a part comes to with a single column, and the same turned."""
    at = slice(column.features[0], column.features[-1] + 1)
    lines: Any = rows.features
    if not rows.is_fused:
        lines = slice(lines[0], lines[-1] + 1)  # ten times as fast
    matrix[lines, at] += block
    matrix[at, lines] += block.T


def _add_fused(matrix: Matrix, part: Part, fused: FusedColumns, first: int, tables: Matrix) -> None:
    """Add what a part comes to with fused ones, those from ``first`` on, and the same turned."""
    at, block = fused.last_by_feature(part.by_feature(tables).T, first)
    matrix[np.ix_(at, part.features)] += block
    matrix[np.ix_(part.features, at)] += block.T


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
