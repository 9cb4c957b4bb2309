"""Accuracy with its interval, and counts where the right answer is not known."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from fcfl._types import Vector
from fcfl.client.counts import Counts, pool_counts

from .intervals import balanced_accuracy_interval, proportion_interval


@dataclass(frozen=True, slots=True)
class Selections:
    """Counts of rows without a label: all of them, and those behind each rate."""

    n_rows: int
    n_selected: int
    group_counts: Vector
    group_selected: Vector


Counted: TypeAlias = Counts | Selections


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share and its interval."""

    value: float
    low: float
    high: float


def accuracy(counts: Counted, alpha: float = 0.05) -> Estimate | None:
    """Return the share of rows decided as labelled; ``None`` without labels or rows."""
    if isinstance(counts, Selections):
        return None
    right = counts.true_positive + counts.true_negative
    interval = proportion_interval(right, counts.n_rows, alpha)
    return None if interval is None else Estimate(right / counts.n_rows, *interval)


def balanced_accuracy(counts: Counted, alpha: float = 0.05) -> Estimate | None:
    """Return the mean of the shares right of positives and negatives, or of the only class."""
    if isinstance(counts, Selections):
        return None
    positive = (counts.true_positive, counts.true_positive + counts.false_negative)
    negative = (counts.true_negative, counts.true_negative + counts.false_positive)
    shares = [right / total for right, total in (positive, negative) if total]
    interval = balanced_accuracy_interval(*positive, *negative, alpha)
    return None if interval is None else Estimate(sum(shares) / len(shares), *interval)


def pool(counts: Iterable[Counted]) -> Counted:
    """Return the counts of all clients together."""
    every = list(counts)
    if not any(isinstance(c, Selections) for c in every):
        return pool_counts(cast(list[Counts], every))
    return Selections(
        sum(c.n_rows for c in every),
        sum(c.n_selected for c in every),
        np.sum([c.group_counts for c in every], axis=0),
        np.sum([c.group_selected for c in every], axis=0),
    )
