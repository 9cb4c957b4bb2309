from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._types import ROW_SIGNS, CurvatureWeights, Point
from fcfl.client.counts import count_rows
from fcfl.federation.federation import _are_counts
from fcfl.models.influence import GradientSpread
from fcfl.models.linear_rows import linear_rows
from fcfl.models.model import (
    hard_selection,
    rate_members,
    smooth_selection,
    smooth_selection_bend,
    smooth_selection_slope,
)
from helpers import TWO_ATTRIBUTES, all_rates, assert_derivative, simulated_data

logits = st.floats(-60, 60, allow_nan=False)


def assert_is_the_papers_score(z):
    """σ(10 z) is the paper's 1/(1 + ((1-h)/h)^10) with h = σ(z)."""
    h, not_h = 1.0 / (1.0 + np.exp(-z)), 1.0 / (1.0 + np.exp(z))
    paper = 1.0 / (1.0 + (not_h / h) ** 10)
    assert smooth_selection(np.array([z]), 0.0)[0] == pytest.approx(paper, rel=1e-11, abs=1e-300)


@given(logits)
def test_the_score_is_the_papers(z):
    assert_is_the_papers_score(z)


@given(logits)
def test_the_score_is_symmetric_and_lies_between_0_and_1(z):
    scores = smooth_selection(np.array([z, -z]), 0.0)
    assert (scores >= 0).all() and (scores <= 1).all()
    assert scores.sum() == pytest.approx(1.0, abs=1e-15)


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_slope_and_bend_are_the_first_and_second_derivatives(z, cut):
    at = np.array([z])
    score = smooth_selection(at, cut)
    slope = smooth_selection_slope(score)
    bend = smooth_selection_bend(score)
    assert_derivative(slope[:, None], lambda x: smooth_selection(x, cut), at, step=2e-4)
    assert_derivative(
        bend[:, None], lambda x: smooth_selection_slope(smooth_selection(x, cut)), at, step=2e-4
    )


def test_the_hard_decision_selects_from_the_cut_on_and_the_smooth_one_tends_to_it():
    z = np.array([-4.0, -1e-300, -0.0, 0.0, 1e-300, 4.0])
    assert hard_selection(z, 0.0).tolist() == [False, False, True, True, True, True]
    assert hard_selection(z, 1e-300).tolist() == [False, False, False, False, True, True]
    far = np.array([-4.0, 4.0, 12.0])
    for cut in (0.0, 8.0):
        hard = hard_selection(far, cut)
        np.testing.assert_allclose(smooth_selection(far, cut), hard, atol=1e-15)


def test_extreme_logits_stay_finite():
    score = smooth_selection(np.array([-1e300, -1e3, 1e3, 1e300]), 2.0)
    assert score.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert not smooth_selection_slope(score).any()


@pytest.mark.parametrize("seed", range(5))
def test_members_are_the_rows_each_rate_speaks_of(seed):
    data = simulated_data(seed, levels=TWO_ATTRIBUTES)
    rates = all_rates(TWO_ATTRIBUTES)
    members = rate_members(data, rates)
    for column, rate in enumerate(rates):
        for row in range(data.n_rows):
            code = data.groups[rate.attribute][row]
            named = code >= 0 and data.levels[rate.attribute][code] == rate.group
            label = {"selection": data.y[row], "true_positive": 1, "false_positive": 0}[rate.kind]
            assert members[row, column] == (named and data.y[row] == label)


@pytest.fixture
def accuracies(monkeypatch):
    """Make "selection" the accuracy of a group: rows with label 0 count if not selected."""
    monkeypatch.setitem(ROW_SIGNS, "selection", (-1, 1))


def correct(data, rates, selection):
    """Return for each "selection" rate its rows, and the score of each row."""
    for rate in rates:
        inside = data.groups[rate.attribute] == data.levels[rate.attribute].index(rate.group)
        yield inside, np.where(data.y == 1, selection, 1 - selection)[inside]


def test_negative_signs_make_the_smooth_rate_an_accuracy(accuracies):
    data = simulated_data(0, levels=TWO_ATTRIBUTES)
    data = replace(data, X=np.round(data.X))  # equal rows with both labels
    rates = [rate for rate in all_rates(TWO_ATTRIBUTES) if rate.kind == "selection"]
    client = linear_rows("a", data, rates)
    params = np.linspace(-0.3, 0.3, client.n_params)

    def report(at, want="values", weights=None):
        return client.report(Point(at, want, weights))

    scores = list(correct(data, rates, smooth_selection(data.X @ params[:-1] + params[-1], 0.0)))
    exact = report(params, "gradients")
    assert exact.rates == pytest.approx([score.mean() for _, score in scores], abs=1e-14)
    assert exact.group_counts.tolist() == [inside.sum() for inside, _ in scores]
    assert_derivative(exact.rate_grads, lambda at: report(at).rates, params, step=1e-4)
    weights = {"a": CurvatureWeights(0.0, np.arange(1.0, 1 + len(rates)))}
    curvature = report(params, "curvature", weights).curvature
    assert_derivative(
        curvature,
        lambda at: report(at, "gradients").rate_grads.T @ weights["a"].rates,
        params,
        step=1e-4,
    )
    hidden = client.with_groups_of(1e9).report(Point(params))
    assert not hidden.rates.any() and not hidden.group_counts.any()


def test_negative_signs_make_hard_counts_those_of_correct_decisions(accuracies):
    data = simulated_data(1, levels=TWO_ATTRIBUTES)
    rates = [rate for rate in all_rates(TWO_ATTRIBUTES) if rate.kind == "selection"]
    logits = data.X[:, 0]
    counts = count_rows(logits, data, rates, 0.0)
    scores = list(correct(data, rates, hard_selection(logits, 0.0).astype(float)))
    assert counts.group_counts.tolist() == [inside.sum() for inside, _ in scores]
    assert counts.group_selected.tolist() == [score.sum() for _, score in scores]
    assert _are_counts(counts, rates)
    every = replace(counts, group_selected=counts.group_counts)
    assert not _are_counts(every, rates)  # more than all correct decisions


def test_gradient_spread_with_negative_signs_is_the_covariance_of_row_gradients(accuracies):
    data = simulated_data(2, levels=TWO_ATTRIBUTES)
    rates = [rate for rate in all_rates(TWO_ATTRIBUTES) if rate.kind == "selection"]
    client = linear_rows("a", data, rates)
    params = np.linspace(-0.2, 0.4, client.n_params)
    spread = GradientSpread(np.diag(np.linspace(1.0, 2.0, client.n_params)))
    found = client.report(Point(params, extras=(spread,))).extras["gradient_spread"]
    X = np.column_stack([data.X, np.ones(data.n_rows)])
    slope = smooth_selection_slope(smooth_selection(X @ params, 0.0)) * (2 * data.y - 1)
    for (inside, _), one in zip(correct(data, rates, data.y), found, strict=True):
        rows = (slope[:, None] * X @ spread.factor)[inside]
        assert one == pytest.approx(rows.var(axis=0).sum() / len(rows))
