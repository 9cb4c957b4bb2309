"""What to expect on new rows: limits, monotonicity, and coverage on samples drawn by a coin."""

import numpy as np
import pytest
from scipy.stats import betabinom

from fcfl import Difference, Ratio
from fcfl.audit import verdicts as forecasting
from fcfl.audit.verdicts import compare, forecast
from fcfl.rules import rates_needed

LEVELS = {"race": ("black", "white", "other")}
PARITY = Difference("demographic_parity", "race")
FOUR_FIFTHS = Ratio("demographic_parity", "race")


def foreseen(decided, rows, budget=None, rule=PARITY, smooth=None, new_rows=None, drifts=None):
    """The forecast of groups with these decided rates and numbers of training rows."""
    decided = np.array(decided, dtype=float)
    rows = np.broadcast_to(np.array(rows, dtype=float), decided.shape)
    names = LEVELS["race"][: decided.size // len(rule.kinds)]
    rates = rates_needed([rule], {"race": names})
    smooth = decided if smooth is None else np.array(smooth, dtype=float)
    new = None if new_rows is None else np.broadcast_to(float(new_rows), decided.shape)
    compared = compare(rule, rates, rows, 1.0)
    known = None if drifts is None else np.array(drifts)
    return forecast(rule, compared, smooth, decided, rows, budget, new, known)


@pytest.mark.parametrize("rates", [[0.31, 0.24], [0.5, 0.3, 0.42]])
@pytest.mark.parametrize("rule", [PARITY, FOUR_FIFTHS])
def test_with_very_many_rows_it_is_the_disparity_of_decisions(rates, rule):
    smooth = np.full(len(rates), 0.1)  # of many rows decisions are what they are
    found = foreseen(rates, 1e10, rule=rule, smooth=smooth)
    assert found.value == pytest.approx(rule.disparity(rates), abs=1e-4)
    assert found.low == pytest.approx(found.high, abs=1e-3)
    assert found.low <= found.value <= found.high


def test_of_few_rows_it_is_the_smooth_rates_that_are_repeated():
    """30 rows whose decisions a fit has bent to its budget: new rows will not repeat them."""
    bent = foreseen([0.3, 0.3], 30, smooth=[0.2, 0.5])
    even = foreseen([0.3, 0.3], 30)
    assert bent.value > even.value + 0.1


def test_rates_drift_by_the_bias_but_not_beyond_one_standard_deviation():
    towards, still, far = (
        foreseen([0.30, 0.34], 1e5, budget=0.039, drifts=[by, -by]) for by in (0.001, 0.0, 0.5)
    )
    assert towards.value == pytest.approx(0.038, abs=2e-4)
    assert still.value == pytest.approx(0.04, abs=3e-4)
    assert far.value == pytest.approx(0.04 - 2 * np.sqrt(0.22 / 1e5), abs=2e-4)
    assert far.chance_kept > towards.chance_kept > still.chance_kept


def test_chances_are_none_one_and_zero_at_their_limits():
    assert foreseen([0.3, 0.2], 100).chance_kept is None
    assert foreseen([0.3, 0.2], 100, budget=1.0).chance_kept == 1
    assert foreseen([0.3, 0.2], 1e8, budget=0.11).chance_kept == 1
    assert foreseen([0.3, 0.2], 1e8, budget=0.09).chance_kept == 0
    assert foreseen([0.3, 0.2], 1e8, budget=0.6, rule=FOUR_FIFTHS).chance_kept == 1
    assert foreseen([0.3, 0.2], 1e8, budget=0.7, rule=FOUR_FIFTHS).chance_kept == 0
    assert foreseen([0.0, 0.0], 1e6, budget=1.0, rule=FOUR_FIFTHS).chance_kept is not None


def test_the_chance_rises_with_the_budget():
    chances = [foreseen([0.35, 0.3], 200, b).chance_kept for b in np.linspace(0, 0.3, 20)]
    assert np.all(np.diff(chances) >= 0) and chances[0] < 0.05 and chances[-1] > 0.95
    ratios = [foreseen([0.35, 0.3], 200, b, FOUR_FIFTHS).chance_kept for b in (0.2, 0.6, 0.95)]
    assert np.all(np.diff(ratios) < 0)


def test_more_rows_make_it_narrower_and_so_do_more_new_ones():
    rows = [10, 30, 100, 1000, 10_000]
    widths = [f.high - f.low for f in (foreseen([0.4, 0.3], n) for n in rows)]
    assert np.all(np.diff(widths) < 0)
    new = [f.high - f.low for f in (foreseen([0.4, 0.3], 300, new_rows=m) for m in rows)]
    assert np.all(np.diff(new) < 0)
    assert new[-1] > foreseen([0.4, 0.3], 1e8).high - foreseen([0.4, 0.3], 1e8).low


def test_three_groups_are_further_apart_than_two_by_chance_alone():
    two, three = foreseen([0.3, 0.3], 200), foreseen([0.3, 0.3, 0.3], 200)
    assert three.value > two.value and three.high > two.high


def test_the_worst_of_several_rates_counts():
    odds = Difference("equalized_odds", "race")
    both = foreseen([0.5, 0.3, 0.2, 0.2], 1e9, 0.1, odds)
    assert both.value == pytest.approx(0.2, abs=1e-3) and both.chance_kept == 0


def test_nothing_is_said_where_there_are_no_two_groups():
    assert foreseen([0.3], 100, 0.1) is None
    assert foreseen([0.3, 0.2], [100, 0], 0.1) is None


def test_a_fit_is_not_believed_to_do_as_well_on_new_rows():
    """Beyond chance, which alone would leave the mean of a large difference as it is."""
    rows = 1000
    deviation = np.sqrt(2 * 0.25 / rows)
    found = foreseen([0.6, 0.4], rows)
    assert found.value == pytest.approx(0.2 + 0.3 * deviation, abs=0.1 * deviation)


def drawn(rng, n_groups):
    """Draw rates whose expected range is two thirds of .1, their estimates on two samples, rows."""
    deviation = 2 / 3 * 0.1 / {2: 1.128, 3: 1.693}[n_groups]
    rates = rng.uniform(0.2, 0.5) + deviation * rng.standard_normal(n_groups)
    rows = rng.integers(400, 2000, n_groups)
    train, new = (rng.binomial(rows, rates) / rows for _ in range(2))
    return train, new, rows


@pytest.mark.thorough
@pytest.mark.parametrize("n_groups", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_on_rows_drawn_by_a_coin_it_covers_nine_in_ten_and_its_chances_come_true(
    n_groups, monkeypatch
):
    """The optimism of a fit left out: these rates were fitted to nothing."""
    rng = np.random.default_rng(1)
    inside, kept, said, cautious = [], [], [], []
    for _ in range(500):
        train, new, rows = drawn(rng, n_groups)
        cautious.append(foreseen(train, rows, 0.1).chance_kept)
        with monkeypatch.context() as patched:
            patched.setattr(forecasting, "OPTIMISM", 0.0)
            found = foreseen(train, rows, 0.1)
        value = new.max() - new.min()
        inside.append(found.low <= value <= found.high)
        kept.append(value <= 0.1)
        said.append(found.chance_kept)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)
    assert np.mean(kept) == pytest.approx(np.mean(said), abs=0.04)
    said, kept = np.array(said), np.array(kept)
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.01)):
        these = (said >= low) & (said < high)
        assert kept[these].mean() == pytest.approx(said[these].mean(), abs=0.1)
    assert np.mean(cautious) < np.mean(said)


def prior_rows(budget, shared, least=10.0):
    """Rows that the common rate of two groups is worth: an expected range of 2/3 of the budget."""
    deviation = 2 / 3 * budget / (2 / np.sqrt(np.pi))
    return max(shared * (1 - shared) / deviation**2, least)


def test_a_budget_that_training_rows_clearly_exceed_has_no_chance():
    """The prior of a trained model gives way to rows that contradict it."""
    for rows in (500, 5000, 1e6):
        assert foreseen([0.35, 0.2], rows, 0.01, drifts=[0.0, 0.0]).chance_kept < 0.02
        assert foreseen([0.35, 0.2], rows, 0.01, drifts=[0.0, 0.0]).value > 0.1


def test_of_few_rows_the_chance_is_that_of_counts_which_is_known_in_closed_form():
    """No fit, no drift: new counts are beta-binomial, and near 1 that is far from a normal law."""
    n, rates, budget = np.array([40, 160]), np.array([0.95, 0.975]), 0.03
    shared = (n @ rates + 0.5) / (n.sum() + 1.0)
    S = prior_rows(budget, shared)
    known, unknown = n * rates + S * shared, n * (1 - rates) + S * (1 - shared)
    first, second = (
        betabinom(m, a, b).pmf(np.arange(m + 1)) for m, a, b in zip(n, known, unknown, strict=True)
    )
    apart = np.abs(np.arange(41)[:, None] / 40 - np.arange(161)[None, :] / 160)
    exact = float((first[:, None] * second[None, :])[apart <= budget + 1e-12].sum())
    found = foreseen(rates, n, budget, drifts=[0.0, 0.0])
    assert found.chance_kept == pytest.approx(exact, abs=0.03)
    mean = float((first[:, None] * second[None, :] * apart).sum())
    assert found.value == pytest.approx(mean, abs=0.002)


def test_a_disparity_that_is_the_budget_itself_keeps_it():
    """Of twenty people each, one more or less is .05, up to rounding."""
    n, rates = np.array([20, 20]), np.array([0.9, 0.93])
    shared = (n @ rates + 0.5) / (n.sum() + 1.0)
    S = prior_rows(0.05, shared)
    first, second = (
        betabinom(20, 20 * r + S * shared, 20 * (1 - r) + S * (1 - shared)).pmf(np.arange(21))
        for r in rates
    )
    one_apart = np.abs(np.subtract.outer(np.arange(21), np.arange(21))) <= 1
    exact = float(np.outer(first, second)[one_apart].sum())
    found = foreseen(rates, n, 0.05, drifts=[0.0, 0.0])
    assert found.chance_kept == pytest.approx(exact, abs=0.03)


def test_rates_of_two_labels_are_chances_of_their_own():
    odds = Difference("equalized_odds", "race")
    one = foreseen([0.3, 0.33], 200, 0.05, drifts=[0.0, 0.0])
    both = foreseen([0.3, 0.33, 0.3, 0.33], 200, 0.05, odds, drifts=[0.0] * 4)
    assert both.chance_kept == pytest.approx(one.chance_kept**2, abs=0.04)


@pytest.mark.parametrize("rows", [1, 1e6, 3e8, 1e19])
def test_everybody_or_nobody_of_any_number_of_rows(rows):
    for rate in (0.0, 1.0):
        found = foreseen([rate, rate], rows, 0.05)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.chance_kept == 1 or rows == 1


def test_few_people_of_a_group_are_taken_for_this_clients_people():
    """Three of three selected do not say that everybody of that group is."""
    few, many = (
        foreseen([1.0, 0.8], [rows, 1000], new_rows=10_000, drifts=[0.0, 0.0]) for rows in (3, 3000)
    )
    assert many.value == pytest.approx(0.2, abs=0.01)
    assert few.value < 0.12
