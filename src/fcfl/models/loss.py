r"""The loss, in one place: every other module asks it for values and derivatives.

Rows that are alike may be merged into one item, which stands for ``counts`` rows, ``positives`` of
them with label 1; ``logits`` have one entry per item.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from fcfl._types import Matrix, Vector


class Loss(Protocol):
    """A loss of one logit and a label, twice differentiable in the logit."""

    @property
    def name(self) -> str: ...  # noqa: D102
    def each(self, logits: Vector, y: Vector) -> Vector:
        """The loss of each row."""
        ...

    def slope_each(self, logits: Vector, y: Vector) -> Vector:
        """The derivative of each row's loss with respect to its logit."""
        ...

    def total(self, logits: Vector, counts: Vector, positives: Vector) -> float:
        """The sum over all rows."""
        ...

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """The sum over the rows of each item."""
        ...

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """The derivative of each item's sum with respect to its logit."""
        ...

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """The second derivative."""
        ...

    def by_label(self, logits: Vector) -> Matrix:
        """The loss of each item if its label were 0, then if it were 1."""
        ...


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    r""":math:`\log(1 + e^z) - y z`, in nats; its scores :math:`\sigma(z)` are probabilities."""

    name: str = "cross-entropy"

    def each(self, logits: Vector, y: Vector) -> Vector:
        """The loss of each row."""
        losses: Vector = np.logaddexp(0.0, logits) - y * logits
        return losses

    def slope_each(self, logits: Vector, y: Vector) -> Vector:
        r""":math:`\sigma(z) - y`."""
        slopes: Vector = expit(logits) - y
        return slopes

    def total(self, logits: Vector, counts: Vector, positives: Vector) -> float:
        """The sum over all rows."""
        return float(counts @ np.logaddexp(0.0, logits) - positives @ logits)

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """The sum over the rows of each item."""
        losses: Vector = counts * np.logaddexp(0.0, logits) - positives * logits
        return losses

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r""":math:`n \sigma(z) - n_1`."""
        slopes: Vector = counts * expit(logits) - positives
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r""":math:`n \sigma(z) (1 - \sigma(z))`."""
        probability = expit(logits)
        bends: Vector = counts * probability * (1 - probability)
        return bends

    def by_label(self, logits: Vector) -> Matrix:
        """The loss of each item if its label were 0, then if it were 1."""
        return np.array([np.logaddexp(0.0, logits), np.logaddexp(0.0, -logits)])


CROSS_ENTROPY = CrossEntropy()
