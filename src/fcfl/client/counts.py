"""Hard counts for people: everything a result says about a client's rows comes from these."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fcfl._types import RateId, Vector, brief_repr
from fcfl.data.client_data import ClientData
from fcfl.models.loss import CROSS_ENTROPY, Loss
from fcfl.models.rates import hard_selection, rate_members

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


@dataclass(frozen=True, slots=True)
class Counts:
    """Confusion counts, summed loss, and rows and selected rows behind each hard rate.

    ``scores`` has rows by group, label and probability, where a client tells them.
    """

    true_negative: int
    false_positive: int
    false_negative: int
    true_positive: int
    loss_sum: float
    group_counts: Vector
    group_selected: Vector
    scores: tuple[ScoreCounts, ...] = ()

    __repr__ = brief_repr

    @property
    def n_rows(self) -> int:
        """All rows counted."""
        return self.true_negative + self.false_positive + self.false_negative + self.true_positive

    @property
    def n_selected(self) -> int:
        """Rows that the model selects."""
        return self.true_positive + self.false_positive

    @property
    def n_positive(self) -> int:
        """Rows with the positive label."""
        return self.true_positive + self.false_negative

    def with_groups_of(self, least: float) -> "Counts":
        """The same counts, in which a group of fewer than ``least`` rows has none."""
        kept = self.group_counts >= least
        return replace(
            self,
            group_counts=np.where(kept, self.group_counts, 0.0),
            group_selected=np.where(kept, self.group_selected, 0.0),
            scores=tuple(one for one in self.scores if one.n_rows >= least or not one.n_rows),
        )


def count_rows(
    logits: Vector,
    data: ClientData,
    rates: Sequence[RateId],
    cuts: Vector | float,
    loss: Loss = CROSS_ENTROPY,
) -> Counts:
    """Compare hard decisions with labels and count them by group.

    A row is selected if its logit is at least its cut, which its loss does not depend on.
    """
    selected = hard_selection(logits, cuts)
    positive = data.y == 1.0
    members = rate_members(data, rates)
    return Counts(
        true_negative=int((~selected & ~positive).sum()),
        false_positive=int((selected & ~positive).sum()),
        false_negative=int((~selected & positive).sum()),
        true_positive=int((selected & positive).sum()),
        loss_sum=float(loss.each(logits, data.y).sum()),
        group_counts=members.sum(axis=0),
        group_selected=selected.astype(np.float64) @ members,
    )


def pool_counts(counts: Iterable[Counts]) -> Counts:
    """Counts of all clients together."""
    every = list(counts)
    return Counts(
        true_negative=sum(c.true_negative for c in every),
        false_positive=sum(c.false_positive for c in every),
        false_negative=sum(c.false_negative for c in every),
        true_positive=sum(c.true_positive for c in every),
        loss_sum=sum(c.loss_sum for c in every),
        group_counts=np.sum([c.group_counts for c in every], axis=0),
        group_selected=np.sum([c.group_selected for c in every], axis=0),
        scores=pool_scores(c.scores for c in every if c.n_rows),
    )
