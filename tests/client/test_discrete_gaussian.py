"""Draws of the noise against its exact law. Randomness is the system's: chances are 1 in 10⁶."""

from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from fcfl.client import discrete_gaussian as module
from fcfl.client.discrete_gaussian import discrete_gaussian
from fcfl.privacy import DIFFERENCE, LEAST_SCALE, MOST_NUMBERS

ALMOST_NEVER = 1e-6


def p_value(draws, scale):
    """χ² of draws against the exact probabilities, rare values together."""
    reach = 12 * scale
    k = np.arange(-reach, reach + 1)
    law = np.exp(-(k**2) / (2.0 * scale**2))
    expected = draws.size * law / law.sum()
    observed = np.bincount(draws + reach, minlength=k.size)
    often = expected > 10
    seen = np.append(observed[often], observed[~often].sum())
    return stats.chisquare(seen, np.append(expected[often], expected[~often].sum())).pvalue


@pytest.mark.parametrize("scale", [1, 3, 20])
def test_draws_have_the_exact_law(scale):
    assert p_value(discrete_gaussian(scale, 60_000), scale) > ALMOST_NEVER


def test_the_check_would_notice_another_scale():
    assert p_value(discrete_gaussian(21, 60_000), 20) < ALMOST_NEVER


def test_where_floats_may_not_decide_the_law_is_the_same(monkeypatch):
    monkeypatch.setattr(module, "_CLOSE", 1.0)  # every coin is decided by whole numbers
    assert p_value(discrete_gaussian(2, 1_000), 2) > ALMOST_NEVER


def test_a_coin_is_decided_by_more_digits_where_64_bits_do_not_do():
    p = Decimal(-1).exp()
    at = int(p * 2**64)
    assert module._exact_coin(at - 1, 1, 1)
    assert not module._exact_coin(at + 1, 1, 1)
    assert {module._exact_coin(at, 1, 1) for _ in range(100)} == {True, False}


def test_a_large_scale_looks_continuous():
    draws = discrete_gaussian(LEAST_SCALE, 20_000)
    assert stats.kstest(draws / LEAST_SCALE, "norm").pvalue > ALMOST_NEVER
    assert len(np.unique(draws)) > 19_000


@pytest.mark.parametrize("scale", [4, 16, 64])
def test_the_law_differs_from_a_rounded_continuous_one_by_what_the_accountant_charges(scale):
    k = np.arange(-14 * scale, 14 * scale + 1)
    law = np.exp(-(k**2) / (2.0 * scale**2))
    rounded = np.diff(stats.norm.cdf(np.append(k - 0.5, k[-1] + 0.5), scale=scale))
    distance = 0.5 * np.abs(law / law.sum() - rounded).sum()
    assert 0.01 / scale**2 < distance < 0.05 / scale**2
    assert pytest.approx(MOST_NUMBERS * 0.05 / LEAST_SCALE**2) == DIFFERENCE


@pytest.mark.parametrize("scale", [0, 2**47])
def test_a_scale_out_of_range_is_rejected(scale):
    with pytest.raises(ValueError, match="`scale` must be a whole number from 1"):
        discrete_gaussian(scale, 1)
