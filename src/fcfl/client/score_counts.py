"""Probabilities by group and label, as counts: what ROC and calibration are drawn from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector

N_BINS = 20


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """Rows of one group with each label in each of `N_BINS` equal bins of probability."""

    attribute: str
    group: str
    negatives: Vector
    positives: Vector

    @property
    def n_rows(self) -> float:
        """All rows of the group."""
        return float(self.negatives.sum() + self.positives.sum())


def count_scores(
    probability: Vector,
    y: Vector,
    groups: Mapping[str, NDArray[np.integer]],
    levels: Mapping[str, Sequence[str]],
) -> tuple[ScoreCounts, ...]:
    """Count rows by group, label and bin; rows without a group are in none."""
    bins = np.minimum((probability * N_BINS).astype(np.intp), N_BINS - 1)
    found = []
    for attribute, codes in groups.items():
        names = levels[attribute]
        place = ((codes.astype(np.intp) * 2) + y.astype(np.intp)) * N_BINS + bins
        shape = (len(names), 2, N_BINS)
        counts = np.bincount(place[codes >= 0], minlength=np.prod(shape)).reshape(shape)
        for name, (negatives, positives) in zip(names, counts.astype(np.float64), strict=True):
            found.append(ScoreCounts(attribute, name, negatives, positives))
    return tuple(found)


def pool_scores(parts: Iterable[Sequence[ScoreCounts]]) -> tuple[ScoreCounts, ...]:
    """Counts of all clients together; none where one of those with rows told none."""
    pooled: dict[tuple[str, str], ScoreCounts] = {}
    for part in parts:
        if not part:
            return ()
        for one in part:
            key = one.attribute, one.group
            before = pooled.get(key)
            pooled[key] = one if before is None else _sum(before, one)
    return tuple(pooled.values())


def _sum(one: ScoreCounts, other: ScoreCounts) -> ScoreCounts:
    return ScoreCounts(
        one.attribute,
        one.group,
        one.negatives + other.negatives,
        one.positives + other.positives,
    )
