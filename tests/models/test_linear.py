from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from fcfl._types import CurvatureWeights, Point
from fcfl.data.client_data import ClientData
from fcfl.models.linear import linear_logits
from fcfl.models.linear_rows import linear_rows
from fcfl.rules import Difference, rates_needed
from helpers import TWO_ATTRIBUTES, all_rates, assert_derivative, simulated_data

RATES = all_rates(TWO_ATTRIBUTES)
SEEDS = range(4)


def simulated(seed, **options):
    data = simulated_data(seed, levels=TWO_ATTRIBUTES, **options)
    params = np.random.default_rng(seed).standard_normal(data.n_features + 1) / 3
    return data, linear_rows("a", data, RATES), params


def ask(client, params, want="gradients", weights=None):
    return client.report(Point(params, want, None if weights is None else {"a": weights}))


def some_weights(seed):
    rng = np.random.default_rng(seed)
    return CurvatureWeights(rng.random(), rng.standard_normal(len(RATES)))


def plain_report(data, params):
    """Mean cross-entropy and smooth rates with their gradients, row by row as METHOD writes them.

    Returns loss, its gradient, rates, their gradients, and rows behind each rate.
    """
    X = data.X.toarray() if sparse.issparse(data.X) else data.X
    rows = np.column_stack([X, np.ones(len(X))])
    h = 1 / (1 + np.exp(-rows @ params))
    loss = -np.mean(np.where(data.y == 1, np.log(h), np.log(1 - h)))
    loss_grad = rows.T @ (h - data.y) / len(X)
    score = 1 / (1 + ((1 - h) / h) ** 10)
    rates, rate_grads, counts = [], [], []
    for rate in RATES:
        code = data.levels[rate.attribute].index(rate.group)
        inside = data.groups[rate.attribute] == code
        if rate.kind != "selection":
            inside &= data.y == (rate.kind == "true_positive")
        counts.append(inside.sum())
        rates.append(score[inside].mean())
        slope = 10 * score[inside] * (1 - score[inside])
        rate_grads.append(rows[inside].T @ slope / inside.sum())
    return loss, loss_grad, np.array(rates), np.array(rate_grads), np.array(counts)


def assert_reports_agree(left, right, tolerance):
    """Two reports say the same about every part that both hold."""
    for part in ("n_rows", "loss", "group_counts", "rates", "loss_grad", "rate_grads", "curvature"):
        a, b = getattr(left, part), getattr(right, part)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_merged_rows_give_the_report_of_the_plain_formula(seed, as_sparse):
    data, client, params = simulated(seed, as_sparse=as_sparse)
    assert client.features.shape[0] < data.n_rows  # some rows were merged
    report = ask(client, params)
    loss, loss_grad, rates, rate_grads, counts = plain_report(data, params)
    assert report.n_rows == data.n_rows
    np.testing.assert_array_equal(report.group_counts, counts)
    assert report.loss == pytest.approx(loss, abs=1e-13)
    for claimed, plain in (
        (report.loss_grad, loss_grad),
        (report.rates, rates),
        (report.rate_grads, rate_grads),
    ):
        np.testing.assert_allclose(claimed, plain, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_the_derivatives_of_the_values(seed, as_sparse):
    _, client, params = simulated(seed, as_sparse=as_sparse)
    report = ask(client, params)
    assert_derivative(report.loss_grad, lambda p: ask(client, p, "values").loss, params)
    assert_derivative(report.rate_grads, lambda p: ask(client, p, "values").rates, params)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_curvature_is_the_derivative_of_the_weighted_gradients(seed, as_sparse):
    _, client, params = simulated(seed, as_sparse=as_sparse)
    weights = some_weights(seed)

    def lagrangian_grad(p):
        at = ask(client, p)
        return weights.loss * at.loss_grad + weights.rates @ at.rate_grads

    curvature = ask(client, params, "curvature", weights).curvature
    assert_derivative(curvature, lagrangian_grad, params)
    np.testing.assert_allclose(curvature, curvature.T, atol=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_curvature_of_a_loss_is_positive_semidefinite(seed):
    _, client, params = simulated(seed)
    only_loss = CurvatureWeights(1.0, np.zeros(len(RATES)))
    curvature = ask(client, params, "curvature", only_loss).curvature
    assert np.linalg.eigvalsh(curvature).min() >= -1e-14


@pytest.mark.parametrize("seed", SEEDS)
def test_dense_and_sparse_rows_give_the_same_report(seed):
    _, dense, params = simulated(seed)
    _, thin, _ = simulated(seed, as_sparse=True)
    weights = some_weights(seed)
    reports = [ask(client, params, "curvature", weights) for client in (dense, thin)]
    assert_reports_agree(*reports, tolerance=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_stored_zeros_change_nothing(seed):
    data, client, params = simulated(seed)
    stored = sparse.csr_array(data.X)
    everything = sparse.csr_array(np.ones_like(data.X))
    everything.data = data.X.ravel().copy()
    assert everything.nnz > stored.nnz
    loose = ClientData(everything, data.y, data.groups, data.levels)
    weights = some_weights(seed)
    reports = [
        ask(c, params, "curvature", weights) for c in (client, linear_rows("a", loose, RATES))
    ]
    assert_reports_agree(*reports, tolerance=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_values_only_reports_have_equal_values_and_no_gradients(as_sparse):
    _, client, params = simulated(1, as_sparse=as_sparse)
    weights = some_weights(1)
    values, gradients, curvature = (
        ask(client, params, want, weights) for want in ("values", "gradients", "curvature")
    )
    assert values.loss_grad is values.rate_grads is values.curvature is None
    assert gradients.curvature is None and curvature.curvature is not None
    for richer in (gradients, curvature):
        assert values.loss == richer.loss
        np.testing.assert_array_equal(values.rates, richer.rates)
    np.testing.assert_array_equal(gradients.rate_grads, curvature.rate_grads)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_rows_does_not_matter(seed, as_sparse):
    data, client, params = simulated(seed, as_sparse=as_sparse)
    order = np.random.default_rng(seed).permutation(data.n_rows)
    mixed = linear_rows("a", data.take(order), RATES)
    weights = some_weights(seed)
    reports = [ask(c, params, "curvature", weights) for c in (client, mixed)]
    assert_reports_agree(*reports, tolerance=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_twice_says_the_same_about_twice_as_many(seed):
    data, client, params = simulated(seed)
    twice = linear_rows("a", data.take(np.tile(np.arange(data.n_rows), 2)), RATES)
    once, doubled = ask(client, params), ask(twice, params)
    assert twice.features.shape == client.features.shape
    assert doubled.n_rows == 2 * once.n_rows
    np.testing.assert_array_equal(doubled.group_counts, 2 * once.group_counts)
    np.testing.assert_allclose(doubled.loss_grad, once.loss_grad, atol=1e-14)
    np.testing.assert_allclose(doubled.rate_grads, once.rate_grads, atol=1e-14)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_weight_of_k_is_k_equal_rows(seed, as_sparse):
    data, _, params = simulated(seed, as_sparse=as_sparse)
    copies = np.random.default_rng(seed).integers(0, 4, data.n_rows)
    repeated = linear_rows("a", data.take(np.repeat(np.arange(data.n_rows), copies)), RATES)
    weighted = linear_rows("a", replace(data, weights=copies), RATES)
    weights = some_weights(seed)
    reports = [ask(c, params, "curvature", weights) for c in (weighted, repeated)]
    assert_reports_agree(*reports, tolerance=1e-13)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e8])
def test_the_scale_of_weights_moves_no_mean(scale):
    data, client, params = simulated(0)
    scaled = linear_rows("a", replace(data, weights=np.full(data.n_rows, scale)), RATES)
    weights = some_weights(0)
    one, other = (ask(c, params, "curvature", weights) for c in (client, scaled))
    sized = replace(other, n_rows=other.n_rows / scale, group_counts=other.group_counts / scale)
    assert_reports_agree(one, sized, tolerance=1e-12)


def test_a_group_without_rows_has_rate_and_gradient_zero():
    data = simulated_data(0, levels=TWO_ATTRIBUTES)
    codes = np.where(data.groups["race"] == 1, -1, data.groups["race"])
    data = ClientData(data.X, data.y, {**data.groups, "race": codes}, data.levels)
    client = linear_rows("a", data, RATES)
    params = np.random.default_rng(0).standard_normal(client.n_params)
    report = ask(client, params, "curvature", some_weights(0))
    absent = [q for q, r in enumerate(RATES) if (r.attribute, r.group) == ("race", "white")]
    assert len(absent) == 3
    assert not report.group_counts[absent].any()
    assert not report.rates[absent].any()
    assert not report.rate_grads[absent].any()
    assert np.isfinite(report.curvature).all()
    nothing_of_it = CurvatureWeights(0.0, np.isin(np.arange(len(RATES)), absent) * 1.0)
    assert not ask(client, params, "curvature", nothing_of_it).curvature.any()


def test_a_group_of_one_row_has_that_rows_score():
    data = simulated_data(0, levels=TWO_ATTRIBUTES)
    codes = np.where(np.arange(data.n_rows) == 7, 1, 0)
    data = ClientData(data.X, data.y, {**data.groups, "sex": codes}, data.levels)
    params = np.random.default_rng(0).standard_normal(data.n_features + 1) / 3
    report = ask(linear_rows("a", data, RATES), params)
    one = [(r.kind, r.attribute, r.group) for r in RATES].index(("selection", "sex", "m"))
    score = 1 / (1 + np.exp(-10 * linear_logits(data.X[7:8], params)[0]))
    assert report.group_counts[one] == 1
    assert report.rates[one] == pytest.approx(score, rel=1e-13)
    slope = 10 * score * (1 - score) * np.append(data.X[7], 1.0)
    np.testing.assert_allclose(report.rate_grads[one], slope, rtol=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_no_rates_and_no_features_are_fine(as_sparse):
    data = simulated_data(0, as_sparse=as_sparse)
    client = linear_rows("a", data, ())
    weights = CurvatureWeights(1.0, np.zeros(0))
    report = ask(client, np.zeros(client.n_params), "curvature", weights)
    assert report.rates.shape == (0,) and report.rate_grads.shape == (0, client.n_params)
    assert report.loss == pytest.approx(np.log(2))
    empty = data.X[:, :0]
    intercept = linear_rows("a", ClientData(empty, data.y, data.groups, data.levels), ())
    share = data.y.mean()
    best = np.array([np.log(share / (1 - share))])
    assert ask(intercept, best).loss_grad == pytest.approx([0.0], abs=1e-15)


@pytest.mark.parametrize("size", [1e2, 1e6, 1e150])
def test_huge_logits_give_finite_reports_with_rates_in_range(size):
    _, client, params = simulated(0)
    report = ask(client, size * params, "curvature", some_weights(0))
    for part in (report.loss, report.rates, report.loss_grad, report.rate_grads, report.curvature):
        assert np.isfinite(part).all()
    assert report.rates.min() >= 0 and report.rates.max() <= 1


def test_logits_are_linear_with_the_intercept_last():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert linear_logits(X, np.array([10.0, 100.0, 7.0])).tolist() == [217.0, 437.0]


def test_payload_is_the_bytes_of_the_arrays():
    _, client, params = simulated(0)
    n, q = params.size, len(RATES)
    expected = {"values": 0, "gradients": n + q * n, "curvature": n + q * n + n * n}
    for want, numbers in expected.items():
        assert ask(client, params, want, some_weights(0)).nbytes == 8 * (2 + 2 * q + numbers)


def test_a_client_without_rows_is_refused_by_name():
    data = simulated_data(0).take([])
    rates = rates_needed([Difference("demographic_parity", "race")], data.levels)
    with pytest.raises(ValueError, match=r"Client 'b' has no training rows\."):
        linear_rows("b", data, rates)


@pytest.mark.parametrize("weights", [None, {"b": some_weights(0)}], ids=["none", "another's"])
def test_curvature_without_weights_is_refused(weights):
    _, client, params = simulated(0)
    with pytest.raises(ValueError, match=r"^`curvature_weights` must name client 'a' when a point"):
        client.report(Point(params, "curvature", weights))
