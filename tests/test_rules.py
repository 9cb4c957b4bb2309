from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._types import RateId
from fcfl.rules import (
    RATE_KINDS,
    Difference,
    Ratio,
    check_budget_clients,
    rates_needed,
    without_budgets,
)

METRICS = tuple(RATE_KINDS)
RULES = (Difference, Ratio)
LEVELS = {"race": ("black", "white", "other"), "sex": ("f", "m")}

exact_rates = st.lists(st.integers(0, 64).map(lambda k: k / 64), min_size=2, max_size=4)
any_rates = st.lists(st.floats(0, 1), min_size=2, max_size=4)


def largest_violation(rule, rates):
    """The largest of the rule's rows over all ordered pairs of groups."""
    a, b, bound = rule.pair_row(rule.budget_of("phd"))
    pairs = ((x, y) for i, x in enumerate(rates) for j, y in enumerate(rates) if i != j)
    return max(a * x + b * y - bound for x, y in pairs)


def within(rule, rates):
    """Whether the disparity keeps the budget, in the rule's own words."""
    disparity, budget = rule.disparity(rates), rule.budget_of("phd")
    return disparity <= budget if isinstance(rule, Difference) else disparity >= budget


@given(st.sampled_from(RULES), exact_rates, st.integers(0, 64))
def test_rows_are_kept_exactly_when_the_disparity_is_within_the_budget(kind, rates, budget):
    """With dyadic numbers no rounding blurs the boundary."""
    rule = kind("demographic_parity", "race", budget / 64)
    assert (largest_violation(rule, rates) <= 0) == within(rule, rates)


@given(any_rates, st.floats(0, 1))
def test_rows_of_a_difference_are_exact_for_all_numbers(rates, budget):
    rule = Difference("demographic_parity", "race", budget)
    assert (largest_violation(rule, rates) <= 0) == within(rule, rates)
    assert largest_violation(rule, rates) == max(rates) - min(rates) - budget


@given(any_rates, st.floats(0, 1))
def test_rows_of_a_ratio_are_exact_up_to_rounding(rates, budget):
    rule = Ratio("demographic_parity", "race", budget)
    low, high = Fraction(min(rates)), Fraction(max(rates))
    gap = Fraction(budget) * high - low
    assert abs(largest_violation(rule, rates) - float(gap)) <= 2**-52
    if gap > 2**-52:
        assert largest_violation(rule, rates) > 0


@given(any_rates)
def test_a_disparity_lies_between_0_and_1_and_ignores_the_order_of_groups(rates):
    for rule, at_equality in ((Difference, 0.0), (Ratio, 1.0)):
        disparity = rule.disparity(rates)
        assert 0 <= disparity <= 1
        assert disparity == rule.disparity(sorted(rates))
        assert rule.disparity([rates[0]] * 3) == at_equality


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_the_worst_disparity_is_the_one_furthest_from_equality(disparities):
    assert Difference.worst(disparities) == max(disparities)
    assert Ratio.worst(disparities) == min(disparities)


@given(st.sampled_from(RULES), any_rates)
def test_the_loosest_budget_binds_nobody(kind, rates):
    loosest = 1.0 if kind is Difference else 0.0
    assert largest_violation(kind("demographic_parity", "race", loosest), rates) <= 0


@given(st.sampled_from(RULES), any_rates, st.floats(0, 1), st.floats(0, 1))
def test_a_tighter_budget_never_lowers_the_violation(kind, rates, one, other):
    loose, tight = (max, min) if kind is Difference else (min, max)
    rules = [kind("demographic_parity", "race", pick(one, other)) for pick in (loose, tight)]
    assert largest_violation(rules[0], rates) <= largest_violation(rules[1], rates)


@pytest.mark.parametrize("bad", [-1, -1e-9, float("nan"), 2, float("inf"), True, "x", [0.1]])
@pytest.mark.parametrize("kind", RULES)
def test_a_bad_budget_is_refused(kind, bad):
    with pytest.raises(ValueError, match=r"`budget` must be a number from 0 to 1, got .*\. A disp"):
        kind("demographic_parity", "race", bad)
    with pytest.raises(ValueError, match=r"`budget\['phd'\]` must be a number from 0 to 1"):
        kind("demographic_parity", "race", {"md": 0.1, "phd": bad})


@pytest.mark.parametrize("kind", RULES)
def test_budgets_by_client(kind):
    rule = kind("equal_opportunity", "sex", {"phd": 0.1, "md": 0})
    assert rule.budget_of("phd") == 0.1
    assert rule.budget_of("md") == 0
    assert rule.budget_of("elsewhere") is None
    assert rule.budget_of(None) is None
    for_all = kind("equal_opportunity", "sex", 0.3)
    assert for_all.budget_of("phd") == for_all.budget_of(None) == 0.3
    assert kind("equal_opportunity", "sex").budget_of("phd") is None


def test_a_mapping_has_no_meaning_for_all_clients_together():
    with pytest.raises(ValueError, match=r"`budget` must be one number for scope 'global'"):
        Difference("demographic_parity", "race", {"phd": 0.1}, "global")


def test_metric_and_scope_list_their_choices():
    with pytest.raises(ValueError, match=r"`metric` must be one of demographic_parity.*'parity'"):
        Difference("parity", "race", 0.1)
    with pytest.raises(ValueError, match=r"`scope` must be one of client, global, got 'site'"):
        Ratio("demographic_parity", "race", 0.1, "site")


def test_a_budget_for_an_unknown_client_is_refused():
    rules = [Difference("demographic_parity", "race", {"phd": 0.1, "non-pdh": 0.1})]
    check_budget_clients([Difference("demographic_parity", "race", 0.1)], ["phd"])
    with pytest.raises(ValueError, match=r"`budget` names client 'non-pdh'.* mean 'non-phd'\?"):
        check_budget_clients(rules, ["phd", "non-phd"])


def test_rates_come_in_the_order_of_rules_kinds_and_levels_each_once():
    rules = [
        Difference("equalized_odds", "sex"),
        Ratio("demographic_parity", "race"),
        Difference("equal_opportunity", "sex", 0.1),
    ]
    assert rates_needed(rules, LEVELS) == (
        RateId("true_positive", "sex", "f"),
        RateId("true_positive", "sex", "m"),
        RateId("false_positive", "sex", "f"),
        RateId("false_positive", "sex", "m"),
        RateId("selection", "race", "black"),
        RateId("selection", "race", "white"),
        RateId("selection", "race", "other"),
    )
    assert rates_needed([], LEVELS) == ()


@given(st.lists(st.sampled_from([(m, a) for m in METRICS for a in LEVELS]), max_size=6))
def test_every_rate_is_needed_by_a_rule_and_named_once(pairs):
    rules = [Difference(metric, attribute) for metric, attribute in pairs]
    rates = rates_needed(rules, LEVELS)
    wanted = {
        RateId(kind, attribute, group)
        for metric, attribute in pairs
        for kind in RATE_KINDS[metric]
        for group in LEVELS[attribute]
    }
    assert len(rates) == len(wanted) and set(rates) == wanted
    assert rates_needed(rules + rules, LEVELS) == rates


def test_an_unknown_attribute_is_refused():
    rule = Difference("demographic_parity", "rase", 0.1)
    with pytest.raises(ValueError, match=r"sensitive columns 'race', 'sex', got 'rase'\."):
        rates_needed([rule], LEVELS)


@pytest.mark.parametrize("kind", RULES)
def test_without_budgets_the_same_is_measured_and_nothing_bound(kind):
    rules = [kind("equalized_odds", "sex", 0.1), kind("equal_opportunity", "race", {"phd": 0.2})]
    free = without_budgets(rules)
    assert rates_needed(free, LEVELS) == rates_needed(rules, LEVELS)
    assert [type(rule) for rule in free] == [kind, kind]
    assert all(rule.budget_of(client) is None for rule in free for client in ("phd", None))
    assert np.isclose(rules[0].budget, 0.1)  # the rules themselves are left as they were


# --- rows that a group needs ---


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (Difference("demographic_parity", "sex", 0.5), 30),
        (Difference("demographic_parity", "sex", 0.05), 30),
        (Difference("demographic_parity", "sex", 0.03), 50),
        (Difference("demographic_parity", "sex", 0.02), 75),
        (Difference("demographic_parity", "sex", 0.001), 100),
        (Difference("demographic_parity", "sex", 0.0), 100),
        (Ratio("demographic_parity", "sex", 0.8), 30),
        (Ratio("demographic_parity", "sex", 0.97), 50),
        (Ratio("demographic_parity", "sex", 1.0), 100),
        (Difference("demographic_parity", "sex"), 1),
        (Difference("demographic_parity", "sex", {"b": 0.02}), 1),  # none of a's
    ],
)
def test_a_group_needs_thirty_rows_more_for_a_small_budget_and_a_hundred_at_most(rule, least):
    assert rule.least_rows("a") == pytest.approx(least)
    assert rule.least_rows("a", given=7.0) == 7.0


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_smaller_budget_never_needs_fewer_rows(one, other):
    small, large = (
        Difference("demographic_parity", "sex", budget).least_rows(None)
        for budget in sorted((one, other))
    )
    assert 30 <= large <= small <= 100


def test_each_clients_own_budget_counts():
    rule = Difference("demographic_parity", "sex", {"a": 0.02, "b": 0.2})
    assert (rule.least_rows("a"), rule.least_rows("b")) == (pytest.approx(75), 30)
