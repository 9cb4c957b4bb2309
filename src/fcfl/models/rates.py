r"""Group rates of a classifier, smooth and hard, and decision thresholds by group.

A rate is the mean of a selection score ``s(z)`` over the rows of one group. Training uses the
smooth score :math:`s(z) = \sigma(10 (z - c))`, which for c = 0 is the paper's
:math:`1/(1+((1-h)/h)^{10})` with :math:`h = \sigma(z)`. Results report the hard score
:math:`s(z) = [z \ge c]`. A sharper score is nearer to the hard one, and its slope is large on
fewer rows. The cut c is the model's (`fcfl.models.model.Model.cut`); it has no default here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fcfl._types import LABEL_OF, SHARPNESS, ClientId, Matrix, Point, RateId, Vector
from fcfl.data.client_data import ClientData
from fcfl.models.loss import sigmoid


def smooth_selection(logits: Vector, cut: Vector | float, sharpness: float = SHARPNESS) -> Vector:
    r"""Return the smooth selection score :math:`\sigma(10 (z - c))`, in [0, 1]."""
    score: Vector = sigmoid(sharpness * (logits - cut))
    return score


def smooth_selection_slope(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Return the derivative of the smooth score with respect to the logit, from the score."""
    return sharpness * score * (1.0 - score)


def smooth_selection_bend(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Return the second derivative of the smooth score with respect to the logit."""
    return sharpness**2 * score * (1.0 - score) * (1.0 - 2.0 * score)


def selection_score(logits: Vector, point: Point, cut: float) -> Vector:
    """Return each row's score in the requested rates: smooth, or the decision itself."""
    if point.want == "decisions":
        return hard_selection(logits, cut).astype(np.float64)
    return smooth_selection(logits, cut, point.sharpness)


def hard_selection(logits: Vector, cut: Vector | float) -> NDArray[np.bool_]:
    """Return the hard decisions: a row is selected if its logit is at least the cut."""
    return logits >= cut


def confusion_of(selected: Vector, row_counts: Vector, positive_counts: Vector) -> Vector:
    """Return true negatives, false positives, false negatives and true positives.

    ``selected`` is 1 for each item that is selected, ``row_counts`` the rows behind an item and
    ``positive_counts`` those of them with label 1.
    """
    positives, rows = float(positive_counts.sum()), float(row_counts.sum())
    true_positive, chosen = selected @ positive_counts, selected @ row_counts
    false_positive, false_negative = chosen - true_positive, positives - true_positive
    true_negative = rows - positives - false_positive
    return np.array([true_negative, false_positive, false_negative, true_positive])


def rate_members(
    data: ClientData, rates: Sequence[RateId], client: ClientId | None = None
) -> Matrix:
    """Return 0/1 for the rows that each rate averages over, shape (rows, rates).

    A group that only other clients have has no rows here.
    """
    members = np.zeros((data.n_rows, len(rates)))
    for column, rate in enumerate(rates):
        if rate.attribute not in data.levels:
            known = ", ".join(map(repr, data.levels)) or "none"
            who = "A client" if client is None else f"Client {client!r}"
            raise ValueError(f"{who} has no attribute {rate.attribute!r}; it has {known}.")
        if rate.group not in data.levels[rate.attribute]:
            continue
        code = data.levels[rate.attribute].index(rate.group)
        inside = data.groups[rate.attribute] == code
        label = LABEL_OF[rate.kind]
        if label is not None:
            inside = inside & (data.y == label)
        members[:, column] = inside
    return members


Thresholds = Literal["common", "group"]
THRESHOLDS: tuple[Thresholds, Thresholds] = ("common", "group")

UNLAWFUL = (
    "Thresholds by group use {attribute!r} of each person for the decision itself. In some places "
    "that is unlawful: in the United States, for example, it may be disparate treatment in "
    "employment and in credit. Ask a lawyer before such a model decides about people."
)


@dataclass(frozen=True)
class GroupThresholds:
    """Thresholds by client and by group of one attribute, in logits above the model's cut.

    A row is selected if its logit less the cut is at least its threshold. A row of an unknown
    client or group, or without a group, has 0: it is selected from the cut on, as all rows are
    without such thresholds.
    """

    attribute: str
    by_client: Mapping[ClientId, Mapping[str, float]]

    def for_client(self, name: ClientId) -> "GroupThresholds":
        """Return the thresholds of one client only."""
        own = self.by_client.get(name)
        return GroupThresholds(self.attribute, {} if own is None else {name: own})

    def of_data(self, name: ClientId, data: ClientData) -> Vector:
        """Return the threshold of each row of one client."""
        own = self.by_client.get(name, {})
        levels = [own.get(level, 0.0) for level in data.levels[self.attribute]]
        thresholds: Vector = np.array([*levels, 0.0])[data.groups[self.attribute]]  # -1: no group
        return thresholds

    def of_rows(
        self, clients: Sequence[ClientId | None], groups: Sequence[str | None]
    ) -> tuple[Vector, NDArray[np.bool_]]:
        """Return the threshold of each row, and for which rows there is none: they have 0."""
        found = [
            None if client is None or group is None else self.by_client.get(client, {}).get(group)
            for client, group in zip(clients, groups, strict=True)
        ]
        unknown = np.array([value is None for value in found], dtype=bool)
        return np.array([value or 0.0 for value in found], dtype=np.float64), unknown

    @property
    def sentence(self) -> str:
        """What whoever uses these thresholds should know."""
        return UNLAWFUL.format(attribute=self.attribute)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "GroupThresholds":
        """Read what `to_json` wrote."""
        return msgspec.convert(content, cls)

    def to_json(self) -> dict[str, object]:
        """Return the entry of ``model.json``."""
        return dict(msgspec.to_builtins(self))
