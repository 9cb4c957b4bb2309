"""The compiled kernels against NumPy: skipped where there is no compiler."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import CurvatureWeights, Point
from fcfl.data.client_data import ClientData, CodedFeatures
from fcfl.models import kernels as compiled_module
from fcfl.models.kernels import CurvatureSum, kernels
from fcfl.models.linear_rows import RowProducts, linear_rows
from fcfl.models.loss import CrossEntropy, Hinge
from fcfl.rules import Difference, rates_needed
from helpers import coded_rows

pytestmark = pytest.mark.skipif(kernels() is None, reason="there are no compiled kernels")


def rows_of(n_rows, n_groups=2, seed=0, weights=None, cut=0.0):
    rng = np.random.default_rng([seed, 1])
    levels = {"group": tuple(map(str, range(max(n_groups, 1))))}
    groups = {"group": rng.integers(-1, max(n_groups, 1), n_rows)}
    y = rng.integers(0, 2, n_rows)
    data = ClientData(coded_rows(n_rows, seed), y, groups, levels, weights)
    rules = [Difference("equalized_odds", "group", 0.1)] if n_groups else []
    return linear_rows("a", data, rates_needed(rules, levels), cut=cut)


def point_for(rows, want, scale=1.0, seed=0):
    rng = np.random.default_rng([seed, 2])
    params = scale * rng.standard_normal(rows.n_params)
    n_rates = rows.members.shape[0]
    weights = CurvatureWeights(rng.random(), rng.standard_normal(n_rates))
    return Point(params, want, {"a": weights} if want == "curvature" else None)


def parts(report):
    return {
        name: getattr(report, name)
        for name in ("loss", "rates", "loss_grad", "rate_grads", "curvature")
        if getattr(report, name) is not None
    }


def both(rows, point, monkeypatch):
    monkeypatch.setenv("FCFL_COMPILED", "1")
    compiled = parts(rows.report(point))
    monkeypatch.setenv("FCFL_COMPILED", "0")
    return compiled, parts(rows.report(point))


@pytest.mark.parametrize("want", ["values", "gradients", "curvature"])
@pytest.mark.parametrize("n_groups", [0, 1, 2, 9])
@pytest.mark.parametrize(
    ("n_rows", "scale"), [(1, 1.0), (255, 1.0), (257, 0.0), (3_000, 20.0), (30_000, 0.3)]
)
def test_a_report_is_numpys_to_rounding(n_rows, scale, n_groups, want, monkeypatch):
    rows = rows_of(n_rows, n_groups, weights=None if n_rows % 2 else np.full(n_rows, 0.3))
    compiled, plain = both(rows, point_for(rows, want, scale), monkeypatch)
    assert compiled.keys() == plain.keys()
    assert len(plain) == {"values": 2, "gradients": 4, "curvature": 5}[want]
    for name, value in plain.items():
        largest = np.abs(value).max(initial=1.0)
        np.testing.assert_allclose(
            compiled[name], value, rtol=1e-12, atol=1e-13 * largest, err_msg=name
        )


@pytest.mark.parametrize("threshold", [0.001, 0.1, 0.9])
def test_a_report_at_another_threshold_is_numpys_to_rounding(threshold, monkeypatch):
    rows = rows_of(3_000, cut=CrossEntropy().cut_at(threshold))
    compiled, plain = both(rows, point_for(rows, "curvature"), monkeypatch)
    elsewhere = parts(replace(rows, cut=0.0).report(point_for(rows, "curvature")))
    assert np.abs(plain["rates"] - elsewhere["rates"]).max() > 0.01
    np.testing.assert_array_equal(plain["loss_grad"], elsewhere["loss_grad"])
    for name, value in plain.items():
        largest = np.abs(value).max(initial=1.0)
        np.testing.assert_allclose(
            compiled[name], value, rtol=1e-12, atol=1e-13 * largest, err_msg=name
        )


@pytest.mark.parametrize("scale", [300.0, 1e5, 1e300])
def test_reports_far_away_are_numpys(scale, monkeypatch):
    rows = rows_of(500)
    with np.errstate(all="ignore"):
        compiled, plain = both(rows, point_for(rows, "curvature", scale), monkeypatch)
    for name, value in plain.items():
        np.testing.assert_allclose(compiled[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_parameter_that_is_nan_is_not_hidden(monkeypatch):
    rows = rows_of(500)
    point = point_for(rows, "gradients")
    point.params[-1] = np.nan
    compiled, _ = both(rows, point, monkeypatch)
    assert np.isnan(compiled["loss"])
    assert np.isnan(compiled["loss_grad"]).all()


def test_a_nan_of_any_bits_is_not_hidden(monkeypatch):
    rows = rows_of(500)
    point = point_for(rows, "curvature")
    point.params.view(np.uint64)[-1] = 0x7FF8000000000FFF
    compiled, _ = both(rows, point, monkeypatch)
    assert all(np.isnan(compiled[name]).all() for name in ("loss", "rates", "loss_grad"))


@pytest.mark.parametrize("sharpness", [-10.0, 0.0, 1.0, 100.0])
def test_scores_of_any_sharpness_are_numpys(sharpness, monkeypatch):
    rows = rows_of(500)
    point = replace(point_for(rows, "curvature"), sharpness=sharpness)
    compiled, plain = both(rows, point, monkeypatch)
    for name, value in plain.items():
        np.testing.assert_allclose(compiled[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_loss_that_is_more_than_cross_entropy_is_asked_itself(monkeypatch):
    class Twice(CrossEntropy):
        def total(self, logits, counts, positives):
            return 2 * super().total(logits, counts, positives)

    rows = rows_of(500)
    point = point_for(rows, "values")
    assert replace(rows, loss=Twice()).report(point).loss == pytest.approx(
        2 * rows.report(point).loss
    )


@pytest.mark.parametrize("n_rows", [300, 5_000])
def test_weights_of_any_kind_of_array_give_the_same_curvature(n_rows, monkeypatch):
    rng = np.random.default_rng(0)
    X = coded_rows(n_rows)
    whole = rng.integers(-5, 5, n_rows)
    expected = RowProducts(X).gramian(whole.astype(np.float64))
    wide = np.column_stack([whole, whole]).astype(np.float64)
    for given in (whole, whole.astype(np.float32), wide[:, 0], wide.T[1]):
        np.testing.assert_array_equal(RowProducts(X).gramian(given), expected)
    other = CodedFeatures(X.layout, X.slots.astype(np.int64), np.asfortranarray(X.numbers))
    np.testing.assert_allclose(RowProducts(other).gramian(whole), expected, rtol=1e-12, atol=1e-9)


def test_whole_numbers_and_wide_codes_give_the_same_report(monkeypatch):
    X = coded_rows(700)
    whole = CodedFeatures(X.layout, X.slots.astype(np.int64), X.numbers.round().astype(np.int64))
    plain = CodedFeatures(X.layout, X.slots, X.numbers.round())
    groups, levels = {"group": np.zeros(700, dtype=int)}, {"group": ("0",)}
    y = np.random.default_rng(0).integers(0, 2, 700)
    found = []
    for features in (whole, plain):
        rows = linear_rows("a", ClientData(features, y, groups, levels), ())
        found.append(rows.report(point_for(rows, "gradients")))
    np.testing.assert_array_equal(found[0].loss_grad, found[1].loss_grad)


def test_parameters_may_be_float32_or_every_second_of_an_array(monkeypatch):
    rows = rows_of(700)
    point = point_for(rows, "gradients")
    expected = rows.report(point)
    spaced = np.repeat(point.params, 2)[::2]
    assert not spaced.flags.c_contiguous
    np.testing.assert_array_equal(rows.report(replace(point, params=spaced)).loss, expected.loss)
    short = replace(point, params=point.params.astype(np.float32))
    np.testing.assert_allclose(rows.report(short).loss, expected.loss, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(1, 7, 900, 1_000, 3), (40_000,), (400, 5_000, 80_000)])
def test_curvature_sums_are_numpys_to_rounding(sizes, monkeypatch):
    found = []
    for compiled in "01":
        monkeypatch.setenv("FCFL_COMPILED", compiled)
        total = CurvatureSum(coded_rows(1).shape[1] + 1)
        for seed, n_rows in enumerate(sizes):
            rng = np.random.default_rng(seed)
            RowProducts(coded_rows(n_rows, seed)).add_gramian(rng.standard_normal(n_rows), total)
        found.append(total.total)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10, atol=1e-10)


def test_the_kernel_is_what_reports_use(monkeypatch):
    """Otherwise every comparison above would compare NumPy with itself."""
    calls = []

    class Counting:
        @staticmethod
        def report(*args):
            calls.append(args[:2])
            kernels().report(*args)

    monkeypatch.setattr("fcfl.models.linear_rows.kernels", lambda: Counting)
    rows = rows_of(30_000)
    rows.report(point_for(rows, "gradients"))
    assert sorted(calls) == [(block.start, block.stop) for block in rows.products.blocks]
    calls.clear()
    rows.report(point_for(rows, "decisions"))
    replace(rows, loss=Hinge()).report(point_for(rows, "gradients"))
    assert not calls


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_a_compiled_report_has_the_same_bits_for_any_number_of_threads(threads, monkeypatch):
    rows = rows_of(60_000)
    point = point_for(rows, "curvature")
    monkeypatch.setenv("FCFL_NUM_THREADS", "1")
    alone = parts(rows.report(point))
    monkeypatch.setenv("FCFL_NUM_THREADS", threads)
    for name, value in parts(rows.report(point)).items():
        np.testing.assert_array_equal(value, alone[name])


def arguments(rows, point):
    """What the kernel is called with for all rows."""
    products, fused = rows.products, rows.products.fused
    n_sums = 1 + rows.members.shape[0]
    return [
        0, rows.row_counts.size, products.codes.shape[1], fused.n_first, 10.0, 0.0, products.codes,
        fused.ends, fused.set_features, products.numbers, fused.number_features, point.params,
        rows.row_counts, rows.positive_counts, rows.members, np.zeros(n_sums), np.zeros(n_sums),
        np.zeros((n_sums, rows.n_params)), np.zeros(rows.row_counts.size),
    ]  # fmt: skip


def test_arguments_of_any_wrong_size_are_refused_and_nothing_is_written_outside():
    rows = rows_of(300)
    good = arguments(rows, point_for(rows, "gradients"))
    kernels().report(*good)
    for i, value in enumerate(good):
        if isinstance(value, np.ndarray):
            for wrong in (value.reshape(-1)[:-1], np.append(value.reshape(-1), value.reshape(-1))):
                broken = [*good]
                broken[i] = np.ascontiguousarray(wrong.astype(value.dtype))
                if i == 11 and wrong.size > value.size:
                    continue  # as many parameters as that need larger gradients, tried below
                with pytest.raises(ValueError, match=r"items|range"):
                    kernels().report(*broken)
    for i, wrong in ((0, -1), (0, 301), (1, 301), (1, -5), (2, 0), (2, 1 << 40), (3, 1 << 40)):
        broken = [*good]
        broken[i] = wrong
        with pytest.raises(ValueError, match=r"items|range|many"):
            kernels().report(*broken)


@pytest.mark.parametrize("place", [6, 7, 8, 10])
@pytest.mark.parametrize("wrong", [-1, 1 << 20, -(1 << 31)])
def test_codes_and_features_out_of_range_are_refused(place, wrong):
    rows = rows_of(300)
    broken = arguments(rows, point_for(rows, "gradients"))
    broken[place] = broken[place].copy()
    broken[place].reshape(-1)[1] = wrong
    with pytest.raises(ValueError, match="out of range"):
        kernels().report(*broken)


def test_pairs_outside_their_table_are_refused():
    codes, weights = np.array([0, 1, 5], dtype=np.int32), np.ones(3)
    with pytest.raises(ValueError, match="not in the table"):
        kernels().add_pairs(2, codes, codes, weights, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="not in the table"):
        kernels().add_pairs(2, -codes, codes, weights, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="items"):
        kernels().add_pairs(2, codes[:2], codes, weights, np.zeros((2, 2)))
    with pytest.raises((ValueError, BufferError, TypeError)):
        kernels().add_pairs(2, codes, codes, weights, np.zeros((8, 8))[:, ::2])


def test_few_rows_with_features_or_sizes_out_of_range_are_refused():
    features, weights = np.array([[0, 1], [2, 3]], dtype=np.int32), np.ones(2)
    own, total = np.zeros((3, 3)), np.zeros((3, 3))
    kernels().add_few(3, features, weights, own, total)  # feature 3 is none
    np.testing.assert_array_equal(total, [[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    assert not own.any()
    for wrong in (features + 1, -features):
        with pytest.raises(ValueError, match="out of range"):
            kernels().add_few(3, wrong, weights, own, total)
    for size in (-1, 2, 4, 1 << 40):
        with pytest.raises(ValueError, match=r"items|large"):
            kernels().add_few(size, features, weights, own, total)
    with pytest.raises(TypeError, match="doubles"):
        kernels().add_few(3, features, weights.astype(int), own, total)
    with pytest.raises(TypeError, match="integers"):
        kernels().add_few(3, features.astype(float), weights, own, total)


def test_kernels_of_another_interface_are_left_alone(monkeypatch):
    monkeypatch.setattr("fcfl.models._kernels.INTERFACE", 0)
    with pytest.warns(UserWarning, match="another version"):
        assert compiled_module._load() is None
