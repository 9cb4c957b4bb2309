"""The sum of many clients' curvatures, against the sum of each client's own."""

import numpy as np
import pytest

from fcfl.data import Category, Number, Schema
from fcfl.errors import ReportError
from fcfl.models.kernels import CurvatureSum
from fcfl.models.linear_rows import RowProducts

SCHEMA = Schema(
    (
        Category("wide", tuple(map(str, range(25)))),
        Number("n", 0.5, 2.0, True),
        Category("narrow", ("a", "b", "c"), True),
        Category("last", tuple(map(str, range(7)))),
    )
)


def rows(seed, n_rows, schema=SCHEMA):
    rng = np.random.default_rng(seed)
    cells = [
        rng.integers(-1, len(column.levels), n_rows).astype(np.int32)
        if isinstance(column, Category)
        else np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(size=n_rows))
        for column in schema.columns
    ]
    return schema.encode(cells, n_rows)


def clients(sizes, forms=("codes",)):
    """Rows of each client in one of the forms by turns, and what stands between them."""
    made = []
    for seed, size in enumerate(sizes):
        X = rows(seed, size)
        form = forms[seed % len(forms)]
        X = {"codes": X, "dense": X.toarray(), "csr": X.tocsr()}[form]
        made.append((X, np.random.default_rng([seed, 1]).standard_normal(size)))
    return made


def summed(parts):
    total = CurvatureSum(parts[0][0].shape[1] + 1)
    for X, diagonal in parts:
        RowProducts(X).add_gramian(diagonal, total)
    return total.total


def plainly(parts):
    stacked = [np.column_stack([np.asarray(_dense(X)), np.ones(d.size)]) for X, d in parts]
    return sum(plain.T @ (d[:, None] * plain) for plain, (_, d) in zip(stacked, parts, strict=True))


def _dense(X):
    return X if isinstance(X, np.ndarray) else X.toarray()


@pytest.mark.parametrize(
    ("sizes", "forms"),
    [
        ([1], ("codes",)),
        ([3, 1, 5, 2], ("codes",)),
        ([900, 40, 2_000], ("codes",)),
        ([40_000, 30_000, 70_000, 10], ("codes",)),  # one client in two parts
        ([500, 300, 700, 20, 60], ("codes", "dense", "csr")),
    ],
)
def test_the_sum_is_that_of_the_plain_arrays(sizes, forms):
    parts = clients(sizes, forms)
    total = summed(parts)
    np.testing.assert_allclose(total, plainly(parts), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total, total.T, atol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "forms"),
    [
        ([40_000, 30_000, 70_000, 10, 2_000, 300], ("codes", "codes", "codes", "dense")),
        ([9_000, 9_100, 9_200, 9_300, 100, 9_400, 9_500, 9_600], ("codes",)),  # summed together
    ],
)
def test_the_sum_has_the_same_bits_as_that_of_the_clients_own_matrices(sizes, forms):
    parts = clients(sizes, forms)
    own = np.zeros((parts[0][0].shape[1] + 1,) * 2)
    for X, diagonal in parts:
        own += RowProducts(X).gramian(diagonal)
    np.testing.assert_array_equal(summed(parts), own)


@pytest.mark.parametrize("below", [0.0, np.nan, np.inf, 1e300])
def test_a_matrix_that_is_no_curvature_is_refused_whole(below):
    total = CurvatureSum(2)
    with pytest.raises(ReportError, match=r"not symmetric|not finite"):
        total.add(np.array([[1.0, 5.0], [below, 1.0]]))
    np.testing.assert_array_equal(total.total, np.zeros((2, 2)))


def test_the_sum_may_be_read_between_clients_and_after_an_error():
    first, second, third = clients([3_000, 3_000, 3_000])
    total = CurvatureSum(first[0].shape[1] + 1)
    total.add_codes(*first)
    np.testing.assert_array_equal(total.total, summed([first]))
    np.testing.assert_array_equal(total.total, summed([first]))
    with pytest.raises(ValueError, match="do not fit"):
        total.add_codes(second[0], second[1][:-1])
    total.add_codes(*third)
    np.testing.assert_array_equal(total.total, summed([first, third]))


def test_rows_that_are_none_add_nothing():
    X = rows(0, 5)[:0]
    assert not RowProducts(X).gramian(np.zeros(0)).any()


def test_codes_of_other_columns_are_counted_apart():
    mine = rows(0, 800)
    other = Schema((Category("one", tuple(map(str, range(mine.shape[1]))), False),))
    parts = [(mine, np.ones(800)), (rows(1, 900, other), np.ones(900)), (mine[:50], np.ones(50))]
    np.testing.assert_allclose(summed(parts), plainly(parts), rtol=1e-10, atol=1e-10)


def test_the_sum_has_the_same_bits_for_any_number_of_threads(monkeypatch):
    parts, found = clients([40_000, 30_000, 70_000, 10, 2_000]), []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("FCFL_NUM_THREADS", threads)
        found.append(summed(parts))
    for one in found[1:]:
        np.testing.assert_array_equal(found[0], one)
