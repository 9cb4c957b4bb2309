"""Two methods on the same random splits: paired differences, and which counts may be chance."""

import math
from typing import Literal, TypeAlias

from .item_result import Row, RunFigures

STANDARD_ERRORS = 1.96  # a smaller difference may be chance
SIGNIFICANCE = 0.05  # of the sign test
Measure: TypeAlias = Literal["accuracy", "worst_accuracy"]
Verdict: TypeAlias = Literal["better", "costly", "level", "worse"]


def compare(ours: Row, other: Row) -> Verdict:
    """Who is within all budgets in more splits, and whether that costs worst-client accuracy."""
    more, fewer = discordant(ours, other)
    if more > fewer:
        gap, error = difference(ours, other, "worst_accuracy")
        return "better" if gap >= -STANDARD_ERRORS * error else "costly"
    return "level" if more == fewer else "worse"


def may_be_chance(ours: Row, other: Row) -> bool:
    """Whether the sign test leaves the counts of splits within budget undecided."""
    return sign_test(*discordant(ours, other)) > SIGNIFICANCE


def discordant(ours: Row, other: Row) -> tuple[int, int]:
    """Splits in which only we are within all budgets, and in which only the other is."""
    pairs = [(bool(a.within_all), bool(b.within_all)) for a, b in _paired(ours, other)]
    return sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)


def sign_test(more: int, fewer: int) -> float:
    """Exact two-sided sign test: how often fair coins fall at least so unevenly."""
    count = more + fewer
    tail = sum(math.comb(count, k) for k in range(min(more, fewer) + 1)) * 0.5**count
    return float(min(1.0, 2 * tail))


def difference(ours: Row, other: Row, measure: Measure) -> tuple[float, float]:
    """Mean paired difference and its standard error."""
    gaps = [
        float(getattr(a, measure)) - float(getattr(b, measure)) for a, b in _paired(ours, other)
    ]
    mean = sum(gaps) / len(gaps)
    if len(gaps) < 2:
        return mean, math.inf
    variance = sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)
    return mean, math.sqrt(variance / len(gaps))


def _paired(ours: Row, other: Row) -> list[tuple[RunFigures, RunFigures]]:
    by_seed = {run.seed: run for run in other.runs}
    return [(run, by_seed[run.seed]) for run in ours.runs if run.seed in by_seed]
