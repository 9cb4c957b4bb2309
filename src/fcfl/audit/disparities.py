"""From intervals of pairs of groups to the interval of a rule's value.

A rule's value is the largest difference (or smallest ratio) over all pairs of groups and all its
rates. Each of the m pairs gets its interval at level ``alpha / m`` (Bonferroni), so all of them
hold together with probability ``1 - alpha``; whenever they do, the value lies between the largest
lower and the largest upper bound of the pairs' absolute differences (for a ratio: between the
smallest lower and the smallest upper bound of the smaller-over-larger ratios).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fcfl._types import RateId, RateKind, Vector
from fcfl.rules import Difference, Rule

from .intervals import Bounds, RateIntervals, difference_bounds, rate_intervals, ratio_bounds


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
    """The rule's value over the rates that have two groups to compare."""
    values = [
        rule.disparity([float(selected[i] / rows[i]) for i in groups])
        for groups in compared.columns.values()
        if len(groups) >= 2
    ]
    return rule.worst(values) if values else None


def disparity_bounds(
    rule: Rule, compared: Comparison, selected: Vector, rows: Vector, alpha: float
) -> Bounds:
    """Intervals of the rule's value, within [0, 1], one for each row of ``selected``.

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
    """Interval of ``|d|`` from that of ``d``."""
    low, high = bounds
    return np.maximum(np.maximum(low, -high), 0.0), np.maximum(high, -low)


def smaller_over_larger(bounds: Bounds) -> Bounds:
    """Interval of ``min(r, 1/r)`` from that of ``r``."""
    low, high = bounds
    return np.minimum(low, 1.0 / high), np.minimum(high, 1.0) / np.maximum(low, 1.0)
