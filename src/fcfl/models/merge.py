"""Identical feature rows are evaluated once: exact, and half of Adult's rows are repeats."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import Matrix


def distinct_rows(X: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index of one representative per distinct row, and for every row which one it equals.

    Rows are sorted by two random projections; neighbours with equal projections are then compared
    entry by entry, so rows that differ are never merged. Equal rows may be missed where rounding
    makes the projections of others collide with theirs (entries of very different size) and those
    stand between them: that costs time, it changes no report.
    """
    n_rows, n_features = X.shape
    if n_rows == 0:
        nothing = np.zeros(0, dtype=np.intp)
        return nothing, nothing
    if sparse.issparse(X):
        X = X.sorted_indices()
        X.eliminate_zeros()
    directions = np.random.default_rng(0).standard_normal((n_features, 2))
    # BLAS rounds a row by where it stands; einsum treats all rows alike.
    keys = X @ directions if sparse.issparse(X) else np.einsum("ij,jk->ik", X, directions)
    order = np.lexsort(keys.T)
    fresh = np.ones(n_rows, dtype=bool)
    alike = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]).all(axis=1)) + 1
    fresh[alike] = _differ(X[order[alike]], X[order[alike - 1]])
    which = np.empty(n_rows, dtype=np.intp)
    which[order] = np.cumsum(fresh) - 1
    return order[fresh], which


def _differ(left: Any, right: Any) -> NDArray[np.bool_]:
    """For each pair of rows, whether any entry differs."""
    if not sparse.issparse(left):
        different: NDArray[np.bool_] = (left != right).any(axis=1)
        return different
    entries = abs(left - right).sum(axis=1)
    return np.asarray(entries).ravel() > 0


def sum_by_row(values: Matrix, which: NDArray[np.intp], n_distinct: int) -> Matrix:
    """Sum the rows of ``values`` that belong to the same distinct row."""
    gather = sparse.csr_array(
        (np.ones(which.size), (which, np.arange(which.size))), shape=(n_distinct, which.size)
    )
    total: Matrix = gather @ values
    return total
