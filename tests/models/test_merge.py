import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse

from fcfl.models.linear_rows import distinct_rows, sum_by_row

entries = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 1e-300, 5e-324, 1e16, 1.0 + 2**-52]),
    st.floats(-1e6, 1e6),
)
matrices = npst.arrays(
    np.float64,
    st.tuples(st.integers(0, 12), st.integers(0, 4)),
    elements=entries,
)


def assert_is_a_partition(X, representatives, which):
    """Every row equals its representative, and the representatives are their own."""
    dense = X.toarray() if sparse.issparse(X) else X
    assert which.shape == (dense.shape[0],)
    np.testing.assert_array_equal(dense, dense[representatives][which])
    np.testing.assert_array_equal(which[representatives], np.arange(representatives.size))


def assert_all_merged(X, representatives):
    """There are as many representatives as there are different rows."""
    dense = X.toarray() if sparse.issparse(X) else X
    assert representatives.size == len({tuple(row) for row in dense.tolist()})


def with_explicit_zeros(X, seed):
    """The same matrix as sparse rows that also store some of its zeros, in a mixed order."""
    rng = np.random.default_rng(seed)
    stored = (X != 0) | (rng.random(X.shape) < 0.5)
    rows, columns = np.nonzero(stored)
    shuffled = rng.permutation(rows.size)
    rows, columns = rows[shuffled], columns[shuffled]
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    data = (X[rows[order], columns[order]], columns[order], indptr)
    return sparse.csr_array(data, shape=X.shape)


@given(matrices, st.integers(0, 9))
def test_different_rows_are_never_merged(X, seed):
    X = np.concatenate([X, X[::-1], X])
    assert_is_a_partition(X, *distinct_rows(X))
    loose = with_explicit_zeros(X, seed)
    before = loose.copy()
    assert_is_a_partition(loose, *distinct_rows(loose))
    assert loose.nnz == before.nnz  # the caller's matrix is left as it was


small = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 0.1, -2.5])


@given(
    npst.arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(0, 5)), elements=small),
    st.integers(0, 9),
)
def test_identical_rows_are_all_merged_whatever_the_sign_of_their_zeros(X, seed):
    representatives, _ = distinct_rows(X)
    assert_all_merged(X, representatives)
    loose = with_explicit_zeros(X, seed)
    representatives, _ = distinct_rows(loose)
    assert_all_merged(loose, representatives)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_real_valued_rows_are_all_merged_wherever_they_stand(as_sparse):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 23))
    X = X[rng.integers(0, 40, 1003)]
    X = sparse.csr_array(X) if as_sparse else X
    representatives, which = distinct_rows(X)
    assert_is_a_partition(X, representatives, which)
    assert_all_merged(X, representatives)


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
def test_rows_that_no_projection_tells_apart_are_not_merged(as_matrix):
    """Next to 1e16 a difference of 1e-12 is lost in any sum."""
    X = as_matrix(np.array([[1e16, 1e-12], [1e16, 2e-12], [1e16, 0.0], [1e16, -5e-324]]))
    representatives, which = distinct_rows(X)
    assert representatives.size == 4
    assert_is_a_partition(X, representatives, which)


def test_no_rows_and_no_features():
    for as_matrix in (np.asarray, sparse.csr_array):
        representatives, which = distinct_rows(as_matrix(np.zeros((0, 3))))
        assert representatives.size == which.size == 0
        representatives, which = distinct_rows(as_matrix(np.zeros((4, 0))))
        assert representatives.size == 1 and not which.any()


@given(st.integers(1, 20), st.integers(0, 99))
def test_sums_by_row_are_the_sums_by_row(n_distinct, seed):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, n_distinct, 50)
    values = rng.integers(0, 5, (50, 3)).astype(np.float64)
    sums = sum_by_row(values, which, n_distinct)
    for row in range(n_distinct):
        np.testing.assert_array_equal(sums[row], values[which == row].sum(axis=0))


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
def test_colliding_projections_cost_merging_and_nothing_else(as_matrix):
    """Of mixed rows with the same projections, equal ones may stay apart; no others meet."""
    X = as_matrix(np.array([[1e16, 1e-12 * (k % 3)] for k in range(30)]))
    representatives, which = distinct_rows(X)
    assert_is_a_partition(X, representatives, which)
    assert 3 <= representatives.size <= 30
