"""Bounds below the budgets: the margin by hand, and what it must never do."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl import Difference, Ratio
from fcfl._types import Report
from fcfl.rules import rates_needed
from fcfl.server.problem import build_problem, evaluate_point
from fcfl.training.few_rows import too_few_rows
from fcfl.training.margins import LEFT, deviations_for, margins_at
from helpers import RACE, identical

PARITY = Difference("demographic_parity", "race", 0.1)
CONFIDENCES = (0.0, 0.3, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99)


def margins(clients, rules=(PARITY,), most_change=0.05):
    """Those of clients with these rows and smooth rates of each group, which are also decided."""
    reports = {
        name: (Report(float(np.sum(rows)), 0.5, np.array(rows, float), np.array(rates)),)
        for name, (rows, rates) in clients.items()
    }
    problem, _ = build_problem(rules, rates_needed(rules, RACE), reports)
    at = evaluate_point(problem, np.zeros(1), reports)
    return margins_at(at, at.rates, most_change)


def bounds(of, confidence):
    """The bounds of the budgets' own rows that training is held to."""
    tightened = of.tightened(of.deviations_for(confidence)).constraints
    return tightened.bounds[: len(of.problem.constraints)]


def standard_deviation(rows, rates):
    p = (np.dot(rows, rates) + 1) / (np.sum(rows) + 2)
    return np.sqrt(p * (1 - p) * np.sum(1 / np.array(rows, float)))


# --- how much is taken ----------------------------------------------------------------------------


def test_the_number_of_deviations_is_the_quantile_of_two_samples_and_the_optimism_of_a_fit():
    assert deviations_for(0) == 0
    assert deviations_for(0.5) == pytest.approx(0.3)
    for confidence in (0.6, 0.8, 0.9, 0.95, 0.99):
        exact = np.sqrt(2) * NormalDist().inv_cdf(confidence) + 0.3
        assert exact - 0.1 < deviations_for(confidence) <= exact + 1e-9
        assert 0.2 <= deviations_for(confidence) - deviations_for(confidence, 0.0) <= 0.4
    assert deviations_for(0.5, 0.0) == pytest.approx(0.1)  # some, so that a drift is held against
    found = [deviations_for(c) for c in np.linspace(0, 0.999, 200)]
    assert np.all(np.diff(found) >= 0)


def test_a_bound_is_lowered_by_that_many_standard_deviations():
    rows, rates = [400, 100], [0.30, 0.22]
    found = margins({"a": (rows, rates)}, [Difference("demographic_parity", "race", 0.2)])
    expected = 0.2 - deviations_for(0.9) * standard_deviation(rows, rates)
    assert bounds(found, 0.9) == pytest.approx([expected, expected])
    assert expected < 0.2 - 0.05
    assert bounds(found, 0) == pytest.approx([0.2, 0.2])


def test_a_ratio_is_a_row_like_any_other():
    """The row is ``0.8 r_a - r_b <= 0``: its deviation weighs the groups by 0.8 and 1."""
    rows, rates = np.array([900.0, 600.0]), [0.5, 0.5]
    found = margins({"a": (rows, rates)}, [Ratio("demographic_parity", "race", 0.8)])
    for bound, (n_a, n_b) in zip(bounds(found, 0.6), (rows, rows[::-1]), strict=True):
        deviation = 0.5 * np.sqrt(0.8**2 / n_a + 1 / n_b)
        assert bound == pytest.approx(-deviations_for(0.6) * deviation, rel=1e-3)


def test_all_rows_together_have_the_deviation_of_their_groups_not_of_the_clients():
    """Of 4 × 250 rows of each group at an even model: ``p (1 - p) (1/1000 + 1/1000)``."""
    rule = Difference("demographic_parity", "race", 0.2, "global")
    clients = {name: ([250, 250], [0.3, 0.3]) for name in "abcd"}
    expected = standard_deviation([1000, 1000], [0.3, 0.3])
    assert margins(clients, [rule]).deviations == pytest.approx([expected] * 2, rel=1e-3)


def test_a_client_with_fewer_rows_is_tightened_more_and_never_left_as_it_is():
    """By the square root of the rows; where that is more than there is, as far as it goes."""
    clients = {
        "large": ([40_000, 10_000], [0.3, 0.3]),
        "middle": ([10_000, 2_500], [0.3, 0.3]),
        "small": ([400, 100], [0.3, 0.3]),
        "tiny": ([4, 1], [0.3, 0.3]),
    }
    large, middle, small, tiny = 0.1 - bounds(margins(clients), 0.9)[::2]
    assert 0 < large < middle < small <= tiny
    assert middle == pytest.approx(2 * large, rel=1e-3)
    assert small == tiny == pytest.approx(0.6 * 0.1)  # of what an even model has room for


@st.composite
def populations(draw):
    """Two clients with any rows and rates."""
    rows = st.lists(st.integers(1, 5000), min_size=2, max_size=2)
    rates = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2)
    return {name: (draw(rows), draw(rates)) for name in "ab"}


@given(populations(), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_bounds_fall_with_the_confidence_and_with_the_budget(clients, one, other):
    lower, higher = sorted((one, other))
    tight, loose = (
        [
            bounds(margins(clients, [Difference("demographic_parity", "race", budget)]), c)
            for c in CONFIDENCES
        ]
        for budget in (lower, higher)
    )
    for found in (tight, loose):
        assert np.all(np.diff(found, axis=0) <= 0)
    assert np.all(np.array(tight) <= np.array(loose) + 1e-12)


@given(populations(), st.floats(0.01, 0.99), st.sampled_from(CONFIDENCES))
def test_an_even_model_keeps_a_tenth_of_its_room(clients, budget, confidence):
    """It is inside what training is held to: a bound of zero, or below, would stall it."""
    difference = Difference("demographic_parity", "race", budget)
    ratio = Ratio("demographic_parity", "race", budget)
    for rule in (difference, ratio):
        found = margins(clients, [rule])
        tightened = found.tightened(deviations_for(confidence)).constraints
        for name, (rows, rates) in clients.items():
            p = (np.dot(rows, rates) + 1) / (np.sum(rows) + 2)
            even = np.full(tightened.n_columns, p)
            room = budget if rule is difference else p * (1 - budget)
            for row, over in zip(tightened.rows, tightened.violations(even), strict=True):
                if row.client == name and row.rule == rule.name:
                    assert -over >= LEFT * room * (1 - 1e-9)


# --- how far rates may move -----------------------------------------------------------------------


def test_training_is_held_near_the_rates_of_the_plain_model():
    found = margins({"a": ([300, 100], [0.4, 0.2]), "b": ([50, 50], [0.7, 0.7])}, most_change=0.03)
    tightened = found.tightened(deviations_for(0.9)).constraints
    own = len(found.problem.constraints)
    for shift, is_inside in ((0.0, True), (0.029, True), (0.031, False), (-0.031, False)):
        moved = np.array([0.4, 0.2, 0.7, 0.7]) + shift
        assert (tightened.violations(moved)[own:] <= 0).all() == is_inside


def test_rates_of_clients_whose_rows_are_too_few_are_aimed_where_they_vary_less():
    clients = {"few": ([60, 40], [0.85, 0.85]), "many": ([60_000, 40_000], [0.85, 0.85])}
    found = margins(clients)
    few, many = found.aims(deviations_for(0.9))
    assert 0 < few <= 0.05 and many == 0
    low = margins({"few": ([60, 40], [0.15, 0.15])}).aims(deviations_for(0.9))
    assert low == pytest.approx([-few])
    assert not found.aims(0.0).any()
    tightened = found.tightened(deviations_for(0.9), moved=True).constraints
    own = len(found.problem.constraints)
    assert (tightened.violations(np.full(4, 0.85))[own:] > 0).any()
    assert (tightened.violations(np.array([0.85 + few] * 2 + [0.85] * 2))[own:] <= 1e-12).all()


def test_smooth_rates_may_be_moved_further_than_decisions_may():
    """A smooth rate that is to move by twice its aim can; one without an aim stays where it was."""
    clients = {"few": ([60, 40], [0.85, 0.85]), "many": ([60_000, 40_000], [0.85, 0.85])}
    found = margins(clients)
    deviations = deviations_for(0.9)
    few = found.aims(deviations)[0]
    own = len(found.problem.constraints)
    twice = found.tightened(deviations, moved=2.0).constraints
    for by, is_inside in ((1.9 * few, False), (2.0 * few + 0.005, True), (2.0 * few + 0.02, False)):
        rates = np.array([0.85 + by, 0.85 + by, 0.85, 0.85])
        assert (twice.violations(rates)[own:] <= 0).all() == is_inside
    assert (twice.violations(np.array([0.85 + 2.0 * few] * 2 + [0.91] * 2))[own:] > 0).any()
    around = found.limits(np.zeros(own)).problem.constraints
    assert (around.violations(np.array([0.85 + 2.0 * few] * 2 + [0.85] * 2))[own:] > 0).any()


def test_the_least_change_is_to_move_decided_rates_by_a_share_of_their_aims():
    clients = {"few": ([60, 40], [0.85, 0.85]), "many": ([60_000, 40_000], [0.85, 0.85])}
    found, deviations = margins(clients), deviations_for(0.9)
    own, few = len(found.problem.constraints), found.aims(deviations)[0]
    around = found.limits(np.zeros(own))
    half = found.aimed(around, deviations, 0.5).problem.constraints
    for by, is_inside in ((0.49 * few, False), (0.51 * few, True), (0.05, True), (0.051, False)):
        rates = np.array([0.85 + by, 0.85 + by, 0.85, 0.85])
        assert (half.violations(rates)[own:] <= 1e-12).all() == is_inside
    assert identical(half.bounds[:own], around.bounds[:own])


def test_what_is_reached_is_the_share_of_the_aim_that_decisions_moved_by():
    clients = {
        "few": ([60, 40], [0.85, 0.85]),
        "low": ([60, 40], [0.15, 0.15]),
        "many": ([60_000, 40_000], [0.85, 0.85]),
    }
    found = margins(clients)
    deviations = deviations_for(0.9)
    up, down, none = found.aims(deviations)
    assert up > 0 > down and none == 0
    decided = np.repeat([0.85 + 0.5 * up, 0.15 + 0.7 * down, 0.5], 2)
    assert found.reached(deviations, decided) == pytest.approx(0.5)
    decided[0:2] -= up
    assert found.reached(deviations, decided) == pytest.approx(-0.5)


def test_a_rate_is_moved_no_further_than_its_rows_make_necessary():
    """At .97 the deviation is small enough: a little is moved, not all that is allowed."""
    least = deviations_for(0.9)
    for rate in (0.90, 0.92, 0.94, 0.95, 0.96):
        rows = [110, 110]
        found = margins({"a": (rows, [rate, rate])}, most_change=0.2)
        (aim,) = found.aims(least)
        crowded = found.short_of_rows(least)[0] > 1
        assert (aim > 0) == crowded
        if crowded and aim < 0.17:
            after = margins({"a": (rows, [rate + aim] * 2)}, most_change=0.2)
            assert after.short_of_rows(least)[0] == pytest.approx(1.0, abs=0.15)


def test_decisions_may_exceed_a_budget_by_no_more_than_they_did():
    found = margins({"a": ([300, 100], [0.4, 0.2])})
    limits = found.limits(np.array([0.1, 0.0]))
    own = limits.bounds[: len(found.problem.constraints)]
    assert own == pytest.approx([0.2, 0.1])
    for rate, is_inside in ((0.301, True), (0.299, False), (0.399, True), (0.401, False)):
        over = limits.problem.constraints.violations(np.array([rate, rate]))
        assert (over <= 0).all() == is_inside  # together their rate is .35


def test_margins_are_those_of_decisions_as_far_as_rows_are_many():
    clients = {"few": ([60, 40], [0.4, 0.4]), "many": ([60_000, 40_000], [0.4, 0.4])}
    found, none = margins(clients), np.zeros(4)
    asked = found.problem.constraints.bounds
    for deviations in (0.0, 0.7, 2.1):
        lowered = asked - found.limits(none, deviations).bounds[:4]
        share = np.array([0.0, 0.0, 1 - 300 / 24_000, 1 - 300 / 24_000])  # 1/60000 + 1/40000
        assert lowered == pytest.approx(share * found.taken(deviations))
    exceeded = np.array([0.0, 0.0, 0.02, 0.0])
    bounds = found.limits(exceeded, 2.1).bounds
    assert bounds[2] == pytest.approx(asked[2] + 0.02) and bounds[3] < asked[3]


# --- what is said ---------------------------------------------------------------------------------


def test_who_has_too_few_rows_is_told_how_many_would_do():
    clients = {"small": ([150, 50], [0.3, 0.3]), "large": ([40_000, 10_000], [0.3, 0.3])}
    (said,) = too_few_rows(margins(clients), 0.9)
    assert said.startswith("Client 'small' has too few rows of race ")
    assert "for 0.9 confidence in a budget of 0.1: it would take about" in said
    assert "`--scope global`" in said
    times = float(said.split("about ")[1].split(" times")[0])
    for more, is_enough in ((1.1 * times, True), (0.9 * times, False)):
        rows = np.array([150, 50]) * more
        assert (not too_few_rows(margins({"small": (rows, [0.3, 0.3])}), 0.9)) == is_enough
    assert not too_few_rows(margins(clients), 0)


def test_more_than_two_clients_with_too_few_rows_are_told_in_one_sentence():
    clients = {name: ([150 * i, 50 * i], [0.3, 0.3]) for i, name in enumerate("abc", start=1)}
    singly = [too_few_rows(margins({name: clients[name]}), 0.9)[0] for name in clients]
    times = [said.split("about ")[1].split(" times")[0] for said in singly]
    assert len(too_few_rows(margins({name: clients[name] for name in "ab"}), 0.9)) == 2
    (said,) = too_few_rows(margins(clients), 0.9)
    listed = f"{times[0]} times as many at 'a', {times[1]} at 'b', {times[2]} at 'c'"
    assert said.startswith("3 clients have too few rows of race ")
    assert f"in a budget of 0.1: it would take about {listed}. They" in said
    rules = [replace(PARITY, budget={"a": 0.1, "b": 0.09, "c": 0.08})]
    (said,) = too_few_rows(margins(clients, rules), 0.9)
    assert "too few rows for 0.9 confidence in their budgets: " in said and "at 'a' (race)" in said
    many = {f"c{i}": ([150, 50], [0.3, 0.3]) for i in range(12)}
    (said,) = too_few_rows(margins(many), 0.9)
    assert said.startswith("12 clients ") and said.count(" at 'c") == 8 and "at 4 more. " in said


def test_of_all_rows_together_no_smaller_scope_is_advised():
    rule = Difference("demographic_parity", "race", 0.01, "global")
    (said,) = too_few_rows(margins({"a": ([150, 50], [0.3, 0.3])}, [rule]), 0.9)
    assert said.startswith("All clients together have too few rows")
    assert "`--scope global`" not in said
