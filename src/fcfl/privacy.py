r"""Noisy sums that clients with a privacy budget release, and their total privacy loss.

Every row counts with its features x and a constant, shortened to a length of at most R (`NORM`)
and rounded towards zero. Adding or removing one row changes a released sum by at most

=============  ==============================================================  ====================
kind           sum over the rows of                                            sensitivity
=============  ==============================================================  ====================
``counts``     1 in the row's cell (group, and label where rates need it)      :math:`\sqrt a`
``moments``    :math:`x_i x_j`; the diagonal has :math:`\sqrt 2` × the noise   :math:`R^2/\sqrt 2`
``gradient``   :math:`(½ - y) x`, the gradient of the loss at zero             R/2
``rates``      (decision − ½) behind each of the row's rates                   :math:`\sqrt m / 2`
``scores``     :math:`(\sigma(\theta x) - ½) x`, and below it, for each rate,  R/2
               :math:`2 s(1-s) x/\sqrt m` of the rows behind it
``evaluation`` 1 in the row's cell by group, label and decision                :math:`\sqrt a`
``held_out``   the same of held-out rows                                       :math:`\sqrt a`
=============  ==============================================================  ====================

in length, with a attributes, m the most rates that one row is behind, and s the smooth decision of
slope k ≥ 1, the point's ``sharpness``.

With a decision threshold other than ½ a decision is that of :math:`z \ge c`, and s is the score of
:math:`z - c`. Only ``scores`` then has another sensitivity, :math:`\sqrt 2` times that above, the
sum of the bounds of its two parts.

``scores`` releases two sums at the sensitivity of one, because a row is either far from the
decision boundary or near it: with z its logit, :math:`\sigma(z) - ½ = ½\tanh(z/2)` and
:math:`2 s(1-s) = ½\,\mathrm{sech}^2(kz/2)`, and for k ≥ 1

.. math:: \tanh^2(z/2) + \mathrm{sech}^4(kz/2) \le \tanh^2(z/2) + \mathrm{sech}^2(z/2) = 1.

The first line plus ``gradient`` is the gradient of the loss.

**Accounting.** A release whose noise has the standard deviation :math:`\Delta/\mu`, with
:math:`\Delta` its sensitivity, has the privacy of distinguishing N(0, 1) from N(:math:`\mu`, 1)
(Gaussian differential privacy: Dong, Roth and Su, 2022). Squares of :math:`\mu` add up over
releases, also when later ones depend on earlier ones, and when their number is decided on the way
(Smith and Thakurta, 2022). All of them together are :math:`(\epsilon, \delta)`-private with

.. math:: \delta = \Phi(-\epsilon/\mu + \mu/2) - e^\epsilon \Phi(-\epsilon/\mu - \mu/2).

This is exact for continuous noise, and for continuous noise that is rounded to a lattice on which
the sums themselves lie. Ours is a discrete Gaussian on that lattice, with at least `LEAST_SCALE`
steps to a standard deviation s. By Poisson's summation formula and the midpoint rule its law
differs from the rounded one by at most .05/s² in total variation, for each number. All numbers of a
table, up to `MOST_NUMBERS`, therefore add at most :math:`(1 + e^\epsilon)` times `DIFFERENCE` to
:math:`\delta`, which is subtracted from :math:`\delta` beforehand.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeAlias

from scipy.special import log_ndtr

from fcfl._checks import is_finite
from fcfl._types import Extra, Matrix, Point, RateId
from fcfl.errors import DataError

LEAST_SCALE = 2**40  # lattice steps to a standard deviation of the noise
MOST_NUMBERS = 10**9  # maximum number of released numbers of a table
DIFFERENCE = MOST_NUMBERS * 0.05 / float(LEAST_SCALE) ** 2  # of the laws, in total variation
_LARGEST_MU = 100.0


def delta_of(epsilon: float, mu: float) -> float:
    r"""Return the smallest :math:`\delta` with which releases of :math:`\mu` in all are private."""
    if mu == 0:
        return 0.0
    below, above = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    exact = math.exp(log_ndtr(below)) - math.exp(epsilon + log_ndtr(above))
    return max(float(exact), 0.0) + discrete_part(epsilon)


def discrete_part(epsilon: float) -> float:
    r"""Return the addition to :math:`\delta` that is due to noise on a lattice."""
    return (1.0 + math.exp(epsilon)) * DIFFERENCE


def epsilon_of(mu: float, delta: float) -> float:
    r"""Return the smallest :math:`\epsilon` that releases of :math:`\mu` have at ``delta``."""
    if delta_of(0.0, mu) <= delta:
        return 0.0
    most = math.log(delta / DIFFERENCE / 2)  # beyond it the lattice alone takes half of delta
    if mu >= _LARGEST_MU or delta_of(most, mu) > delta:
        return math.inf
    return _root(lambda epsilon: delta_of(epsilon, mu) - delta, most, xtol=1e-12)


def mu_of(epsilon: float, delta: float) -> float:
    r"""Return the largest :math:`\mu` in all with which releases are private."""
    check_privacy(epsilon, delta)
    return _root(lambda mu: delta_of(epsilon, mu) - delta, _LARGEST_MU, xtol=1e-15, rtol=1e-14)


def _root(of: Callable[[float], float], most: float, **tolerances: float) -> float:
    """Return the root of a function between 0 and ``most``."""
    from scipy.optimize import brentq  # a site over Flower pays for imports with every message

    return float(brentq(of, 0.0, most, **tolerances))


def check_privacy(epsilon: float, delta: float) -> None:
    """Raise `ValueError` if a privacy loss is invalid or not attainable with lattice noise."""
    for name, value, most in (("epsilon", epsilon, 20), ("delta", delta, 0.1)):
        if not (is_finite(value) and 0 < value <= most):
            raise ValueError(
                f"`{name}` must be a number above 0 and at most {most}, got {value!r}."
            )
    if discrete_part(epsilon) > delta / 2:
        raise ValueError(
            f"`delta` must be at least {2 * discrete_part(epsilon):.1e} with epsilon {epsilon:g}, "
            f"got {delta!r}."
        )


Kind: TypeAlias = Literal[
    "counts", "moments", "gradient", "rates", "scores", "evaluation", "held_out"
]
Part: TypeAlias = Literal["train", "test"]

NORM = 3.0  # of a row; chosen on other partitions than those reported in docs/privacy.md


@dataclass(frozen=True)
class Release(Extra):
    r"""Request for a noisy sum; the noise has standard deviation :math:`\Delta/\mu`.

    What it costs is ``mu``, squares of which add up; see `fcfl.privacy`.
    """

    kind: Kind
    mu: float

    def answer(self, rows: Any, point: Point) -> Mapping[str, Matrix]:
        """Return the noisy sum, with its kind as name."""
        if not hasattr(rows, "release"):
            raise DataError("This client has no privacy budget, so it cannot release noisy sums.")
        return {self.kind: rows.release(self, point)}

    def shapes(self, point: Point, n_rates: int) -> Mapping[str, tuple[int, ...]]:
        """Return shapes with one entry per cell, parameter, pair of parameters or rate."""
        n = point.params.size
        shapes: dict[str, tuple[int, ...]] = {
            "moments": (n * (n + 1) // 2,),
            "gradient": (n,),
            "rates": (n_rates,),
            "scores": (1 + n_rates, n),
        }
        return {self.kind: shapes.get(self.kind, (-1,))}

    @property
    def part(self) -> Part:
        """Return the part of the rows; costs of the two disjoint parts do not add up."""
        return "test" if self.kind == "held_out" else "train"

    def sensitivity(self, rates: Sequence[RateId], cut: float = 0.0) -> float:
        """Return the most that one row changes the sum, in length: the table above.

        ``cut`` is the model's; only that of ``scores`` depends on it.
        """
        of_cells = math.sqrt(len(attributes_of(rates)))
        others = {
            "moments": NORM**2 / math.sqrt(2),
            "gradient": NORM / 2,
            "rates": math.sqrt(rates_of_a_row(rates)) / 2,
            "scores": NORM / 2 if cut == 0.0 else NORM / math.sqrt(2),
        }
        return others.get(self.kind, of_cells)

    def noise_sd(self, rates: Sequence[RateId], cut: float = 0.0) -> float:
        """Return the noise's standard deviation; on the diagonal of ``moments`` it is larger."""
        return self.sensitivity(rates, cut) / self.mu


@dataclass(frozen=True)
class Cell:
    """Rows of a group (None: without a group), with a label and a decision if counted by these."""

    attribute: str
    group: str | None
    label: int | None = None
    selected: bool | None = None


def attributes_of(rates: Sequence[RateId]) -> tuple[str, ...]:
    """Return the attributes behind the rates; a row is in one cell for each of them."""
    return tuple(dict.fromkeys(rate.attribute for rate in rates)) or ("",)


def rates_of_a_row(rates: Sequence[RateId]) -> int:
    """Return the most rates that a row is behind: per attribute one of all rows, one by label."""
    by_label = {(rate.attribute, rate.kind == "selection") for rate in rates}
    return max(len(by_label), 1)


def cells_of(rates: Sequence[RateId], kind: Kind = "counts") -> tuple[Cell, ...]:
    """Return the cells that a release counts, in order."""
    all_labels = kind != "counts" or any(rate.kind != "selection" for rate in rates)
    labels = (0, 1) if all_labels else (None,)
    decisions = (None,) if kind == "counts" else (False, True)
    found: list[Cell] = []
    for attribute in attributes_of(rates):
        own = dict.fromkeys(rate.group for rate in rates if rate.attribute == attribute)
        parts = product((*own, None), labels, decisions)
        found += [Cell(attribute, *part) for part in parts]
    return tuple(found)
