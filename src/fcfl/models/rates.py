r"""Group rates of a classifier, smooth and hard, as functions of its logits.

A rate is the mean of a selection score ``s(z)`` over the rows of one group. Training uses the
smooth score :math:`s(z) = \sigma(10 (z - c))`, which for c = 0 is the paper's
:math:`1/(1+((1-h)/h)^{10})` with :math:`h = \sigma(z)`; people are shown the hard one,
:math:`s(z) = [z \ge c]`. A sharper score is nearer to the hard one, and its slope lives on fewer
rows. The cut c is the model's (`fcfl.models.model.Model.cut`): nothing here has a default for it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fcfl._types import LABEL_OF, SHARPNESS, ClientId, Matrix, Point, RateId, Vector
from fcfl.data.client_data import ClientData
from fcfl.models.logistic import sigmoid


def smooth_selection(logits: Vector, cut: Vector | float, sharpness: float = SHARPNESS) -> Vector:
    r"""Smooth selection score :math:`\sigma(10 (z - c))`, in [0, 1]."""
    score: Vector = sigmoid(sharpness * (logits - cut))
    return score


def smooth_selection_slope(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Derivative of the smooth score with respect to the logit, from the score itself."""
    return sharpness * score * (1.0 - score)


def smooth_selection_bend(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Second derivative of the smooth score with respect to the logit."""
    return sharpness**2 * score * (1.0 - score) * (1.0 - 2.0 * score)


def selection_score(logits: Vector, point: Point, cut: float) -> Vector:
    """What a row counts for in the rates that are asked for: smooth, or the decision itself."""
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
    """Which rows each rate averages over: 0/1, one column per rate, shape (rows, rates).

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
