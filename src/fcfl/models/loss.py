r"""Losses as functions of a logit and a label: values, derivatives and scores.

Equal rows may be merged into one item. An item has one entry in ``logits``, represents ``counts``
rows, and ``positives`` of these rows have label 1. `Loss.cut_at` converts a decision threshold,
which is a probability, to a logit.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, cast

import numpy as np

from fcfl._checks import check_choice, check_keys, check_positive
from fcfl._types import Matrix, Vector


def sigmoid(logits: Vector) -> Vector:
    r"""Return :math:`1 / (1 + e^{-z})`, to two units in the last place, faster than SciPy.

    For logits below -709 the result is zero, because the exponential overflows.
    """
    with np.errstate(over="ignore", under="ignore"):
        rest = np.exp(np.negative(logits))
    rest += 1.0
    inverse: Vector = 1.0 / rest
    return inverse


def softplus(logits: Vector) -> Vector:
    r"""Return :math:`\log(1 + e^z)`, to 2e-16 relative to 1, faster than `numpy.logaddexp`."""
    rest = np.abs(logits)
    np.exp(np.negative(rest, out=rest), out=rest)
    np.log(np.add(rest, 1.0, out=rest), out=rest)
    rest += np.maximum(logits, 0.0)
    return rest


# Width of the smoothed corner. A smaller width is closer to the hinge and harder to optimise.
HINGE_WIDTH = 0.1
HALF = 0.5  # default decision threshold


class Loss(ABC):
    """A loss of a logit and a label, twice differentiable in the logit.

    ``name`` is the value of the option `loss`. If ``has_probabilities`` is true, `scores` estimate
    the probability of label 1.
    """

    __slots__ = ()
    name: ClassVar[str]
    has_probabilities: ClassVar[bool] = True

    @abstractmethod
    def scores(self, logits: Vector) -> Vector:
        """Return the score of each row: a probability if available, else the logit."""

    @abstractmethod
    def cut_at(self, threshold: float) -> float:
        """Return the logit whose score is ``threshold``; raise `ValueError` if none exists."""

    @abstractmethod
    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return the sum of the losses over the rows of each item."""

    @abstractmethod
    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return the derivative of `items` with respect to the logits."""

    @abstractmethod
    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return the second derivative of `items` with respect to the logits."""

    def total(self, logits: Vector, counts: Vector, positives: Vector) -> float:
        """Return the sum of the losses over all rows."""
        return float(self.items(logits, counts, positives).sum())

    def each(self, logits: Vector, y: Vector) -> Vector:
        """Return the loss of each row."""
        return self.items(logits, np.ones_like(logits), y)

    def slope_each(self, logits: Vector, y: Vector) -> Vector:
        """Return the derivative of the loss of each row with respect to its logit."""
        return self.slopes(logits, np.ones_like(logits), y)

    def by_label(self, logits: Vector) -> Matrix:
        """Return the losses with label 0 and with label 1, of shape (2, items)."""
        return np.array([self.each(logits, np.full_like(logits, label)) for label in (0, 1)])


@dataclass(frozen=True, slots=True)
class CrossEntropy(Loss):
    r"""Cross-entropy :math:`\log(1 + e^z) - y z`, in nats, with probabilities :math:`\sigma(z)`."""

    name: ClassVar[str] = "cross-entropy"

    def scores(self, logits: Vector) -> Vector:
        r"""Return probabilities :math:`\sigma(z)`."""
        return sigmoid(logits)

    def cut_at(self, threshold: float) -> float:
        r"""Return :math:`\log(P / (1 - P))`."""
        return math.log(threshold / (1.0 - threshold))

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return the sum of the losses over the rows of each item."""
        losses: Vector = counts * softplus(logits) - positives * logits
        return losses

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r"""Return :math:`n \sigma(z) - n_1`."""
        slopes: Vector = counts * sigmoid(logits) - positives
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r"""Return :math:`n \sigma(z) (1 - \sigma(z))`."""
        probability = sigmoid(logits)
        bends: Vector = counts * probability * (1 - probability)
        return bends


@dataclass(frozen=True, slots=True)
class Hinge(Loss):
    r"""Smoothed hinge loss :math:`\max(0, 1 - s z)` with :math:`s = \pm 1` for the label.

    .. math:: h(u) = w \log(1 + e^{u/w}), \qquad u = 1 - s z

    The smoothed loss exceeds the hinge by at most :math:`w \log 2`, with width w = 0.1 by default.
    Logits rank rows but are not log-odds.
    """

    width: float = HINGE_WIDTH
    name: ClassVar[str] = "hinge"
    has_probabilities: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive("width", self.width)

    def scores(self, logits: Vector) -> Vector:
        """Return the logits, which are not probabilities."""
        return logits

    def cut_at(self, threshold: float) -> float:
        """Return 0 for the threshold 0.5; raise `ValueError` for other thresholds."""
        if threshold != HALF:
            raise ValueError(
                f"`threshold` must be {HALF:g} with the hinge loss, got {threshold:g}: its scores "
                "are not probabilities. Use the loss 'cross-entropy' or 'squared'."
            )
        return 0.0

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return the sum of the losses over the rows of each item."""
        as_0, as_1 = (np.logaddexp(0.0, (1.0 + z) / self.width) for z in (logits, -logits))
        losses: Vector = self.width * ((counts - positives) * as_0 + positives * as_1)
        return losses

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r"""Return :math:`n_0 \sigma((1 + z)/w) - n_1 \sigma((1 - z)/w)`."""
        as_0, as_1 = (sigmoid((1.0 + z) / self.width) for z in (logits, -logits))
        slopes: Vector = (counts - positives) * as_0 - positives * as_1
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r"""Return :math:`\sigma(1 - \sigma)/w` at each label's u, times its rows."""
        as_0, as_1 = (sigmoid((1.0 + z) / self.width) for z in (logits, -logits))
        bends = (counts - positives) * as_0 * (1 - as_0) + positives * as_1 * (1 - as_1)
        found: Vector = bends / self.width
        return found


@dataclass(frozen=True, slots=True)
class Squared(Loss):
    r"""Squared error :math:`(p - y)^2` with :math:`p = (1 + z)/2`.

    The optimal p is the probability of label 1. A logit of 0 is a probability of 0.5. Scores clip p
    to [0, 1].
    """

    name: ClassVar[str] = "squared"

    def scores(self, logits: Vector) -> Vector:
        """Return probabilities :math:`(1 + z)/2`, clipped to [0, 1]."""
        return np.clip((1.0 + logits) / 2.0, 0.0, 1.0)

    def cut_at(self, threshold: float) -> float:
        """Return :math:`2P - 1`."""
        return 2.0 * threshold - 1.0

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return the sum of the losses over the rows of each item."""
        as_0, as_1 = (1.0 + logits) ** 2 / 4.0, (1.0 - logits) ** 2 / 4.0
        losses: Vector = (counts - positives) * as_0 + positives * as_1
        return losses

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return :math:`n p - n_1`."""
        slopes: Vector = counts * (1.0 + logits) / 2.0 - positives
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """Return :math:`n / 2`."""
        bends: Vector = counts / 2.0 + np.zeros_like(logits)
        return bends


CROSS_ENTROPY = CrossEntropy()
LOSSES: dict[str, type[CrossEntropy] | type[Hinge] | type[Squared]] = {
    loss.name: loss for loss in (CrossEntropy, Hinge, Squared)
}


def as_loss(name: str, value: str | Loss) -> Loss:
    """Convert the name of a loss to the loss; ``name`` is the name of the argument in errors."""
    if isinstance(value, Loss):
        return value
    if not isinstance(value, str):
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, LOSSES))} or a loss, got {value!r}."
        )
    return LOSSES[check_choice(name, value, LOSSES)]()


def loss_to_json(loss: Loss) -> dict[str, object]:
    """Return the loss as in a model file: its name and, for a hinge, its width."""
    return {"name": loss.name, **asdict(cast(Any, loss))}


def loss_from_json(described: Mapping[str, object]) -> Loss:
    """Return the loss stored in a model file."""
    found = LOSSES[check_choice("loss", str(described["name"]), LOSSES)]
    options = {key: value for key, value in described.items() if key != "name"}
    check_keys(options, found.__dataclass_fields__, "the loss of a model file")
    return found(**cast(Any, options))


def loss_notes(loss: Loss) -> tuple[str, ...]:
    """Return notes on the scores and losses of a run, empty for cross-entropy."""
    if loss.name == Hinge.name:
        width = loss_to_json(loss)["width"]
        return (
            f"Losses are hinge losses, smoothed over a width of {width:g}; scores are logits, "
            "not probabilities.",
        )
    if loss.name == Squared.name:
        return ("Losses are squared errors; scores are probabilities cut off at 0 and 1.",)
    return ()
