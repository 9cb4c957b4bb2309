"""Counts of hard decisions and labels, from which all reported results are computed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from fcfl._types import RateId, Vector, brief_repr
from fcfl.data.client_data import ClientData
from fcfl.models.loss import CROSS_ENTROPY, Loss
from fcfl.models.model import hard_selection, rate_members, rows_behind, score_sums

N_BINS = 20


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """Numbers of rows of one group, by label and by `N_BINS` equal bins of probability."""

    attribute: str
    group: str
    negatives: Vector
    positives: Vector

    @property
    def n_rows(self) -> float:
        """Number of rows of the group."""
        return float(self.negatives.sum() + self.positives.sum())


def count_scores(
    probability: Vector,
    y: Vector,
    groups: Mapping[str, NDArray[np.integer]],
    levels: Mapping[str, Sequence[str]],
) -> tuple[ScoreCounts, ...]:
    """Count rows by group, label and probability bin, ignoring rows without a group."""
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
    """Sum the score counts of all clients; return an empty tuple if a client reports none."""
    pooled: dict[tuple[str, str], ScoreCounts] = {}
    for part in parts:
        if not part:
            return ()
        for one in part:
            key = one.attribute, one.group
            if key in pooled:
                negatives = pooled[key].negatives + one.negatives
                one = ScoreCounts(*key, negatives, pooled[key].positives + one.positives)
            pooled[key] = one
    return tuple(pooled.values())


@dataclass(frozen=True, slots=True)
class Counts:
    """Confusion counts, sum of losses, and numbers of rows and selected rows of each rate.

    In rates with sign -1 (`ROW_SIGNS`), ``group_selected`` counts the rows that are not selected.

    ``scores`` has rows by group, label and probability, if the client reports them.
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
        """Number of rows."""
        return self.true_negative + self.false_positive + self.false_negative + self.true_positive

    @property
    def n_selected(self) -> int:
        """Number of rows that the model selects."""
        return self.true_positive + self.false_positive

    @property
    def n_positive(self) -> int:
        """Number of rows with the positive label."""
        return self.true_positive + self.false_negative

    def with_groups_of(self, min_rows: float) -> "Counts":
        """Return the counts, with zero for groups of fewer than ``min_rows`` rows."""
        kept = self.group_counts >= min_rows
        return replace(
            self,
            group_counts=np.where(kept, self.group_counts, 0.0),
            group_selected=np.where(kept, self.group_selected, 0.0),
            scores=tuple(one for one in self.scores if one.n_rows >= min_rows or not one.n_rows),
        )


def count_rows(
    logits: Vector,
    data: ClientData,
    rates: Sequence[RateId],
    cuts: Vector | float,
    loss: Loss = CROSS_ENTROPY,
) -> Counts:
    """Count hard decisions by label and by group.

    A row is selected if its logit is at least its cut. Its loss does not depend on the cut.
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
        group_counts=rows_behind(members),
        group_selected=score_sums(selected.astype(np.float64), members),
    )


def pool_counts(counts: Iterable[Counts]) -> Counts:
    """Return the sum of the counts of all clients."""
    parts = list(counts)
    names = [field.name for field in fields(Counts) if field.name != "scores"]
    totals = {name: sum(getattr(part, name) for part in parts) for name in names}
    return Counts(**totals, scores=pool_scores(part.scores for part in parts if part.n_rows))
