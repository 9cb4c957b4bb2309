r"""Verdicts on one rule from the counts of one client's rows, and forecasts for new rows.

**Verdicts** (`judge`). The value of a rule is the largest difference (or smallest ratio) over all
pairs of groups and all rates of the rule. Each of the m pairs has an interval at level
``alpha / m`` (Bonferroni), so all intervals hold jointly with probability ``1 - alpha``. If they
hold, the value lies between the largest lower and the largest upper bound of the absolute
differences. For a ratio, it lies between the smallest lower and the smallest upper bound of the
smaller-over-larger ratios.

**Forecasts** (`forecast`) predict the disparity on new rows, and the probability that it meets its
budget. They simulate new rows from a posterior distribution of the rates given the training rows:

.. math:: p_g \sim \mathrm{Beta}\big(n_g r_g + S\,\bar r,\; n_g (1 - r_g) + S (1 - \bar r)\big),
          \qquad m_g\, r'_g \sim \mathrm{Binomial}(m_g, p_g)

where group g has :math:`n_g` training rows and :math:`m_g` new rows, and :math:`\bar r` is the
pooled rate of the compared groups. The simulation draws counts rather than normal deviates,
because rates of small groups are discrete, and skewed near 0 and 1.

*Prior.* S is the weight of the pooled rate, in rows: a model trained under a budget has similar
rates in all groups. If rates of G groups are independent with variance
:math:`\bar r (1 - \bar r) / S`, their expected range is proportional to their standard deviation. S
sets this range to two thirds of the budget, plus the excess of the training rates over the budget
beyond two standard deviations. A range of one budget predicted probabilities that were too low (.64
predicted, .69 observed); half a budget predicted too much (.71). This was measured on 1,899
client-runs of ten tasks of `benchmarks.promise`, seeds 10 to 19. Without a budget S is 10.

*Rates.* In small groups training overfits single decisions near the threshold. Therefore
:math:`r_g` is a weighted mean of the hard rate, with weight :math:`n / (n + 300)`, and the smooth
rate, where n is the number of rows of the smallest group.

*Optimism.* Disparities are smaller on training rows than on new rows. Rates are corrected by the
bias that `training.margins` estimates, at most by one standard deviation. If no bias is estimated,
the highest and the lowest group rate are moved apart by 0.3 standard deviations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fcfl._types import RateId, RateKind, Vector
from fcfl.audit.intervals import (
    Bounds,
    Interval,
    RateIntervals,
    difference_bounds,
    proportion_interval,
    rate_intervals,
    ratio_bounds,
)
from fcfl.rules import Difference, Rule, with_label

Verdict = Literal["met", "exceeded", "undetermined", "unconstrained"]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Number of rows of one group, and the number of them that the model selects.

    If ``is_compared`` is False, the group has too few rows and does not affect any value, interval
    or verdict.
    """

    rate: str
    group: str
    rows: int
    selected: int
    is_compared: bool = True

    @property
    def interval(self) -> Interval | None:
        """Wilson's interval of the selected share, None if the group has no rows."""
        return proportion_interval(self.selected, self.rows)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted mean disparity on new rows, its 90 % interval, and the probability of the budget.

    ``chance_kept`` is the probability that the budget is met, None without a budget.
    """

    value: float
    low: float
    high: float
    chance_kept: float | None


@dataclass(frozen=True, slots=True)
class Disparity:
    """Value, interval and verdict of one rule, for one client or for all rows together.

    ``value`` is computed from hard decisions. ``value``, ``low`` and ``high`` are None if fewer
    than two groups have enough rows. ``smallest_verifiable`` is the tightest budget that these
    group sizes could verify: the far end of the interval if all groups had the same rate. ``notes``
    name the excluded groups.

    ``smooth`` is the value that training constrains. Only training rows have ``smooth`` and
    ``expected``. ``price`` is None if the method has no multipliers.
    """

    metric: str
    attribute: str
    rule: str
    value: float | None
    smooth: float | None = None
    low: float | None = None
    high: float | None = None
    budget: float | None = None
    expected: Forecast | None = None
    verdict: Verdict = "unconstrained"
    price: float | None = None
    smallest_verifiable: float | None = None
    groups: tuple[GroupCount, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def trained(self) -> float | None:
        """The value of hard decisions, or the smooth value if no rows were counted.

        The synthetic problem has no rows; its rates are given by a formula.
        """
        return self.smooth if self.value is None else self.value

    @property
    def title(self) -> str:
        """Metric, rule and attribute, as a title."""
        return f"{self.metric.replace('_', ' ')} {self.rule}, {self.attribute}"

    @property
    def in_words(self) -> str:
        """Metric, rule and attribute, for use within a sentence."""
        return f"{self.metric.replace('_', ' ')} {self.rule} by {self.attribute}"

    @property
    def is_ratio(self) -> bool:
        """Whether the rule is a ratio, for which larger values are better."""
        return self.rule == "ratio"

    @property
    def interval(self) -> Interval | None:
        """Lower and upper bound, None if there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Indices of the rates that a rule compares for one client or for all rows together.

    ``columns`` lists the groups with enough rows for each kind of rate, ``too_few`` the others.
    """

    columns: dict[RateKind, list[int]]
    too_few: list[int]

    @property
    def pairs(self) -> NDArray[np.intp]:
        """All pairs of groups with the same kind of rate, shape (n_pairs, 2)."""
        found = [pair for groups in self.columns.values() for pair in combinations(groups, 2)]
        return np.array(found, dtype=np.intp).reshape(-1, 2)

    @property
    def is_partial(self) -> bool:
        """Whether some kind of rate has fewer than two groups to compare."""
        return any(len(groups) < 2 for groups in self.columns.values())


def compare(
    rule: Rule,
    rates: Sequence[RateId],
    group_counts: Vector,
    min_group_rows: float,
    trained_counts: Vector | None = None,
) -> Comparison:
    """Return the groups that have rows, and at least ``min_group_rows`` of them.

    If ``trained_counts`` is given, the minimum applies to training rows instead: held-out rows are
    compared for the same groups as training rows.
    """
    deciding = group_counts if trained_counts is None else trained_counts
    columns: dict[RateKind, list[int]] = {kind: [] for kind in rule.kinds}
    too_few = []
    for column, rate in enumerate(rates):
        if rate.attribute != rule.attribute or rate.kind not in columns:
            continue
        if group_counts[column] >= 1.0 and deciding[column] >= min_group_rows:
            columns[rate.kind].append(column)
        else:
            too_few.append(column)
    return Comparison(columns, too_few)


def disparity_value(
    rule: Rule, compared: Comparison, selected: Vector, rows: Vector
) -> float | None:
    """Return the value of the rule, None if no kind of rate has two groups to compare."""
    values = [
        rule.disparity([float(selected[i] / rows[i]) for i in groups])
        for groups in compared.columns.values()
        if len(groups) >= 2
    ]
    return rule.worst(values) if values else None


def disparity_bounds(
    rule: Rule, compared: Comparison, selected: Vector, rows: Vector, alpha: float
) -> Bounds:
    """Return intervals of the rule's value, within [0, 1], one for each row of ``selected``.

    If some kind of rate has fewer than two groups to compare, its disparity is unknown. The
    interval then extends to the worst value, so that the budget cannot be met.
    """
    pairs = compared.pairs
    used = np.unique(pairs)
    intervals = rate_intervals(selected[..., used], rows[used], alpha / len(pairs))
    first, second = (intervals.take(np.searchsorted(used, side)) for side in pairs.T)
    low, high = _worst_pair(rule, first, second)
    if not compared.is_partial:
        return low, high
    is_difference = isinstance(rule, Difference)
    return (low, np.ones_like(high)) if is_difference else (np.zeros_like(low), high)


def _worst_pair(rule: Rule, first: RateIntervals, second: RateIntervals) -> Bounds:
    """Return the interval of the largest difference or smallest ratio over all pairs."""
    if isinstance(rule, Difference):
        low, high = absolute_difference(difference_bounds(first, second))
        return low.max(axis=-1), high.max(axis=-1)
    low, high = smaller_over_larger(ratio_bounds(first, second))
    return low.min(axis=-1), high.min(axis=-1)


def absolute_difference(bounds: Bounds) -> Bounds:
    """Return the interval of ``|d|``, given the interval of ``d``."""
    low, high = bounds
    return np.maximum(np.maximum(low, -high), 0.0), np.maximum(high, -low)


def smaller_over_larger(bounds: Bounds) -> Bounds:
    """Return the interval of ``min(r, 1/r)``, given the interval of ``r``."""
    low, high = bounds
    return np.minimum(low, 1.0 / high), np.minimum(high, 1.0) / np.maximum(low, 1.0)


# --- one rule on one client's rows ----------------------------------------------------------------


def judge(
    rule: Rule,
    rates: Sequence[RateId],
    group_counts: Vector,
    group_selected: Vector,
    budget: float | None,
    alpha: float = 0.05,
    *,
    min_group_rows: float = 1.0,
    trained_counts: Vector | None = None,
    noise_sd: float = 0.0,
) -> Disparity:
    """Apply one rule to the counts of one client.

    Parameters
    ----------
    rule : Difference or Ratio
        The budget of the rule is ignored; pass the client's budget as ``budget``.
    rates : identify the entries of ``group_counts`` and ``group_selected``
    budget : number or None
    alpha : probability that the interval does not contain the true value
    min_group_rows : groups with fewer rows are excluded and named in ``notes``
    trained_counts : training rows of each group; if given, the minimum applies to them
    noise_sd : standard deviation of the noise in each counted cell; widens intervals
    """
    compared = compare(rule, rates, group_counts, min_group_rows, trained_counts)
    used = np.unique(compared.pairs).tolist()
    groups = tuple(
        GroupCount(rate.kind, rate.group, int(group_counts[i]), int(group_selected[i]), i in used)
        for i, rate in enumerate(rates)
        if rate.attribute == rule.attribute and rate.kind in rule.kinds
    )
    notes = tuple(_too_few(rates[i], group_counts[i], min_group_rows) for i in compared.too_few)
    value = low = high = smallest = None
    if used:
        value = disparity_value(rule, compared, group_selected, group_counts)
        if noise_sd > 0:
            effective = _effective_rows(rates, group_counts, group_selected, noise_sd)
            group_selected = group_selected * effective / np.maximum(group_counts, 1.0)
            group_counts = effective
        both = np.array([group_selected, _selected_alike(compared, group_selected, group_counts)])
        lows, highs = disparity_bounds(rule, compared, both, group_counts, alpha)
        low, high = float(lows[0]), float(highs[0])
        smallest = float(highs[1] if isinstance(rule, Difference) else lows[1])
    return Disparity(
        rule.metric,
        rule.attribute,
        rule.name,
        value,
        low=low,
        high=high,
        budget=budget,
        verdict=verdict_of(rule, None if low is None or high is None else (low, high), budget),
        smallest_verifiable=smallest,
        groups=groups,
        notes=notes,
    )


def verdict_of(rule: Rule, interval: Interval | None, budget: float | None) -> Verdict:
    """Compare the interval with the budget; without an interval, return "undetermined"."""
    if budget is None:
        return "unconstrained"
    if interval is None:
        return "undetermined"
    low, high = interval
    if isinstance(rule, Difference):
        is_met, is_exceeded = high <= budget, low > budget
    else:
        is_met, is_exceeded = low >= budget, high < budget
    return "met" if is_met else "exceeded" if is_exceeded else "undetermined"


def _selected_alike(compared: Comparison, selected: Vector, rows: Vector) -> Vector:
    """Return the selected counts that result if all compared groups have the pooled rate."""
    alike = np.zeros(len(rows))
    for groups in compared.columns.values():
        total = rows[groups].sum()
        if total:
            alike[groups] = rows[groups] * (selected[groups].sum() / total)
    return np.minimum(alike, rows)


def _too_few(rate: RateId, n_rows: float, min_rows: float) -> str:
    """Return a note on an excluded group."""
    fewer = f", fewer than {min_rows:g}" if n_rows else ""
    return (
        f"{n_rows:g} {'row' if n_rows == 1 else 'rows'}{with_label(rate.kind)} of "
        f"{rate.attribute} = {rate.group!r}{fewer}: that group is left out of the comparison."
    )


def _effective_rows(
    rates: Sequence[RateId], group_counts: Vector, group_selected: Vector, noise_sd: float
) -> Vector:
    r"""Return effective sample sizes: rows whose exact rate has the variance of the noisy rate.

    A rate r of n rows has the sampling variance :math:`r(1-r)/n`. The counts of selected and of
    other rows are each the sum of c cells, and each cell has noise of standard deviation s
    (``noise_sd``). The noise adds the variance :math:`c s^2 ((1-r)^2 + r^2) / n^2`.
    """
    cells = np.array([2.0 if rate.kind == "selection" else 1.0 for rate in rates])
    rate = (group_selected + 1.0) / (group_counts + 2.0)
    by_chance = rate * (1.0 - rate) / np.maximum(group_counts, 1.0)
    spread = cells * noise_sd**2 * ((1.0 - rate) ** 2 + rate**2)
    by_noise = spread / np.maximum(group_counts, 1.0) ** 2
    return np.asarray(group_counts * by_chance / (by_chance + by_noise))


_DRAWS = 2000  # probabilities are accurate to about .01; all calls use the same seed
_COVERAGE = (0.05, 0.95)  # quantiles of the interval
_MAX_ROWS = 1e12  # larger counts change no result and exceed the precision of float64
_TIE = 1e-9  # a ratio of counts may equal the budget up to rounding
_PRIOR_RANGE = 2.0 / 3.0  # prior mean of the disparity, as a share of the budget

OPTIMISM = 0.3  # correction in standard deviations if no bias is estimated

# About n / (n + 300) of the gap between hard and smooth rates recurs on new rows. Measured on
# re-splits of Adult: none below 50 rows, .16 up to 300, .80 up to 1,000, .98 above.
TRUSTED_ROWS = 300.0
SHARED_ROWS = 10.0  # smallest weight of the pooled rate, in rows


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
    """Predict one rule on new rows; return None if fewer than two groups can be compared.

    ``smooth`` and ``decided`` are the smooth and hard rates of all groups on training rows.
    ``rows`` and ``new_rows`` count the training rows and the new rows of each group; by default
    both are equal. ``drifts`` are the expected changes of the rates on new rows.
    """
    n_new, is_difference = rows if new_rows is None else new_rows, isinstance(rule, Difference)
    rng = np.random.default_rng(0)

    def drawn(groups: list[int]) -> Vector:
        """Return the disparity between the given groups in each simulated sample."""
        n = np.minimum(rows[groups], _MAX_ROWS)
        m = np.clip(np.rint(n_new[groups]), 1.0, _MAX_ROWS).astype(np.int64)
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
        high, low = samples.max(axis=1), samples.min(axis=1)
        if is_difference:
            return np.asarray(high - low)
        return np.asarray(low / np.where(high > 0, high, 1.0) + (high == 0))

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
    """Return S, the weight of the pooled rate in rows."""
    if budget is None:
        return SHARED_ROWS
    slack = budget if isinstance(rule, Difference) else (1.0 - budget) * shared
    high, low = int(np.argmax(rates)), int(np.argmin(rates))
    noise = 2.0 * np.sqrt(variance[high] + variance[low])
    excess = max(float(rates[high] - rates[low] - slack - noise), 0.0)
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
    """Move the largest and the smallest rate apart, in proportion to their variances."""
    high, low = int(np.argmax(rates)), int(np.argmin(rates))
    if high == low:  # all rates are equal
        return rates
    both = variance[high] + variance[low]
    moved = rates.copy()
    by = OPTIMISM / np.sqrt(max(float(both), 1e-300))
    moved[high] += by * variance[high]
    moved[low] -= by * variance[low]
    return moved
