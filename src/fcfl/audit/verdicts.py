"""Verdicts on one rule from the counts of one client's rows.

A rule's value is the largest difference (or smallest ratio) over all pairs of groups and all its
rates. Each of the m pairs gets its interval at level ``alpha / m`` (Bonferroni), so all of them
hold together with probability ``1 - alpha``; whenever they do, the value lies between the largest
lower and the largest upper bound of the pairs' absolute differences (for a ratio: between the
smallest lower and the smallest upper bound of the smaller-over-larger ratios).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import RateId, RateKind, Vector
from fcfl.rules import Difference, Rule, with_label

from .intervals import (
    Bounds,
    Interval,
    RateIntervals,
    difference_bounds,
    proportion_interval,
    rate_intervals,
    ratio_bounds,
)

Verdict = Literal["met", "exceeded", "undetermined", "unconstrained"]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Rows of one group, and how many of them the model selects.

    A group that is not ``is_compared`` has too few rows: no value, interval or verdict depends on
    it.
    """

    rate: str
    group: str
    rows: int
    selected: int
    is_compared: bool = True

    @property
    def interval(self) -> Interval | None:
        """Wilson's interval of the share selected, None without rows."""
        return proportion_interval(self.selected, self.rows)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The mean disparity on new rows, a 90 % interval, and the chance that the budget is kept."""

    value: float
    low: float
    high: float
    chance_kept: float | None


@dataclass(frozen=True, slots=True)
class Disparity:
    """One rule on one client's rows, or on all rows together: value, interval, verdict.

    ``value`` is of hard decisions. It, ``low`` and ``high`` are None where fewer than two groups
    have enough rows. ``smallest_verifiable`` is the tightest budget that these group sizes could
    show to be met: the far end of the interval if the groups were selected alike. ``notes`` name
    the groups left out.

    ``smooth`` is what training bounds; it and ``expected`` exist on training rows only. ``price``
    is None where the method has no multipliers.
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
        """The value of decisions, or the smooth one if no rows were counted.

        The synthetic problem has no rows: training measures its rates by a formula.
        """
        return self.smooth if self.value is None else self.value

    @property
    def title(self) -> str:
        """The metric, rule and attribute that are compared."""
        return f"{self.metric.replace('_', ' ')} {self.rule}, {self.attribute}"

    @property
    def in_words(self) -> str:
        """The same within a sentence."""
        return f"{self.metric.replace('_', ' ')} {self.rule} by {self.attribute}"

    @property
    def is_ratio(self) -> bool:
        """Whether larger is better."""
        return self.rule == "ratio"

    @property
    def interval(self) -> Interval | None:
        """Both ends of the interval, None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which rates of one client, or of all rows together, are compared, by their positions.

    ``columns`` has the groups with enough rows for each kind of rate, ``too_few`` the others.
    """

    columns: dict[RateKind, list[int]]
    too_few: list[int]

    @property
    def pairs(self) -> NDArray[np.intp]:
        """Every pair of groups of the same rate, shape (pairs, 2)."""
        found = [pair for groups in self.columns.values() for pair in combinations(groups, 2)]
        return np.array(found, dtype=np.intp).reshape(-1, 2)

    @property
    def is_partial(self) -> bool:
        """Whether one of the rule's rates has no two groups to compare."""
        return any(len(groups) < 2 for groups in self.columns.values())


def compare(
    rule: Rule,
    rates: Sequence[RateId],
    group_counts: Vector,
    min_group_rows: float,
    trained_counts: Vector | None = None,
) -> Comparison:
    """Find the groups that have rows, and at least ``min_group_rows`` of them.

    With ``trained_counts`` those decide whether there are enough: held-out rows are compared where
    training rows were.
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
    """Return the rule's value over the rates that have two groups to compare."""
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

    A rate without two groups to compare could differ by anything, so it opens the interval
    towards the worst value: nothing is called within budget because it could not be measured.
    """
    pairs = compared.pairs
    used = np.unique(pairs)
    found = rate_intervals(selected[..., used], rows[used], alpha / len(pairs))
    first, second = (found.take(np.searchsorted(used, side)) for side in pairs.T)
    low, high = _worst_pair(rule, first, second)
    if not compared.is_partial:
        return low, high
    is_difference = isinstance(rule, Difference)
    return (low, np.ones_like(high)) if is_difference else (np.zeros_like(low), high)


def _worst_pair(rule: Rule, first: RateIntervals, second: RateIntervals) -> Bounds:
    if isinstance(rule, Difference):
        low, high = absolute_difference(difference_bounds(first, second))
        return low.max(axis=-1), high.max(axis=-1)
    low, high = smaller_over_larger(ratio_bounds(first, second))
    return low.min(axis=-1), high.min(axis=-1)


def absolute_difference(bounds: Bounds) -> Bounds:
    """Return the interval of ``|d|`` from that of ``d``."""
    low, high = bounds
    return np.maximum(np.maximum(low, -high), 0.0), np.maximum(high, -low)


def smaller_over_larger(bounds: Bounds) -> Bounds:
    """Return the interval of ``min(r, 1/r)`` from that of ``r``."""
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
    """Return the verdict on one client's counts by one rule.

    Parameters
    ----------
    rule : Difference or Ratio
        Its budget is not read; ``budget`` is this client's.
    rates : what each entry of ``group_counts`` and ``group_selected`` counts
    budget : number or None
    alpha : probability that the interval misses the true value
    min_group_rows : groups with fewer rows are left out, and named in ``notes``
    trained_counts : where training rows decide which groups have enough, those of each group
    noise_sd : of the noise in each cell that was counted, which makes intervals wider
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
            worth = _rows_worth(rates, group_counts, group_selected, noise_sd)
            group_selected = group_selected * worth / np.maximum(group_counts, 1.0)
            group_counts = worth
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
    """Compare the whole interval with the budget; no interval leaves a budget undetermined."""
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
    """Return the counts if every compared group were selected at the pooled rate."""
    alike = np.zeros(len(rows))
    for groups in compared.columns.values():
        total = rows[groups].sum()
        if total:
            alike[groups] = rows[groups] * (selected[groups].sum() / total)
    return np.minimum(alike, rows)


def _too_few(rate: RateId, n_rows: float, least: float) -> str:
    fewer = f", fewer than {least:g}" if n_rows else ""
    return (
        f"{n_rows:g} {'row' if n_rows == 1 else 'rows'}{with_label(rate.kind)} of "
        f"{rate.attribute} = {rate.group!r}{fewer}: that group is left out of the comparison."
    )


def _rows_worth(
    rates: Sequence[RateId], group_counts: Vector, group_selected: Vector, noise_sd: float
) -> Vector:
    r"""Return the rows of each group whose exact rate would be as uncertain as the noisy one.

    A rate r of n rows varies by :math:`r(1-r)/n` by chance. Noise of the standard deviation
    ``noise_sd`` in the counts of selected and of other rows, each the sum of c cells, adds
    :math:`c s^2 ((1-r)^2 + r^2) / n^2`.
    """
    cells = np.array([2.0 if rate.kind == "selection" else 1.0 for rate in rates])
    rate = (group_selected + 1.0) / (group_counts + 2.0)
    by_chance = rate * (1.0 - rate) / np.maximum(group_counts, 1.0)
    spread = cells * noise_sd**2 * ((1.0 - rate) ** 2 + rate**2)
    by_noise = spread / np.maximum(group_counts, 1.0) ** 2
    return np.asarray(group_counts * by_chance / (by_chance + by_noise))
