"""Intervals of single rates against those of statsmodels."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from fcfl.audit.intervals import _wilson_intervals, rate_intervals


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-3, 1e-6, 1e-9])
def test_intervals_of_rates_are_those_of_statsmodels(alpha):
    """Which takes a second to import: here it is the referee."""
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
