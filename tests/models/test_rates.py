import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
