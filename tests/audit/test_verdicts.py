import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._types import RateId
from fcfl.audit.intervals import difference_interval, ratio_interval
from fcfl.audit.verdicts import judge, verdict_of
from fcfl.rules import Difference, Ratio, rates_needed

PARITY = Difference("demographic_parity", "race")
RATIO = Ratio("demographic_parity", "race")
ODDS = Difference("equalized_odds", "race")


def selection(n_groups):
    return tuple(RateId("selection", "race", f"g{k}") for k in range(n_groups))


def judged(rule, rows, selected, budget=None, alpha=0.05, **options):
    rates = selection(len(rows))
    return judge(
        rule, rates, np.array(rows, float), np.array(selected, float), budget, alpha, **options
    )


@st.composite
def several_groups(draw, least=2, most=4):
    rows = draw(st.lists(st.integers(1, 300), min_size=least, max_size=most))
    return rows, [draw(st.integers(0, n)) for n in rows]


def test_two_groups_fold_the_signed_difference():
    found = judged(PARITY, [100, 200], [80, 60])
    low, high = difference_interval(80, 100, 60, 200)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.value == pytest.approx(0.5)
    near = judged(PARITY, [24, 157], [12, 80])
    low, high = difference_interval(12, 24, 80, 157)
    assert (near.low, near.high) == (0.0, pytest.approx(max(high, -low)))


def test_two_groups_fold_the_ratio():
    found = judged(RATIO, [100, 200], [80, 60])
    low, high = ratio_interval(60, 200, 80, 100)
    assert found.value == pytest.approx(0.3 / 0.8)
    assert (found.low, found.high) == pytest.approx((low, high))
    near = judged(RATIO, [24, 157], [12, 80])
    low, high = ratio_interval(12, 24, 80, 157)
    assert (near.low, near.high) == (pytest.approx(min(low, 1 / high)), 1.0)


@pytest.mark.parametrize("rule", [PARITY, RATIO], ids=["difference", "ratio"])
@given(several_groups(), st.randoms(use_true_random=False))
def test_order_of_groups_does_not_matter(rule, groups, random):
    pairs = list(zip(*groups, strict=True))
    random.shuffle(pairs)
    one = judged(rule, *groups)
    other = judged(rule, *zip(*pairs, strict=True))
    for name in ("value", "low", "high", "smallest_verifiable"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))


@pytest.mark.parametrize("rule", [PARITY, RATIO], ids=["difference", "ratio"])
@given(several_groups())
def test_the_interval_holds_the_value_within_0_and_1(rule, groups):
    found = judged(rule, *groups)
    assert 0 <= found.low <= found.value + 1e-12 and found.value <= found.high + 1e-12
    assert found.high <= 1 and 0 <= found.smallest_verifiable <= 1


@pytest.mark.parametrize("rule", [PARITY, RATIO], ids=["difference", "ratio"])
@given(several_groups(), st.integers(2, 30))
def test_more_rows_at_the_same_rates_never_widen(rule, groups, times):
    rows, selected = (np.array(part) for part in groups)
    few, many = judged(rule, rows, selected), judged(rule, times * rows, times * selected)
    assert few.low <= many.low + 1e-12 and many.high <= few.high + 1e-12
    if rule is PARITY:
        assert many.smallest_verifiable <= few.smallest_verifiable + 1e-12
    elif selected.sum() * rows.min() >= rows.sum():  # at least one row expected in each group
        assert many.smallest_verifiable >= few.smallest_verifiable - 1e-12


def test_more_groups_are_compared_simultaneously():
    found = judged(PARITY, [100, 200, 300], [50, 60, 90])
    pairs = [(50, 100, 60, 200), (50, 100, 90, 300), (60, 200, 90, 300)]
    bounds = [difference_interval(*pair, 0.05 / 3) for pair in pairs]
    assert found.low == pytest.approx(max(max(low, -high, 0) for low, high in bounds))
    assert found.high == pytest.approx(max(max(high, -low) for low, high in bounds))


def test_three_groups_cover_together():
    rng = np.random.default_rng(0)
    truth, rows = np.array([0.3, 0.35, 0.4]), np.array([40, 100, 300])
    found = [judged(PARITY, rows, rng.binomial(rows, truth)) for _ in range(300)]
    assert np.mean([e.low <= 0.1 <= e.high for e in found]) >= 0.92


def test_equalized_odds_takes_the_worse_rate():
    rates = rates_needed([ODDS], {"race": ("a", "b")})
    rows, selected = np.array([100.0, 100, 100, 100]), np.array([90.0, 80, 10, 50])
    found = judge(ODDS, rates, rows, selected, None)
    low, high = difference_interval(10, 100, 50, 100, 0.05 / 2)
    assert found.value == pytest.approx(0.4)
    assert (found.low, found.high) == pytest.approx((-high, -low))


def test_a_rate_that_cannot_be_compared_is_never_met():
    rates = rates_needed([ODDS], {"race": ("a", "b")})
    rows, selected = np.array([9e4, 0, 9e4, 9e4]), np.array([8e4, 0, 1e4, 1e4])
    found = judge(ODDS, rates, rows, selected, 0.2)
    assert found.value == 0 and found.high == 1.0 and found.verdict == "undetermined"
    assert found.smallest_verifiable == 1.0
    (note,) = found.notes
    assert "label 1" in note and "'b'" in note
    ratio = judge(Ratio("equalized_odds", "race"), rates, rows, selected, 0.8)
    assert (ratio.low, ratio.verdict) == (0.0, "undetermined")
    far = judge(ODDS, rates, rows, np.array([8e4, 0, 1e4, 8e4]), 0.2)
    assert far.verdict == "exceeded"


@pytest.mark.parametrize("rule", [PARITY, RATIO], ids=["difference", "ratio"])
@pytest.mark.parametrize("rows", [[0, 0], [0, 30], [30, 0], [30]], ids=str)
def test_fewer_than_two_groups_say_nothing(rule, rows):
    bounded = judged(rule, rows, [0] * len(rows), budget=0.5)
    assert (bounded.value, bounded.low, bounded.high) == (None, None, None)
    assert (bounded.verdict, bounded.smallest_verifiable) == ("undetermined", None)
    assert judged(rule, rows, [0] * len(rows)).verdict == "unconstrained"


def test_small_groups_are_left_out_and_named():
    found = judged(PARITY, [100, 100, 1], [50, 50, 1], min_group_rows=20)
    assert found.value == 0
    (note,) = found.notes
    assert "'g2'" in note and "20" in note
    assert judged(PARITY, [100, 100, 1], [50, 50, 1]).value == 0.5


@pytest.mark.parametrize(
    ("interval", "budget", "difference", "ratio"),
    [
        ((0.1, 0.2), 0.2, "met", "undetermined"),
        ((0.1, 0.2), 0.1, "undetermined", "met"),
        ((0.1, 0.2), 0.15, "undetermined", "undetermined"),
        ((0.1, 0.2), 0.05, "exceeded", "met"),
        ((0.1, 0.2), 0.25, "met", "exceeded"),
        ((0.0, 1.0), 1.0, "met", "undetermined"),
        ((0.0, 1.0), 0.0, "undetermined", "met"),
        (None, 0.5, "undetermined", "undetermined"),
        (None, None, "unconstrained", "unconstrained"),
        ((0.1, 0.2), None, "unconstrained", "unconstrained"),
    ],
)
def test_verdicts(interval, budget, difference, ratio):
    assert verdict_of(PARITY, interval, budget) == difference
    assert verdict_of(RATIO, interval, budget) == ratio


def test_verdict_follows_the_counts():
    assert judged(PARITY, [5000, 5000], [1500, 1510], 0.05).verdict == "met"
    assert judged(PARITY, [5000, 5000], [1500, 2500], 0.05).verdict == "exceeded"
    assert judged(PARITY, [50, 50], [15, 15], 0.05).verdict == "undetermined"
    assert judged(RATIO, [5000, 5000], [1500, 1510], 0.8).verdict == "met"
    assert judged(RATIO, [5000, 5000], [1500, 2500], 0.8).verdict == "exceeded"
    assert judged(RATIO, [50, 50], [15, 15], 0.8).verdict == "undetermined"


@pytest.mark.parametrize("rule", [PARITY, RATIO], ids=["difference", "ratio"])
def test_smallest_verifiable_is_met_by_groups_selected_alike(rule):
    smallest = judged(rule, [40, 200], [12, 90]).smallest_verifiable
    pooled = 102 / 240
    slack = 1e-9 if rule is PARITY else -1e-9
    alike = [40 * pooled, 200 * pooled]
    assert judged(rule, [40, 200], alike, smallest + slack).verdict == "met"
    assert judged(rule, [40, 200], alike, smallest - 2 * slack).verdict == "undetermined"


def test_the_small_client_of_adult_can_verify_about_a_fifth():
    found = judged(PARITY, [24, 157], [18, 118], 0.01)
    assert found.verdict == "undetermined"
    assert found.smallest_verifiable == pytest.approx(0.195, abs=0.015)
    assert judged(PARITY, [2400, 15700], [1800, 11800], 0.05).verdict == "met"


def test_nobody_selected_is_a_ratio_of_one_that_shows_nothing():
    found = judged(RATIO, [50, 50], [0, 0], 0.8)
    assert (found.value, found.low, found.high) == (1.0, 0.0, 1.0)
    assert found.verdict == "undetermined"
