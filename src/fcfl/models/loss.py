r"""Losses of one logit and a label: values, derivatives, and the scores that they imply.

Rows that are alike may be merged into one item, which stands for ``counts`` rows, ``positives`` of
them with label 1; ``logits`` have one entry per item. `Loss.cut_at` converts a decision threshold,
which is a probability, to the scale of the logits.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from fcfl._checks import check_choice, check_keys, check_positive
from fcfl._types import Matrix, Vector


def sigmoid(logits: Vector) -> Vector:
    r""":math:`1 / (1 + e^{-z})`, to two units in the last place; thrice as fast as scipy's.

    Below -709 it is zero: the power is infinite there.
    """
    with np.errstate(over="ignore", under="ignore"):
        rest = np.exp(np.negative(logits))
    rest += 1.0
    inverse: Vector = 1.0 / rest
    return inverse


def softplus(logits: Vector) -> Vector:
    r""":math:`\log(1 + e^z)`, exact to 2e-16 beside 1 and twice as fast as `numpy.logaddexp`."""
    rest = np.abs(logits)
    np.exp(np.negative(rest, out=rest), out=rest)
    np.log(np.add(rest, 1.0, out=rest), out=rest)
    rest += np.maximum(logits, 0.0)
    return rest


# Of the corner that is rounded. Narrower is nearer to the hinge and harder to solve.
HINGE_WIDTH = 0.1
HALF = 0.5  # the decision threshold by default


class Loss(Protocol):
    """A loss of one logit and a label, twice differentiable in the logit."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def has_probabilities(self) -> bool:
        """Whether `scores` estimate the probability of label 1."""
        ...

    def scores(self, logits: Vector) -> Vector:
        """What a person is shown of each row: a probability where there is one, else the logit."""
        ...

    def cut_at(self, threshold: float) -> float:
        """Return the logit whose score is ``threshold``; raise `ValueError` if there is none."""
        ...

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


class _ByLabel:
    """What a loss that is given by label shares with any other such."""

    __slots__ = ()

    def by_label(self, logits: Vector) -> Matrix:
        """The loss of each item if its label were 0, then if it were 1."""
        raise TypeError("A loss by label says how large it is for each.")

    def total(self, logits: Vector, counts: Vector, positives: Vector) -> float:
        """The sum over all rows."""
        return float(self.items(logits, counts, positives).sum())

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """The sum over the rows of each item."""
        as_0, as_1 = self.by_label(logits)
        losses: Vector = (counts - positives) * as_0 + positives * as_1
        return losses


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    r""":math:`\log(1 + e^z) - y z`, in nats; its scores :math:`\sigma(z)` are probabilities."""

    name: ClassVar[str] = "cross-entropy"
    has_probabilities: ClassVar[bool] = True

    def scores(self, logits: Vector) -> Vector:
        r"""Probabilities :math:`\sigma(z)`."""
        probabilities: Vector = sigmoid(logits)
        return probabilities

    def cut_at(self, threshold: float) -> float:
        r"""Return :math:`\log(P / (1 - P))`."""
        return math.log(threshold / (1.0 - threshold))

    def each(self, logits: Vector, y: Vector) -> Vector:
        """The loss of each row."""
        losses: Vector = softplus(logits) - y * logits
        return losses

    def slope_each(self, logits: Vector, y: Vector) -> Vector:
        r""":math:`\sigma(z) - y`."""
        slopes: Vector = sigmoid(logits) - y
        return slopes

    def total(self, logits: Vector, counts: Vector, positives: Vector) -> float:
        """The sum over all rows."""
        return float(self.items(logits, counts, positives).sum())

    def items(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """The sum over the rows of each item."""
        losses: Vector = counts * softplus(logits) - positives * logits
        return losses

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r""":math:`n \sigma(z) - n_1`."""
        slopes: Vector = counts * sigmoid(logits) - positives
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r""":math:`n \sigma(z) (1 - \sigma(z))`."""
        probability = sigmoid(logits)
        bends: Vector = counts * probability * (1 - probability)
        return bends

    def by_label(self, logits: Vector) -> Matrix:
        """The loss of each item if its label were 0, then if it were 1."""
        return np.array([softplus(logits), softplus(-logits)])


@dataclass(frozen=True, slots=True)
class Hinge(_ByLabel):
    r""":math:`\max(0, 1 - s z)` with :math:`s = \pm 1` for the label, its corner rounded.

    .. math:: h(u) = w \log(1 + e^{u/w}), \qquad u = 1 - s z

    which lies above the hinge, by at most :math:`w \log 2`. The width w is 0.1. Its logits order
    rows; they say nothing about probabilities.
    """

    width: float = HINGE_WIDTH
    name: ClassVar[str] = "hinge"
    has_probabilities: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive("width", self.width)

    def scores(self, logits: Vector) -> Vector:
        """The logits themselves: they are not probabilities."""
        return logits

    def cut_at(self, threshold: float) -> float:
        """Return 0 for a threshold of one half; no other has a meaning for a hinge."""
        if threshold != HALF:
            raise ValueError(
                f"`threshold` must be {HALF:g} with the hinge loss, got {threshold:g}: its scores "
                "are not probabilities. Use the loss 'cross-entropy' or 'squared'."
            )
        return 0.0

    def _rounded(self, beyond: Vector) -> Vector:
        rounded: Vector = self.width * np.logaddexp(0.0, beyond / self.width)
        return rounded

    def each(self, logits: Vector, y: Vector) -> Vector:
        """The loss of each row."""
        return self._rounded(1.0 - (2.0 * y - 1.0) * logits)

    def slope_each(self, logits: Vector, y: Vector) -> Vector:
        r""":math:`-s \sigma(u/w)`."""
        signs = 2.0 * y - 1.0
        slopes: Vector = -signs * sigmoid((1.0 - signs * logits) / self.width)
        return slopes

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r""":math:`n_0 \sigma((1 + z)/w) - n_1 \sigma((1 - z)/w)`."""
        as_0, as_1 = sigmoid((1.0 + logits) / self.width), sigmoid((1.0 - logits) / self.width)
        slopes: Vector = (counts - positives) * as_0 - positives * as_1
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        r""":math:`\sigma(1 - \sigma)/w` at each label's u, times its rows."""
        as_0, as_1 = sigmoid((1.0 + logits) / self.width), sigmoid((1.0 - logits) / self.width)
        bends = (counts - positives) * as_0 * (1 - as_0) + positives * as_1 * (1 - as_1)
        found: Vector = bends / self.width
        return found

    def by_label(self, logits: Vector) -> Matrix:
        """The loss of each item if its label were 0, then if it were 1."""
        return np.array([self._rounded(1.0 + logits), self._rounded(1.0 - logits)])


@dataclass(frozen=True, slots=True)
class Squared(_ByLabel):
    r""":math:`(p - y)^2` with :math:`p = (1 + z)/2`: least squares on the label.

    The best p is the probability of label 1, and zero logits say one half; a linear p leaves
    [0, 1], where scores are cut off.
    """

    name: ClassVar[str] = "squared"
    has_probabilities: ClassVar[bool] = True

    def scores(self, logits: Vector) -> Vector:
        """Probabilities :math:`(1 + z)/2`, cut off at 0 and 1."""
        probabilities: Vector = np.clip((1.0 + logits) / 2.0, 0.0, 1.0)
        return probabilities

    def cut_at(self, threshold: float) -> float:
        """Return :math:`2P - 1`."""
        return 2.0 * threshold - 1.0

    def each(self, logits: Vector, y: Vector) -> Vector:
        """The loss of each row."""
        losses: Vector = ((1.0 + logits) / 2.0 - y) ** 2
        return losses

    def slope_each(self, logits: Vector, y: Vector) -> Vector:
        """:math:`p - y`."""
        slopes: Vector = (1.0 + logits) / 2.0 - y
        return slopes

    def slopes(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """:math:`n p - n_1`."""
        slopes: Vector = counts * (1.0 + logits) / 2.0 - positives
        return slopes

    def bends(self, logits: Vector, counts: Vector, positives: Vector) -> Vector:
        """:math:`n / 2`."""
        bends: Vector = counts / 2.0 + np.zeros_like(logits)
        return bends

    def by_label(self, logits: Vector) -> Matrix:
        """The loss of each item if its label were 0, then if it were 1."""
        return np.array([(1.0 + logits) ** 2 / 4.0, (1.0 - logits) ** 2 / 4.0])


CROSS_ENTROPY = CrossEntropy()
LOSSES: dict[str, type[CrossEntropy] | type[Hinge] | type[Squared]] = {
    loss.name: loss for loss in (CrossEntropy, Hinge, Squared)
}


def as_loss(name: str, value: Any) -> Loss:
    """The loss of this name, or the loss itself where it is one; ``name`` is the argument's."""
    if not isinstance(value, str):
        if not hasattr(value, "slope_each"):
            raise ValueError(
                f"`{name}` must be one of {', '.join(map(repr, LOSSES))} or a loss, got {value!r}."
            )
        return cast(Loss, value)
    return LOSSES[check_choice(name, value, LOSSES)]()


def loss_to_json(loss: Loss) -> dict[str, object]:
    """What a model file says about its loss: the name, and the width of a hinge."""
    return {"name": loss.name, **asdict(cast(Any, loss))}


def loss_from_json(described: Mapping[str, object]) -> Loss:
    """The loss that a model file describes."""
    found = LOSSES[check_choice("loss", str(described["name"]), LOSSES)]
    options = {key: value for key, value in described.items() if key != "name"}
    check_keys(options, found.__dataclass_fields__, "the loss of a model file")
    return found(**cast(Any, options))


def loss_notes(loss: Loss) -> tuple[str, ...]:
    """What a person should know about scores and losses of a run; nothing for cross-entropy."""
    if loss.name == Hinge.name:
        width = loss_to_json(loss)["width"]
        return (
            f"Losses are hinge losses, smoothed over a width of {width:g}; scores are logits, "
            "not probabilities.",
        )
    if loss.name == Squared.name:
        return ("Losses are squared errors; scores are probabilities cut off at 0 and 1.",)
    return ()
