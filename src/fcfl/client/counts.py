"""Hard counts for people: everything a result says about a client's rows comes from these."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fcfl._types import RateId, Vector, brief_repr
from fcfl.data.client_data import ClientData
from fcfl.models.loss import CROSS_ENTROPY, Loss
from fcfl.models.rates import hard_selection, rate_members

from .score_counts import ScoreCounts, pool_scores


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
