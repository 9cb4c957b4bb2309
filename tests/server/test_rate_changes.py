"""Rows that limit how far rates change: the linear map that they claim to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl import Difference, Ratio
from fcfl.rules import rates_needed
from fcfl.server.constraints import CHANGE, build_constraints
from fcfl.server.rate_changes import RateChanges
from helpers import TWO_ATTRIBUTES

RULES = (
    Difference("equalized_odds", "race", 0.1),
    Difference("demographic_parity", "sex", 0.2, "global"),
    Ratio("demographic_parity", "sex", 0.8, "global"),
    Ratio("demographic_parity", "sex", 0.8),
)
RATES = rates_needed(RULES, TWO_ATTRIBUTES)
CLIENTS = ("a", "b", "c")


def changes_of(seed, least=1.0):
    """Random counts, among them small groups, and the rates of some model."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 60, (len(CLIENTS), len(RATES))).astype(float)
    constraints, _ = build_constraints(RULES, CLIENTS, RATES, counts, least)
    smooth, decided = rng.random((2, counts.size))
    return RateChanges.of(constraints, counts.ravel(), smooth, decided), constraints, counts, rng


def rate_together(key, counts, rates, least=1.0):
    """The rate of a population by hand: selected rows over rows, of the groups compared."""
    client, attribute, kind = key
    mine = [i for i, r in enumerate(RATES) if (r.attribute, r.kind) == (attribute, kind)]
    rates = rates.reshape(counts.shape)
    if client is None:
        kept = [i for i in mine if counts[:, i].sum() >= least]
        rows, found = counts[:, kept], rates[:, kept]
    else:
        place = CLIENTS.index(client)
        kept = [i for i in mine if counts[place, i] >= least]
        rows, found = counts[place, kept], rates[place, kept]
    return (rows * found).sum() / rows.sum()


@pytest.mark.parametrize("least", [1.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_rows_are_the_rates_of_clients_and_of_all_together_up_and_down(seed, least):
    changes, constraints, counts, rng = changes_of(seed, least)
    assert len(set(changes.keys)) == len(changes) == len(changes.smooth)
    limits = rng.random(2 * len(changes))
    appended = changes.appended_to(constraints, limits)
    rates = rng.random(counts.size)
    expected = np.array([rate_together(key, counts, rates, least) for key in changes.keys])
    own = len(constraints)
    np.testing.assert_allclose(appended.apply(rates)[own:], [*expected, *-expected])
    np.testing.assert_array_equal(appended.apply(rates)[:own], constraints.apply(rates))
    np.testing.assert_array_equal(appended.bounds, [*constraints.bounds, *limits])
    assert [row.client for row in appended.rows[own:]] == [k[0] for k in changes.keys] * 2
    assert {row.rule for row in appended.rows[own:]} == {CHANGE}
    assert np.diff(appended.blocks).min() >= 0 and len(set(appended.blocks[own:])) == len(limits)


@pytest.mark.parametrize("seed", range(3))
def test_rates_to_count_from_are_those_of_the_model_smooth_and_decided(seed):
    _, constraints, counts, rng = changes_of(seed)
    smooth, decided = rng.random((2, counts.size))
    changes = RateChanges.of(constraints, counts.ravel(), smooth, decided)
    for key, before, after in zip(changes.keys, changes.smooth, changes.decided, strict=True):
        assert before == pytest.approx(rate_together(key, counts, smooth))
        assert after == pytest.approx(rate_together(key, counts, decided))
    for row, population in zip(constraints.rows, changes.population_of_row, strict=True):
        assert changes.keys[population] == (row.client, row.attribute, row.kind)


@given(st.integers(0, 20), st.floats(0.0, 0.5))
def test_bounds_around_a_rate_are_kept_exactly_by_those_near_it(seed, most):
    changes, constraints, counts, rng = changes_of(seed)
    appended = changes.appended_to(constraints, changes.bounds_around(changes.smooth, most))
    rates = rng.random(counts.size)
    found = np.array([rate_together(key, counts, rates) for key in changes.keys])
    over = appended.violations(rates)[len(constraints) :]
    largest = np.maximum(over[: len(changes)], over[len(changes) :])
    np.testing.assert_allclose(largest, np.abs(found - changes.smooth) - most, atol=1e-12)


def test_bounds_from_a_rate_ask_for_a_change_only_where_there_is_one():
    changes, *_ = changes_of(0)
    wanted = np.zeros(len(changes))
    wanted[:2] = 0.03, -0.04
    bounds = changes.bounds_from(changes.smooth, wanted)
    up, down = bounds[: len(changes)], bounds[len(changes) :]
    assert down[0] == pytest.approx(-(changes.smooth[0] + 0.03)) and up[0] == np.inf
    assert up[1] == pytest.approx(changes.smooth[1] - 0.04) and down[1] == np.inf
    assert np.isinf(up[2:]).all() and np.isinf(down[2:]).all()


def test_a_lower_bound_yields_where_it_would_meet_the_upper_one():
    changes, constraints, *_ = changes_of(0)
    around = changes.bounds_around(changes.smooth, 0.05)
    bounds = np.concatenate([constraints.bounds, around])
    np.testing.assert_array_equal(changes.apart(bounds), bounds)
    lowered = bounds.copy()
    first = len(constraints)
    lowered[first] -= 0.2  # the upper bound of the first population is now below its lower one
    parted = changes.apart(lowered)
    upper, lower = parted[first], -parted[first + len(changes)]
    assert upper == lowered[first] and lower == pytest.approx(upper - 0.01)
    others = np.delete(np.arange(len(bounds)), [first, first + len(changes)])
    np.testing.assert_array_equal(parted[others], bounds[others])
