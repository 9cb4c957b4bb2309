r"""Noisy sums over rows: the only answers of a client with a privacy budget.

Every row counts with its features x and a constant, shortened to a length of at most R (`norm`)
and rounded towards zero. Adding or removing one row changes the sum that is released by at most

=============  ==============================================================  ====================
kind           sum over the rows of                                            sensitivity
=============  ==============================================================  ====================
``counts``     1 in the row's cell (group, and label where rates need it)      :math:`\sqrt a`
``moments``    :math:`x_i x_j`; the diagonal has :math:`\sqrt 2` × the noise   :math:`R^2/\sqrt 2`
``gradient``   :math:`(\sigma(\theta x) - y) x`                                R; R/2 at zero
``rates``      (decision − ½) behind each of the row's rates                   :math:`\sqrt m / 2`
``jacobian``   :math:`k s(1-s) x` behind each rate, s the score of slope k     :math:`\sqrt m k R/4`
``scores``     :math:`(\sigma(\theta x) - ½) x`, and below it, for each rate,  R/2 (k ≥ 1)
               :math:`2 s(1-s) x/\sqrt m` of the rows behind it
``evaluation`` 1 in the row's cell by group, label and decision                :math:`\sqrt a`
``held_out``   the same of held-out rows                                       :math:`\sqrt a`
=============  ==============================================================  ====================

in length, with a attributes and m the most rates that one row is behind.

With a decision threshold other than ½ a decision is that of :math:`z \ge c`, and s is the score of
:math:`z - c`. Only ``scores`` has another sensitivity then, :math:`\sqrt 2` times that above, by
adding the bounds of its two parts.

``scores`` tells two sums for the price of one. A row is far from the line that decides, or near it:
with z its logit, :math:`\sigma(z) - ½ = ½\tanh(z/2)` and
:math:`2 s(1-s) = ½\,\mathrm{sech}^2(kz/2)`, and for k ≥ 1

.. math:: \tanh^2(z/2) + \mathrm{sech}^4(kz/2) \le \tanh^2(z/2) + \mathrm{sech}^2(z/2) = 1.

With the gradient at zero, which has the labels, the first line is the gradient of the loss.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeAlias

from fcfl._types import Extra, Matrix, Point, RateId
from fcfl.errors import DataError

Kind: TypeAlias = Literal[
    "counts", "moments", "gradient", "rates", "jacobian", "scores", "evaluation", "held_out"
]
Part: TypeAlias = Literal["train", "test"]

NORM = 3.0  # of a row; chosen on other partitions than those reported in docs/privacy.md
_PER_CELL = ("counts", "evaluation", "held_out")


@dataclass(frozen=True)
class Release(Extra):
    r"""One noisy sum. The client adds noise with :math:`\Delta/\mu` as its standard deviation.

    What it costs is ``mu``, squares of which add up; see `fcfl.accountant`. The slope of
    ``jacobian`` and ``scores`` is the point's ``sharpness``.
    """

    kind: Kind
    mu: float
    norm: float = NORM

    def answer(self, rows: Any, point: Point) -> Mapping[str, Matrix]:
        """The sum with its noise, by the kind's name."""
        if not hasattr(rows, "release"):
            raise DataError(
                "This client has no privacy budget and releases nothing: it would add no noise."
            )
        return {self.kind: rows.release(self, point)}

    def shapes(self, point: Point, n_rates: int) -> Mapping[str, tuple[int, ...]]:
        """One entry for each cell, parameter, pair of parameters or rate."""
        n = point.params.size
        shapes: dict[str, tuple[int, ...]] = {
            "moments": (n * (n + 1) // 2,),
            "gradient": (n,),
            "rates": (n_rates,),
            "jacobian": (n_rates, n),
            "scores": (1 + n_rates, n),
        }
        return {self.kind: shapes.get(self.kind, (-1,))}

    @property
    def part(self) -> Part:
        """Whose rows it is about; no row is in both parts, so their costs do not add up."""
        return "test" if self.kind == "held_out" else "train"

    def sensitivity(self, rates: Sequence[RateId], point: Point, cut: float = 0.0) -> float:
        """Return the most that one row changes the sum, in length: the table above.

        ``cut`` is the model's; only that of ``scores`` depends on it.
        """
        a, m = len(attributes_of(rates)), rates_of_a_row(rates)
        if self.kind in _PER_CELL:
            return math.sqrt(a)
        if self.kind == "moments":
            return self.norm**2 / math.sqrt(2)
        if self.kind == "gradient":
            return self.norm if point.params.any() else self.norm / 2
        if self.kind == "rates":
            return math.sqrt(m) / 2
        if self.kind == "scores":
            is_bounded = point.sharpness >= 1 and cut == 0.0
            return self.norm / 2 * (1.0 if is_bounded else math.sqrt(2))
        return math.sqrt(m) * point.sharpness * self.norm / 4

    def noise_sd(self, rates: Sequence[RateId], point: Point, cut: float = 0.0) -> float:
        """Standard deviation of the noise in each number; not of the diagonal of ``moments``."""
        return self.sensitivity(rates, point, cut) / self.mu


@dataclass(frozen=True)
class Cell:
    """Rows of one group (None: of none), with one label and one decision where they matter."""

    attribute: str
    group: str | None
    label: int | None = None
    selected: bool | None = None


def attributes_of(rates: Sequence[RateId]) -> tuple[str, ...]:
    """The attributes behind the rates, each once; a row is in one cell for each of them."""
    return tuple(dict.fromkeys(rate.attribute for rate in rates)) or ("",)


def rates_of_a_row(rates: Sequence[RateId]) -> int:
    """The most rates that a row is behind: of each attribute one by all rows, one by its label."""
    by_label = {(rate.attribute, rate.kind == "selection") for rate in rates}
    return max(len(by_label), 1)


def cells_of(rates: Sequence[RateId], kind: Kind = "counts") -> tuple[Cell, ...]:
    """The cells that a release counts, in order."""
    all_labels = kind != "counts" or any(rate.kind != "selection" for rate in rates)
    labels = (0, 1) if all_labels else (None,)
    decisions = (None,) if kind == "counts" else (False, True)
    found: list[Cell] = []
    for attribute in attributes_of(rates):
        own = dict.fromkeys(rate.group for rate in rates if rate.attribute == attribute)
        parts = product((*own, None), labels, decisions)
        found += [Cell(attribute, *part) for part in parts]
    return tuple(found)
