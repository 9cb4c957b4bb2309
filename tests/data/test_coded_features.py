import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder

from fcfl.data.client_data import CodedFeatures, FeatureLayout, code_cells, coded_from_csr


def coded(seed, n_rows=50):
    """Three coded columns, some cells of which set nothing, and two numbers among them."""
    rng = np.random.default_rng(seed)
    layout = FeatureLayout(12, (0, 5, 10), (4, 4, 2), (4, 9))
    cells = [rng.integers(-1, width, n_rows) for width in layout.widths]
    return code_cells(layout, cells, list(rng.standard_normal((2, n_rows))), n_rows), cells


@given(st.integers(0, 99))
def test_a_row_has_ones_at_its_codes_and_its_numbers(seed):
    X, cells = coded(seed, n_rows=7)
    plain = np.zeros(X.shape)
    for first, column in zip(X.layout.firsts, cells, strict=True):
        for row, code in enumerate(column):
            if code >= 0:
                plain[row, first + code] = 1.0
    plain[:, [4, 9]] = X.numbers
    np.testing.assert_array_equal(X.toarray(), plain)
    np.testing.assert_array_equal(np.asarray(X), plain)
    np.testing.assert_array_equal(X.tocsr().toarray(), plain)


@pytest.mark.parametrize("rows", [slice(3, 9), np.array([4, 4, 0]), np.array([], dtype=int)])
def test_rows_by_index_are_those_rows(rows):
    X, _ = coded(0)
    np.testing.assert_array_equal(X[rows].toarray(), X.toarray()[rows])


@pytest.mark.parametrize("n_rows", [0, 1, 20_000])
@pytest.mark.parametrize("shape", [(12,), (12, 3)])
def test_products_are_those_of_the_array(n_rows, shape):
    X, _ = coded(1, n_rows)
    weights = np.random.default_rng(1).standard_normal(shape)
    np.testing.assert_allclose(X @ weights, X.toarray() @ weights, rtol=1e-13, atol=1e-14)


def test_taking_rows_and_ones_copies_no_codes():
    X, _ = coded(2, 1000)
    part = X[100:200]
    assert np.shares_memory(part.slots, X.slots)
    assert np.shares_memory(part.ones().indices, X.slots)


@given(st.integers(0, 99), st.sampled_from(["all", "unknown", "dropped"]))
def test_what_a_one_hot_encoder_made_is_found_again(seed, how):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, [3, 5, 4], (40, 3))
    options = {
        "all": {},
        "unknown": {"handle_unknown": "ignore", "categories": [[0, 1], range(5), range(4)]},
        "dropped": {"drop": "first"},
    }
    X = sparse.csr_array(OneHotEncoder(**options[how]).fit_transform(table))
    found = coded_from_csr(X)
    if how != "dropped":  # where most cells set nothing, codes would save nothing
        assert found is not None and len(found.layout.widths) <= 3
    if found is not None:
        np.testing.assert_array_equal(found.toarray(), X.toarray())


@given(st.integers(0, 200))
def test_a_sparse_matrix_is_kept_or_coded_exactly(seed):
    rng = np.random.default_rng(seed)
    dense = (rng.random((12, 6)) < rng.random(6)).astype(np.float64)
    if seed % 2:
        dense[:, rng.integers(6)] *= rng.standard_normal(12)
    X = sparse.csr_array(dense)
    before = X.copy()
    found = coded_from_csr(X)
    if found is not None:
        np.testing.assert_array_equal(found.toarray(), dense)
    np.testing.assert_array_equal(X.toarray(), before.toarray())


def test_numbers_beside_one_hot_columns_stay_numbers():
    rng = np.random.default_rng(0)
    one_hot = np.eye(6)[rng.integers(0, 6, 30)]
    dense = np.hstack([rng.standard_normal((30, 1)), one_hot, rng.standard_normal((30, 1))])
    found = coded_from_csr(sparse.csr_array(dense))
    assert isinstance(found, CodedFeatures)
    assert found.layout.numbers == (0, 7) and found.layout.widths == (6,)
    np.testing.assert_array_equal(found.toarray(), dense)


def test_words_of_a_text_are_no_codes():
    rng = np.random.default_rng(0)
    words = (rng.random((200, 300)) < 0.05).astype(np.float64)
    assert coded_from_csr(sparse.csr_array(words)) is None


def test_unsorted_entries_and_stored_zeros_change_nothing():
    data, indices, indptr = [1.0, 0.0, 1.0, 1.0, 1.0], [3, 1, 0, 4, 1], [0, 3, 5]
    X = sparse.csr_array((data, indices, indptr), shape=(2, 5))
    found = coded_from_csr(X)
    np.testing.assert_array_equal(found.toarray(), [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1]])
    assert X.nnz == 5
