"""Identical feature rows are evaluated once: exact, and half of Adult's rows are repeats."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import Matrix
from fcfl.data.coded_features import CodedFeatures

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
