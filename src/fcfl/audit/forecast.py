r"""Estimate a disparity on new rows, and the chance that it keeps its budget.

As many new rows as training rows are selected at rates that the training rows determine in part:

.. math:: p_g \sim \mathrm{Beta}\big(n_g r_g + S\,\bar r,\; n_g (1 - r_g) + S (1 - \bar r)\big),
          \qquad m_g\, r'_g \sim \mathrm{Binomial}(m_g, p_g)

with :math:`n_g` training and :math:`m_g` new rows and :math:`\bar r` the rate of all compared
groups. Counts replace normal deviates: of 45 people 43 or 44 are selected, and near 0 and 1 that
law is not symmetric.

**Prior.** S is how many rows the common rate is worth: a model that was trained under a budget has
similar rates in all groups. Independent rates of G groups with the variance
:math:`\bar r (1 - \bar r) / S` have an expected range proportional to their deviation. S sets that
range to two thirds of the budget, plus whatever training rows exceed the budget by beyond two
standard deviations. With one budget in place of two thirds chances were too low (.64 stated, .69
kept), with half of it too high (.71); 1,899 client-runs of ten tasks of `benchmarks.promise`, seeds
10 to 19. Without a budget S is 10.

**Rates.** In small groups a fit has moved single decisions across the threshold, which new rows do
not repeat. So :math:`r_g` is the smooth rate moved towards the decided one by
:math:`n / (n + 300)`, with n the rows of the smallest group.

**Optimism.** A fit is optimistic about its own rows. Rates drift by the bias of `training.margins`,
by one standard deviation at most. Where the bias is not known, the group selected most and the one
selected least are moved apart by 0.3 standard deviations.
"""

from functools import cache

import numpy as np
from scipy.special import ndtr

from fcfl._types import Vector
from fcfl.rules import Difference, Rule

from .verdicts import Comparison, Forecast

_DRAWS = 2000  # chances to about a percent; the same stream for everybody
_COVERAGE = (0.05, 0.95)
_MAX_ROWS = 1e12  # more rows change nothing, and would be lost in rounding
_TIE = 1e-9  # shares of whole people may be the budget itself, up to rounding
_PRIOR_RANGE = 2.0 / 3.0  # expected disparity before any row is seen, as a share of the budget

OPTIMISM = 0.3  # standard deviations by which groups drift apart where the bias is not known

# Of the gap between hard and smooth rates, new rows repeat about n / (n + 300): none of it below 50
# rows, .16 up to 300, .80 up to 1,000, .98 above (measured on re-splits of Adult).
TRUSTED_ROWS = 300.0
SHARED_ROWS = 10.0  # rows that a common rate is worth where nothing else determines its weight


def forecast(
    rule: Rule,
    compared: Comparison,
    smooth: Vector,
    decided: Vector,
    rows: Vector,
    budget: float | None,
    new_rows: Vector | None = None,
    drifts: Vector | None = None,
) -> Forecast | None:
    """Estimate one rule on new rows; return None where there are no two groups to compare.

    ``smooth`` and ``decided`` are rates of all groups on training rows, ``rows`` their counts,
    ``new_rows`` those to come, by default as many, ``drifts`` by how much rates are expected to
    differ on them.
    """
    come, is_difference = rows if new_rows is None else new_rows, isinstance(rule, Difference)
    rng = np.random.default_rng(0)

    def drawn(groups: list[int]) -> Vector:
        """Draw disparities between some groups on many samples of new rows."""
        n = np.minimum(rows[groups], _MAX_ROWS)
        m = np.clip(np.rint(come[groups]), 1.0, _MAX_ROWS).astype(np.int64)
        trust = n.min() / (n.min() + TRUSTED_ROWS)
        rates = smooth[groups] + trust * (decided[groups] - smooth[groups])
        shared = (n @ rates + 0.5) / (n.sum() + 1.0)
        shrunk = (n * rates + SHARED_ROWS * shared) / (n + SHARED_ROWS)
        variance = shrunk * (1.0 - shrunk) / n
        if drifts is None:
            centres = _apart(rates, variance)
        else:
            limit = np.sqrt(variance)
            centres = rates + np.clip(drifts[groups], -limit, limit)
        centres = np.clip(centres, 0.0, 1.0)
        prior = _prior_rows(rule, budget, rates, variance, float(shared))
        selected = n * centres + prior * shared
        others = n * (1.0 - centres) + prior * (1.0 - shared)
        samples = rng.binomial(m, rng.beta(selected, others, (_DRAWS, len(groups)))) / m
        most, least = samples.max(axis=1), samples.min(axis=1)
        if is_difference:
            return np.asarray(most - least)
        return np.asarray(least / np.where(most > 0, most, 1.0) + (most == 0))

    parts = [drawn(groups) for groups in compared.columns.values() if len(groups) >= 2]
    if not parts:
        return None
    worst = np.max(parts, axis=0) if is_difference else np.min(parts, axis=0)
    chance = None
    if budget is not None:
        over = worst - budget if is_difference else budget - worst
        chance = float((over <= _TIE).mean())
    low, high = np.quantile(worst, _COVERAGE)
    return Forecast(float(worst.mean()), float(low), float(high), chance)


def _prior_rows(
    rule: Rule, budget: float | None, rates: Vector, variance: Vector, shared: float
) -> float:
    """Return S, the rows that the groups' common rate is worth."""
    if budget is None:
        return SHARED_ROWS
    slack = budget if isinstance(rule, Difference) else (1.0 - budget) * shared
    most, least = int(np.argmax(rates)), int(np.argmin(rates))
    noise = 2.0 * np.sqrt(variance[most] + variance[least])
    excess = max(float(rates[most] - rates[least] - slack - noise), 0.0)
    deviation = (_PRIOR_RANGE * slack + excess) / _expected_range(len(rates))
    rows = shared * (1.0 - shared) / max(deviation, 1e-9) ** 2
    return float(np.clip(rows, SHARED_ROWS, _MAX_ROWS))


@cache
def _expected_range(n: int) -> float:
    r"""Return the expected range of n standard normal deviates, ∫ 1 - Φ(x)ⁿ - (1 - Φ(x))ⁿ dx."""
    x, step = np.linspace(-9.0, 9.0, 2001, retstep=True)
    below = ndtr(x)
    return float(step * (1.0 - below**n - (1.0 - below) ** n).sum())


def _apart(rates: Vector, variance: Vector) -> Vector:
    """Move the largest and the smallest rate apart, each by its share of the variance."""
    most, least = int(np.argmax(rates)), int(np.argmin(rates))
    if most == least:  # all the same: neither is known to be favoured
        return rates
    both = variance[most] + variance[least]
    moved = rates.copy()
    by = OPTIMISM / np.sqrt(max(float(both), 1e-300))
    moved[most] += by * variance[most]
    moved[least] -= by * variance[least]
    return moved
