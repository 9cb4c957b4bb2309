r"""Products of a client's rows with vectors: logits, gradients and :math:`X^T D X`.

Rows are cut into blocks by their number alone, and sums over blocks are taken in order: results
are the same bits for any number of threads. There is a class for each form of rows. Lookups and
sums by code are scipy's products with a matrix of ones whose indices are the codes themselves;
whole reports on codes are a compiled kernel's, where there is one (`linear_rows`, docs/scale.md).
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import Matrix, Vector
from fcfl.data.coded_features import (
    CodedFeatures,
    coded_from_csr,
    csr_rows,
    ones_at,
    row_blocks,
    transposed,
)
from fcfl.models.curvature_sum import CurvatureSum, fuse, product

_LEAST_SAVED = 0.1  # share of rows; to merge costs about as much as two reports on all of them

Keys = NDArray[Any]
"""One line per row, equal for equal rows; different rows seldom have the same."""


def merge_rows(X: Any, facts: Matrix) -> tuple[Any, Matrix]:
    """Distinct rows with their facts summed; all rows as they are where few are alike."""
    keys = row_keys(X)
    n_keys = 1 + np.count_nonzero(np.diff(np.sort(keys[:, 0])))
    if n_keys > (1 - _LEAST_SAVED) * X.shape[0]:
        return X, facts
    representatives, which = distinct_rows(X, keys)
    return X[representatives], sum_by_row(facts, which, representatives.size)


def row_keys(X: Any) -> Keys:
    """Two random projections of each row; of codes the wrapped sum of a random number for each."""
    rng = np.random.default_rng(0)
    if isinstance(X, CodedFeatures):
        return _keys_of_codes(X, rng)
    directions = rng.standard_normal((X.shape[1], 2))
    # BLAS rounds a row by where it stands; einsum treats all rows alike.
    keys: Keys = X @ directions if sparse.issparse(X) else np.einsum("ij,jk->ik", X, directions)
    return keys


def _keys_of_codes(X: CodedFeatures, rng: np.random.Generator) -> Keys:
    of_slot = rng.integers(0, 1 << 64, X.layout.n_slots, dtype=np.uint64)
    keys = np.zeros(X.shape[0], dtype=np.uint64)
    for column in X.slots.T:
        keys += of_slot[column]
    for values in X.numbers.T:
        bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # + 0: zero has one sign
        keys += (bits ^ (bits >> 29)) * (rng.integers(0, 1 << 64, dtype=np.uint64) | np.uint64(1))
    return keys[:, None]


def distinct_rows(X: Any, keys: Keys | None = None) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index of one representative per distinct row, and for every row which one it equals.

    Rows are sorted by their keys; neighbours with equal keys are then compared entry by entry, so
    rows that differ are never merged. Equal rows may be missed where rounding makes the keys of
    others collide with theirs (entries of very different size) and those stand between them: that
    costs time, it changes no report.
    """
    n_rows = X.shape[0]
    if n_rows == 0:
        nothing = np.zeros(0, dtype=np.intp)
        return nothing, nothing
    if sparse.issparse(X):
        X = X.sorted_indices()
        X.eliminate_zeros()
    keys = row_keys(X) if keys is None else keys
    order = np.lexsort(keys.T)
    fresh = np.ones(n_rows, dtype=bool)
    alike = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]).all(axis=1)) + 1
    fresh[alike] = _differ(X[order[alike]], X[order[alike - 1]])
    which = np.empty(n_rows, dtype=np.intp)
    which[order] = np.cumsum(fresh) - 1
    return order[fresh], which


def _differ(left: Any, right: Any) -> NDArray[np.bool_]:
    """For each pair of rows, whether any entry differs."""
    if isinstance(left, CodedFeatures):
        codes: NDArray[np.bool_] = (left.slots != right.slots).any(axis=1)
        codes |= (left.numbers != right.numbers).any(axis=1)
        return codes
    if not sparse.issparse(left):
        different: NDArray[np.bool_] = (left != right).any(axis=1)
        return different
    entries = abs(left - right).sum(axis=1)
    return np.asarray(entries).ravel() > 0


def sum_by_row(values: Matrix, which: NDArray[np.intp], n_distinct: int) -> Matrix:
    """Sum the rows of ``values`` that belong to the same distinct row."""
    sums = [np.bincount(which, column, n_distinct) for column in values.T]
    return np.stack(sums, axis=1) if sums else np.zeros((n_distinct, 0))


_BLOCK_ROWS = 8_192  # temporary arrays stay in the cache; fewer are not worth another thread
_PER_PARAMETER = 4  # a block has more rows than this for each parameter: gradients are summed too
_FEW_ROWS, _ROWS_PER_CODE, _MOST_CODES = 2_048, 16, 512  # tables of codes cost little beside rows
_DENSE_ENTRIES = 1 << 21  # of a scaled copy of dense rows
_THIN = 0.25  # an array with a smaller share of entries other than zero may be one of codes


class RowProducts(Protocol):
    """Rows in blocks; parameters are the feature weights and then the intercept."""

    @property
    def X(self) -> Any: ...  # noqa: D102
    @property
    def blocks(self) -> tuple[slice, ...]: ...  # noqa: D102

    def prepare(self, params: Vector) -> Matrix:
        """The parameters as `logits` takes them: made once for all blocks."""
        ...

    def logits(self, block: int, prepared: Matrix) -> Vector:
        """:math:`X w + b` for the rows of a block."""
        ...

    def pull_back(self, block: int, residuals: Matrix) -> Matrix:
        """Gradients of ``residuals.T @ logits``, one row for each column of ``residuals``."""
        ...

    def gramian(self, diagonal: Vector) -> Matrix:
        r""":math:`[X\ 1]^T D\, [X\ 1]`, dense."""
        ...

    def add_gramian(self, diagonal: Vector, to: CurvatureSum) -> None:
        """Add the same to a sum over clients."""
        ...


def products_of(X: Any) -> RowProducts:
    """The products for rows in the form that they have."""
    if isinstance(X, CodedFeatures):
        return CodedRows(X)
    return SparseRows(X) if sparse.issparse(X) else DenseRows(X)


def compact(X: Any) -> Any:
    """Codes where rows are one-hot, in a sparse matrix or in an array; else rows as they are."""
    if sparse.issparse(X):
        return coded_from_csr(X) or X
    if isinstance(X, np.ndarray) and X.size and np.count_nonzero(X) < _THIN * X.size:
        return coded_from_csr(sparse.csr_array(X)) or X
    return X


def all_logits(products: RowProducts, params: Vector) -> Vector:
    """The logits of all rows."""
    logits, prepared = np.empty(products.X.shape[0]), products.prepare(params)
    for block, rows in enumerate(products.blocks):
        logits[rows] = products.logits(block, prepared)
    return logits


def pull_back_all(products: RowProducts, residuals: Matrix) -> Matrix:
    """Gradients of ``residuals.T @ logits`` over all rows."""
    gradients = np.zeros((residuals.shape[1], products.X.shape[1] + 1))
    for block, rows in enumerate(products.blocks):
        gradients += products.pull_back(block, residuals[rows])
    return gradients


def _blocks_of(X: Any) -> tuple[slice, ...]:
    """Blocks of nearly one size, whatever threads there are."""
    n_rows, n_features = X.shape
    most = max(_BLOCK_ROWS, _PER_PARAMETER * (n_features + 1))
    n_blocks = max(-(-n_rows // most), 1)
    return tuple(row_blocks(n_rows, max(-(-n_rows // n_blocks), 1)))


def _most_codes(n_rows: int) -> int:
    """Codes of fused columns; few rows, a batch say, are not worth fusing."""
    if n_rows < _FEW_ROWS:
        return 1
    return min(1 << (n_rows // _ROWS_PER_CODE).bit_length(), _MOST_CODES)


class DenseRows:
    """An ndarray."""

    def __init__(self, X: Matrix) -> None:
        self.X = X
        self.blocks = _blocks_of(X)

    def prepare(self, params: Vector) -> Vector:
        """As they are."""
        return params

    def logits(self, block: int, prepared: Vector) -> Vector:
        """:math:`X w + b` for the rows of a block."""
        logits: Vector = self.X[self.blocks[block]] @ prepared[:-1]
        logits += prepared[-1]
        return logits

    def pull_back(self, block: int, residuals: Matrix) -> Matrix:
        """Gradients of ``residuals.T @ logits``, one row for each column of ``residuals``."""
        gradients = np.empty((residuals.shape[1], self.X.shape[1] + 1))
        np.matmul(residuals.T, self.X[self.blocks[block]], out=gradients[:, :-1])
        gradients[:, -1] = residuals.sum(axis=0)
        return gradients

    def gramian(self, diagonal: Vector) -> Matrix:
        r""":math:`[X\ 1]^T D\, [X\ 1]`, dense."""
        n_rows, n_features = self.X.shape
        gramian = np.zeros((n_features + 1, n_features + 1))
        for rows in row_blocks(n_rows, max(_DENSE_ENTRIES // max(n_features, 1), 1)):
            scaled = self.X[rows] * diagonal[rows, None]
            gramian[:-1, :-1] += self.X[rows].T @ scaled
            gramian[-1, :-1] += scaled.sum(axis=0)
        gramian[:-1, -1] = gramian[-1, :-1]
        gramian[-1, -1] = diagonal.sum()
        return gramian

    def add_gramian(self, diagonal: Vector, to: CurvatureSum) -> None:
        """Add the same to a sum over clients."""
        to.add(self.gramian(diagonal))


class SparseRows:
    """A csr_array that is not one of codes."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.blocks = _blocks_of(X)
        self._rows = [csr_rows(X, rows) for rows in self.blocks]
        self._columns = [transposed(rows) for rows in self._rows]

    def prepare(self, params: Vector) -> Vector:
        """As they are."""
        return params

    def logits(self, block: int, prepared: Vector) -> Vector:
        """:math:`X w + b` for the rows of a block."""
        logits: Vector = self._rows[block] @ prepared[:-1]
        logits += prepared[-1]
        return logits

    def pull_back(self, block: int, residuals: Matrix) -> Matrix:
        """Gradients of ``residuals.T @ logits``, one row for each column of ``residuals``."""
        gradients = np.empty((residuals.shape[1], self.X.shape[1] + 1))
        gradients[:, :-1] = (self._columns[block] @ residuals).T
        gradients[:, -1] = residuals.sum(axis=0)
        return gradients

    def gramian(self, diagonal: Vector) -> Matrix:
        r""":math:`[X\ 1]^T D\, [X\ 1]`, dense."""
        X, n_features = self.X, self.X.shape[1]
        scaled = X.copy()
        scaled.data *= np.repeat(diagonal, np.diff(X.indptr))
        gramian = np.empty((n_features + 1, n_features + 1))
        gramian[:-1, :-1] = (X.T @ scaled).toarray()
        gramian[:-1, -1] = gramian[-1, :-1] = X.T @ diagonal
        gramian[-1, -1] = diagonal.sum()
        return gramian

    def add_gramian(self, diagonal: Vector, to: CurvatureSum) -> None:
        """Add the same to a sum over clients."""
        to.add(self.gramian(diagonal))


class CodedRows:
    """Codes, those of narrow columns fused, and the numbers beside them."""

    def __init__(self, X: CodedFeatures) -> None:
        self.X = X
        self.blocks = _blocks_of(X)
        self.fused = fuse(X.layout, _most_codes(X.shape[0] // max(len(self.blocks), 1)))
        self.codes = np.ascontiguousarray(self.fused.codes(X.slots), np.int32)
        self.numbers = np.ascontiguousarray(X.numbers, np.float64)
        self._rows = [ones_at(self.codes[rows], self.fused.n_codes) for rows in self.blocks]
        self._columns = [transposed(rows) for rows in self._rows]

    def prepare(self, params: Vector) -> Vector:
        """The weight of each code, then of each number, then the intercept."""
        numbers = params[self.X.layout.number_features]
        return np.concatenate([self.fused.by_code(params), numbers, params[-1:]])

    def logits(self, block: int, prepared: Vector) -> Vector:
        """:math:`X w + b` for the rows of a block."""
        n_codes = self.fused.n_codes
        logits: Vector = self._rows[block] @ prepared[:n_codes]
        logits += prepared[-1]
        if self.X.layout.numbers:
            # einsum, here and below: BLAS rounds by the number of its threads.
            logits += np.einsum("ij,j->i", self.numbers[self.blocks[block]], prepared[n_codes:-1])
        return logits

    def pull_back(self, block: int, residuals: Matrix) -> Matrix:
        """Gradients of ``residuals.T @ logits``, one row for each column of ``residuals``."""
        layout = self.X.layout
        gradients = np.zeros((residuals.shape[1], layout.n_features + 1))
        by_code = self._columns[block] @ residuals
        gradients[:, :-1] = self.fused.by_feature(by_code).T
        if layout.numbers:
            gradients[:, layout.number_features] = product(
                residuals, self.numbers[self.blocks[block]]
            )
        # Every row has one code of the first part: its sums make those of all rows, at less cost.
        every = by_code[: self.fused.n_first] if self.fused.parts else residuals
        gradients[:, -1] = every.sum(axis=0)
        return gradients

    def gramian(self, diagonal: Vector) -> Matrix:
        r""":math:`[X\ 1]^T D\, [X\ 1]`, dense."""
        total = CurvatureSum(self.X.shape[1] + 1)
        self.add_gramian(diagonal, total)
        return total.total

    def add_gramian(self, diagonal: Vector, to: CurvatureSum) -> None:
        r"""Add :math:`[X\ 1]^T D\, [X\ 1]` to a sum over clients."""
        to.add_codes(self.X, diagonal)
