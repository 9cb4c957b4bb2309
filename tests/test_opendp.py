"""Compare the cost of a release, its epsilon and its noise with OpenDP."""

import math

import numpy as np
import pytest
from scipy import stats

from fcfl._types import RateId
from fcfl.client.discrete_gaussian import discrete_gaussian
from fcfl.methods.private import Private
from fcfl.privacy import epsilon_of

dp = pytest.importorskip("opendp.prelude")
dp.enable_features("contrib")

RATES = (RateId("selection", "sex", "f"), RateId("selection", "sex", "m"))
SPACE = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)


def theirs(release):
    """Return OpenDP's discrete Gaussian with the noise of a release, on a fine lattice."""
    return dp.m.make_gaussian(*SPACE, scale=release.noise_sd(RATES) * 2.0**20)


def all_releases():
    method = Private(1.0, 1e-6)
    asked = [one for taken in range(method.rounds + 1) for one in method.releases(taken)]
    return [one for one in asked if one.part == "train"]


def test_a_release_costs_the_same_as_in_opendp():
    for one in all_releases():
        row = one.sensitivity(RATES) * 2.0**20
        assert theirs(one).map(row) == pytest.approx(one.mu**2 / 2, rel=1e-9)


def test_epsilon_of_a_run_is_below_the_bound_of_opendp():
    """OpenDP converts concentrated divergence, a bound; our epsilon is exact."""
    rho = sum(theirs(one).map(one.sensitivity(RATES) * 2.0**20) for one in all_releases())
    mu = math.sqrt(sum(one.mu**2 for one in all_releases()))
    assert rho == pytest.approx(mu**2 / 2, rel=1e-9)
    together = dp.m.make_gaussian(*SPACE, scale=2.0**20 / mu)
    profile = dp.c.make_zCDP_to_approxDP(together).map(2.0**20)
    for delta in (1e-8, 1e-6, 1e-5):
        assert 0.9 * profile.epsilon(delta) < epsilon_of(mu, delta) < profile.epsilon(delta)
    assert profile.epsilon(1e-6) < 1.1


@pytest.mark.parametrize("scale", [2, 9])
def test_noise_has_the_law_of_opendp(scale):
    ours = discrete_gaussian(scale, 10_000)
    others = np.array(dp.m.make_gaussian(*SPACE, scale=float(scale))([0] * 10_000))
    reach = 3 * scale
    counts = [
        np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
        for draws in (ours, others)
    ]
    assert stats.chi2_contingency(counts).pvalue > 1e-6
    wider = np.rint(others * 1.2).astype(int)
    wide = np.bincount(np.clip(wider, -reach, reach) + reach, minlength=2 * reach + 1)
    assert stats.chi2_contingency(np.array([counts[0], wide]) + 1).pvalue < 1e-6
