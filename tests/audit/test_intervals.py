import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from fcfl.audit.intervals import (
    _wilson_intervals,
    balanced_accuracy_interval,
    difference_bounds,
    difference_interval,
    proportion_interval,
    rate_intervals,
    ratio_bounds,
    ratio_interval,
)

AB = ((12.5, 12.5), (80.5, 77.5))  # the posteriors of 12 of 24 and 80 of 157
ALPHAS = st.sampled_from([0.2, 0.05, 1e-3, 1e-6])


@st.composite
def two_groups(draw, most=500):
    rows = draw(st.tuples(st.integers(1, most), st.integers(1, most)))
    chosen = [draw(st.integers(0, n)) for n in rows]
    return chosen[0], rows[0], chosen[1], rows[1]


def test_a_rate_has_the_jeffreys_interval():
    found = rate_intervals([12.0], [24.0], 0.05)
    assert found.low[0] == pytest.approx(beta.ppf(0.025, 12.5, 12.5))
    assert found.high[0] == pytest.approx(beta.ppf(0.975, 12.5, 12.5))


def test_a_share_on_its_own_has_wilsons_interval():
    z, n, p = 1.959964, 50, 0.8
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    assert proportion_interval(40, 50) == pytest.approx((middle - half, middle + half), abs=1e-6)


def test_difference_combines_the_rates_bounds():
    (la, ua), (lb, ub) = (beta.interval(0.95, *b) for b in AB)
    d = 12 / 24 - 80 / 157
    low = d - math.hypot(12 / 24 - la, ub - 80 / 157)
    high = d + math.hypot(ua - 12 / 24, 80 / 157 - lb)
    assert difference_interval(12, 24, 80, 157) == pytest.approx((low, high))


def test_ratio_solves_donner_and_zous_equations():
    (la, ua), (lb, ub) = (beta.interval(0.95, *b) for b in AB)
    pa, pb = 12 / 24, 80 / 157
    product = pa * pb
    low = product - math.sqrt(product**2 - la * ub * (2 * pa - la) * (2 * pb - ub))
    high = product + math.sqrt(product**2 - ua * lb * (2 * pa - ua) * (2 * pb - lb))
    expected = low / (ub * (2 * pb - ub)), high / (lb * (2 * pb - lb))
    assert ratio_interval(12, 24, 80, 157) == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-3, 1e-6, 1e-9])
def test_intervals_of_rates_are_those_of_statsmodels(alpha):
    from statsmodels.stats.proportion import proportion_confint  # a second to import

    n = np.array([1, 2, 7, 24, 157, 1_000, 30_000, 10**6, 10**9], dtype=float)
    for share in (0.0, 1e-3, 0.1, 0.5, 0.77, 1.0):
        k = np.round(share * n)
        inside = (k > 0) & (k < n)
        for name, found in (
            ("jeffreys", rate_intervals(k, n, alpha)),
            ("wilson", _wilson_intervals(k, n, alpha)),
        ):
            low, high = proportion_confint(k, n, alpha, name)
            np.testing.assert_allclose(found.low[inside], low[inside], rtol=2e-9)
            np.testing.assert_allclose(found.high[inside], high[inside], rtol=2e-9)
            assert ((found.low == 0) | (k > 0)).all() and ((found.high == 1) | (k < n)).all()


@given(two_groups(), ALPHAS)
def test_swapping_groups_mirrors_the_difference(groups, alpha):
    low, high = difference_interval(*groups, alpha)
    assert difference_interval(*groups[2:], *groups[:2], alpha) == (-high, -low)


@given(two_groups(), ALPHAS)
def test_swapping_groups_inverts_the_ratio(groups, alpha):
    low, high = ratio_interval(*groups, alpha)
    inverse = ratio_interval(*groups[2:], *groups[:2], alpha)
    assert inverse == pytest.approx((1 / high, 1 / low if low else math.inf))


@given(two_groups(), ALPHAS)
def test_counting_the_others_mirrors_the_difference(groups, alpha):
    a, n, b, m = groups
    low, high = difference_interval(a, n, b, m, alpha)
    assert difference_interval(n - a, n, m - b, m, alpha) == pytest.approx((-high, -low), abs=1e-9)


@given(two_groups(), ALPHAS)
def test_intervals_hold_the_estimate_and_stay_in_range(groups, alpha):
    a, n, b, m = groups
    low, high = difference_interval(*groups, alpha)
    assert -1 <= low <= a / n - b / m <= high <= 1
    low, high = ratio_interval(*groups, alpha)
    assert 0 <= low <= high
    if b:
        assert low * (1 - 1e-12) <= (a / n) / (b / m) <= high * (1 + 1e-12)
    low, high = proportion_interval(a, n, alpha)
    assert 0 <= low <= a / n <= high <= 1


@given(two_groups(), ALPHAS, st.integers(2, 40))
def test_more_rows_never_widen(groups, alpha, times):
    more = tuple(times * count for count in groups)
    for interval in (difference_interval, ratio_interval):
        (low, high), (inner_low, inner_high) = interval(*groups, alpha), interval(*more, alpha)
        assert low <= inner_low + 1e-12 and inner_high <= high * (1 + 1e-12) + 1e-12


@given(two_groups())
def test_more_confidence_never_narrows(groups):
    for interval in (difference_interval, ratio_interval):
        (low, high), (outer_low, outer_high) = interval(*groups, 0.05), interval(*groups, 0.001)
        assert outer_low <= low + 1e-12 and high <= outer_high * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("empty", [(0, 0, 3, 10), (3, 10, 0, 0), (0, 0, 0, 0)])
def test_no_rows_no_interval(empty):
    assert difference_interval(*empty) is None
    assert ratio_interval(*empty) is None
    assert proportion_interval(0, 0) is None
    assert balanced_accuracy_interval(0, 0, 0, 0, 0.05) is None


@pytest.mark.parametrize("alpha", [0.05, 1e-7])
def test_one_row_says_next_to_nothing(alpha):
    assert ratio_interval(0, 1, 0, 1, alpha) == (0.0, math.inf)
    low, high = difference_interval(0, 1, 0, 1, alpha)
    assert low < -0.8 and high > 0.8
    low, high = difference_interval(1, 1, 0, 1, alpha)
    assert low < 0 and high == 1


def test_nobody_or_everybody_selected():
    assert ratio_interval(0, 50, 10, 50)[0] == 0.0
    assert ratio_interval(10, 50, 0, 50)[1] == math.inf
    low, high = difference_interval(50, 50, 50, 50)
    assert low == -high and 0 < high < 0.1
    low, high = ratio_interval(50, 50, 50, 50)
    assert 0.9 < low < 1 < high < 1.1


def test_ten_million_rows_agree_with_the_normal_approximation():
    n, p, q = 10_000_000, 0.5, 0.501
    error = math.sqrt(p * (1 - p) / n + q * (1 - q) / n)
    low, high = difference_interval(p * n, n, q * n, n, 0.05)
    assert (low, high) == pytest.approx((p - q - 1.96 * error, p - q + 1.96 * error), abs=1e-8)
    relative = math.sqrt((1 - p) / (n * p) + (1 - q) / (n * q))
    low, high = ratio_interval(p * n, n, q * n, n, 0.05)
    assert math.log(high / low) == pytest.approx(2 * 1.96 * relative, rel=1e-3)


def test_balanced_accuracy_is_half_one_plus_the_difference():
    low, high = difference_interval(30, 40, 5, 60, 0.05)
    found = balanced_accuracy_interval(30, 40, 55, 60, 0.05)
    assert found == pytest.approx(((1 + low) / 2, (1 + high) / 2))
    assert found[0] < (30 / 40 + 55 / 60) / 2 < found[1]


def test_balanced_accuracy_of_one_class_is_its_share():
    assert balanced_accuracy_interval(0, 0, 55, 60, 0.05) == proportion_interval(55, 60)
    assert balanced_accuracy_interval(30, 40, 0, 0, 0.05) == proportion_interval(30, 40)


@pytest.mark.parametrize(
    "counts", [(5, 3, 1, 2), (-1, 3, 1, 2), (1, -3, 1, 2), (1, math.nan, 1, 2)]
)
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="`selected` must lie between 0 and a positive number"):
        difference_interval(*counts)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_alpha_is_checked(alpha):
    with pytest.raises(ValueError, match="`alpha` must lie between 0 and 1"):
        difference_interval(1, 2, 1, 2, alpha)


COVERED = [((20, 20), (0.3, 0.3)), ((24, 157), (0.75, 0.7)), ((50, 200), (0.1, 0.2))]


@pytest.mark.parametrize("interval", ["difference", "ratio"])
@pytest.mark.parametrize(("rows", "rates"), COVERED, ids=str)
def test_nominal_95_percent_covers_about_95_percent(interval, rows, rates):
    """The small version of ``python -m benchmarks.coverage``; 4 standard errors of slack."""
    rng = np.random.default_rng(1)
    chosen = [rng.binomial(n, p, 400).astype(float) for n, p in zip(rows, rates, strict=True)]
    sides = [rate_intervals(k, n, 0.05) for k, n in zip(chosen, rows, strict=True)]
    bounds = difference_bounds if interval == "difference" else ratio_bounds
    truth = rates[0] - rates[1] if interval == "difference" else rates[0] / rates[1]
    low, high = bounds(*sides)
    assert 0.905 <= ((low <= truth) & (truth <= high)).mean() <= 0.99


def test_intervals_import_neither_statsmodels_nor_all_of_scipys_laws():
    code = (
        "import sys; from fcfl.audit.intervals import difference_interval as d; d(1, 2, 3, 4); "
        "sys.exit(bool({'statsmodels', 'scipy.stats'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
