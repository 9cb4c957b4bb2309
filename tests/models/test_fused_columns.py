"""Columns read together: the same products, from fewer codes."""

import tracemalloc

import numpy as np
import pytest

from fcfl.data.client_data import FeatureLayout, code_cells
from fcfl.models.kernels import CurvatureSum, _most_codes, fuse
from fcfl.models.linear_rows import RowProducts
from helpers import CODED_WIDTHS, coded_rows, layout_with_numbers


@pytest.mark.parametrize("most", [1, 8, 64, 512, 10**6])
def test_parts_hold_every_column_once_and_no_more_codes_than_they_may(most):
    fused = fuse(layout_with_numbers(), most)
    assert sorted(j for part in fused.parts for j in part.columns) == list(range(len(CODED_WIDTHS)))
    for part in fused.parts:
        assert part.size == np.prod([CODED_WIDTHS[j] + 1 for j in part.columns])
        assert not part.is_fused or part.size <= most
    assert fused.is_fused == (most >= 64)


@pytest.mark.parametrize("most", [1, 8, 64, 512])
def test_codes_set_the_features_of_their_rows(most):
    X = coded_rows(200)
    fused = fuse(X.layout, most)
    codes = fused.codes(X.slots)
    is_set = np.zeros(X.shape)
    for row, own in enumerate(codes):
        for code in own:
            at = fused.set_features[fused.ends[code] : fused.ends[code + 1]]
            is_set[row, at] += 1
    plain = X.toarray()
    plain[:, X.layout.number_features] = 0.0
    np.testing.assert_array_equal(is_set, plain)
    by_part = np.array([fused.codes_of(part, X.slots) for part in range(len(fused.parts))])
    firsts = np.cumsum([0, *(part.size for part in fused.parts)])[:-1]
    np.testing.assert_array_equal(by_part + firsts[:, None], codes.T)


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("n_rows", [2_500, 20_000, 150_000])
def test_products_with_fused_columns_are_those_of_the_plain_array(n_rows, compiled, monkeypatch):
    monkeypatch.setenv("FCFL_COMPILED", compiled)
    monkeypatch.setenv("FCFL_NUM_THREADS", "3")
    X = coded_rows(n_rows)
    assert fuse(X.layout, _most_codes(min(n_rows, 65_536))).is_fused
    rows = RowProducts(X)
    assert rows.fused.is_fused
    plain = np.column_stack([X.toarray(), np.ones(n_rows)])
    rng = np.random.default_rng(1)
    params, residuals = rng.standard_normal(plain.shape[1]), rng.standard_normal((n_rows, 3))
    np.testing.assert_allclose(rows.all_logits(params), plain @ params, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rows.pull_back_all(residuals), residuals.T @ plain, atol=1e-9)
    diagonal = rng.standard_normal(n_rows)
    total = CurvatureSum(plain.shape[1])
    rows.add_gramian(diagonal, total)
    np.testing.assert_allclose(total.total, plain.T @ (diagonal[:, None] * plain), atol=1e-9)


def test_few_narrow_columns_among_wide_ones_are_left_alone():
    layout = FeatureLayout(205, (0, 100, 200, 202), (100, 100, 2, 3))
    assert fuse(layout, 16).is_fused is True
    layout = FeatureLayout(405, (0, 100, 200, 300, 400, 402), (100, 100, 100, 100, 2, 3))
    assert fuse(layout, 16).is_fused is False


def test_a_column_of_many_levels_costs_no_square_of_them():
    layout = FeatureLayout(200_000, (0,), (200_000,))
    tracemalloc.start()
    fused = fuse(layout, 512)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fused.set_by.shape[0] == 200_001
    assert peak < 100e6


@pytest.mark.parametrize("n_rows", [50, 3_000])
def test_a_column_without_levels_adds_nothing(n_rows):
    rng = np.random.default_rng(0)
    layout = FeatureLayout(205, (0, 100, 200, 200), (100, 100, 0, 5))
    cells = [rng.integers(-1, max(width, 1), n_rows) for width in layout.widths]
    cells[2][:] = -1
    X, diagonal = code_cells(layout, cells, [], n_rows), rng.random(n_rows)
    plain = np.column_stack([X.toarray(), np.ones(n_rows)])
    np.testing.assert_allclose(
        RowProducts(X).gramian(diagonal), plain.T @ (diagonal[:, None] * plain), atol=1e-10
    )


def test_equal_layouts_share_their_parts():
    """Schemas make a layout each time they are asked, and clients of csr rows one each."""
    assert fuse(layout_with_numbers(), 64) is fuse(layout_with_numbers(), 64)
