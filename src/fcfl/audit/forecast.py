r"""What a disparity will be on new rows, and the chance that it keeps its budget.

New rows, as many as the training rows, are selected or not, each of them, at rates that are known
as well as the training rows tell them:

.. math:: p_g \sim \mathrm{Beta}\big(n_g r_g + 10\,\bar r,\; n_g (1 - r_g) + 10 (1 - \bar r)\big),
          \qquad m_g\, r'_g \sim \mathrm{Binomial}(m_g, p_g)

with :math:`n_g` training and :math:`m_g` new rows, and ten more rows at the rate of the groups
compared, together: few people of a group say less of it than that they are this client's. Counts,
not normal deviates: of 45 people 43 are selected or 44, and near 0 and 1 that is not symmetric.
The rates to start from are neither the smooth ones alone nor the decisions: in small groups a fit
has bent single decisions to its budget, which new rows do not repeat, in large ones decisions are
what they are. So :math:`r_g` is the smooth rate moved towards the decided one by
:math:`n / (n + 300)`, n the rows of the smallest group. A fit also flatters its own rows: rates
drift by half of the bias in `training.margins` (to first order it is overstated), one standard
deviation at most, and where that is not known, the group selected most and the one selected least
are moved apart by 0.3 standard deviations. The constants come from re-splits of Adult (seeds below
100); `python -m benchmarks.promise chances` compares stated chances with frequencies on splits that
they were not chosen on.
"""

from dataclasses import dataclass

import numpy as np

from fcfl._types import Vector
from fcfl.rules import Difference, Rule

from .disparities import Comparison

_DRAWS = 2000  # chances to about a percent; the same stream for everybody
_COVERAGE = (0.05, 0.95)
_OPTIMISM = 0.3  # standard deviations by which groups drift apart on new rows
_DRIFT_SEEN = 0.5  # share of the drift that new rows show; to first order it is overstated
_MOST_DRIFT = 1.0  # standard deviations: far from where they were taken, slopes say nothing
_TRUSTED_ROWS = 300.0  # rows from which on decisions say more than smooth rates
_MOST_ROWS = 1e12  # more say nothing more, and would be lost in rounding
_TIE = 1e-9  # shares of whole people may be the budget itself, up to rounding
_SHARED_ROWS = 10.0  # rows that the other groups' rate is worth in what is known of a group's


@dataclass(frozen=True, slots=True)
class Forecast:
    """The mean disparity on new rows, an interval that has nine in ten, the chance it is kept."""

    value: float
    low: float
    high: float
    chance_kept: float | None


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
    """What to expect of one rule on new rows; None where there are no two groups to compare.

    ``smooth`` and ``decided`` are rates of all groups on training rows, ``rows`` their counts,
    ``new_rows`` those to come, by default as many, ``drifts`` by how much they will differ.
    """
    come = rows if new_rows is None else new_rows
    rng = np.random.default_rng(0)
    parts = [
        _drawn(rng, rule, smooth, decided, rows, come, drifts, groups)
        for groups in compared.columns.values()
        if len(groups) >= 2
    ]
    if not parts:
        return None
    worst = np.max(parts, axis=0) if isinstance(rule, Difference) else np.min(parts, axis=0)
    chance = None
    if budget is not None:
        over = worst - budget if isinstance(rule, Difference) else budget - worst
        kept = over <= _TIE
        chance = float(kept.mean())
    low, high = np.quantile(worst, _COVERAGE)
    return Forecast(float(worst.mean()), float(low), float(high), chance)


def _drawn(
    rng: np.random.Generator,
    rule: Rule,
    smooth: Vector,
    decided: Vector,
    rows: Vector,
    new_rows: Vector,
    drifts: Vector | None,
    groups: list[int],
) -> Vector:
    """Disparities between some groups on many samples of new rows."""
    n = np.minimum(rows[groups], _MOST_ROWS)
    m = np.clip(np.rint(new_rows[groups]), 1.0, _MOST_ROWS).astype(np.int64)
    trust = n.min() / (n.min() + _TRUSTED_ROWS)
    rates = smooth[groups] + trust * (decided[groups] - smooth[groups])
    shared = (n @ rates + 0.5) / (n.sum() + 1.0)
    shrunk = (n * rates + _SHARED_ROWS * shared) / (n + _SHARED_ROWS)
    variance = shrunk * (1.0 - shrunk) / n
    if drifts is None:
        centres = _apart(rates, variance)
    else:
        most = _MOST_DRIFT * np.sqrt(variance)
        centres = rates + np.clip(_DRIFT_SEEN * drifts[groups], -most, most)
    centres = np.clip(centres, 0.0, 1.0)
    selected = n * centres + _SHARED_ROWS * shared
    others = n * (1.0 - centres) + _SHARED_ROWS * (1.0 - shared)
    true_rates = rng.beta(selected, others, (_DRAWS, len(groups)))
    samples = rng.binomial(m, true_rates) / m
    most, least = samples.max(axis=1), samples.min(axis=1)
    if isinstance(rule, Difference):
        return np.asarray(most - least)
    return np.asarray(least / np.where(most > 0, most, 1.0) + (most == 0))


def _apart(rates: Vector, variance: Vector) -> Vector:
    """Rates in which the largest and the smallest are further apart, each by its own share."""
    most, least = int(np.argmax(rates)), int(np.argmin(rates))
    if most == least:  # all the same: neither is known to be favoured
        return rates
    both = variance[most] + variance[least]
    moved = rates.copy()
    by = _OPTIMISM / np.sqrt(max(float(both), 1e-300))
    moved[most] += by * variance[most]
    moved[least] -= by * variance[least]
    return moved
