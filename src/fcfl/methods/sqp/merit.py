r"""Which step lengths are taken: a penalised merit, compared with the worst of the last few.

.. math:: \phi_\rho(\theta) = f(\theta) + \sum_j \rho_j \max(v_j(\theta), 0)

The objective and the violations are kept apart, so that past iterates can be weighed under the
present penalties.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fcfl._types import Vector
from fcfl.methods.sqp.augmented import Augmented, Rows

# Share of the predicted decrease that a step must achieve (Armijo); the usual choice, so small that
# it only refuses steps whose decrease is accidental.
_ARMIJO = 1e-4

# Share of the predicted decrease that the augmented Lagrangian must achieve where the merit does
# not. Between 1e-4 and .3 it makes no difference (docs/rounds.md).
_ENOUGH_OF_AUGMENTED = 0.1

# The violation up to which the augmented Lagrangian may also say how well a step was predicted:
# with larger ones linearised rows say little, whatever the multipliers.
_SMALL_VIOLATION = 1e-3

# By how much merits that are equal may differ: sums of a few thousand float64 numbers of size one.
_ROUNDING = 1e-12

# A penalty above the multiplier makes the merit exact: its minimiser solves the constrained
# problem. Twice the multiplier leaves room for a multiplier that still grows.
_ENOUGH = 2.0

# Penalty of a violation that no multiplier asks for yet. Without one a step could exceed that
# budget at no cost. With exact curvature it is no more than any other budget's: with a hundred
# active rows multipliers are near .01, and ten times as much refuses the steps that they ask for.
_LEAST, _LEAST_OF_ALL = 0.1, 0.01

Merit: TypeAlias = tuple[float, Vector]
"""An objective and the violations that penalties multiply; `weigh` adds them up."""


def merit_of_rows(rows: Rows) -> Merit:
    """The largest objective, and the violations."""
    return float(rows[0].max()), np.maximum(rows[1], 0.0)


def weigh(merit: Merit, penalties: Vector) -> float:
    """The merit under ``penalties``."""
    return float(merit[0] + penalties @ merit[1])


@dataclass(frozen=True)
class Search:
    """The step lengths being tried, and what a point must come below.

    ``settled`` says that the first length is taken without a comparison. ``merits`` are those of
    the last iterates, newest last; ``predicted_decrease`` is how much the linearised merit falls
    along the full step, its objective and each of its violations. ``bend`` is half of
    :math:`d^T B d`, by which the quadratic model predicts less. ``augmented`` is there with exact
    curvature: a step that the merit refuses is taken if the augmented Lagrangian falls.
    """

    lengths: tuple[float, ...]
    settled: bool
    merits: tuple[Merit, ...]
    predicted_decrease: Merit
    penalties: Vector
    bend: float = 0.0
    augmented: Augmented | None = None

    def accepts(self, index: int, rows: Rows) -> bool:
        r"""Whether the point of length ``lengths[index]`` may be the next iterate.

        .. math:: \phi(\theta + a d) \le \max_i \phi(\theta_i) - 10^{-4} a \Delta

        over the last iterates :math:`\theta_i`, with :math:`\Delta` the predicted decrease. Or the
        augmented Lagrangian falls by a tenth of what was predicted.
        """
        if self.settled:
            return index == 0
        if self.augmented is not None:
            share = self.augmented.ratio(self.lengths[index], rows)
            if share >= _ENOUGH_OF_AUGMENTED:
                return True
        merit = merit_of_rows(rows)
        worst = max(weigh(before, self.penalties) for before in self.merits)
        predicted = weigh(self.predicted_decrease, self.penalties)
        limit = worst - _ARMIJO * self.lengths[index] * predicted
        return weigh(merit, self.penalties) <= limit + _ROUNDING * max(abs(worst), 1.0)

    def ratio(self, index: int, rows: Rows) -> float:
        """The decrease since the last iterate as a share of the predicted one.

        That of the merit; where violations are small, that of the augmented Lagrangian if it is
        larger.
        """
        merit = merit_of_rows(rows)
        share = self._merit_ratio(index, merit)
        if self.augmented is None or merit[1].max(initial=0.0) > _SMALL_VIOLATION:
            return share
        return max(share, self.augmented.ratio(self.lengths[index], rows))

    def _merit_ratio(self, index: int, merit: Merit) -> float:
        r"""With length a the quadratic model predicts :math:`a \Delta - a^2 \tfrac12 d^T B d`."""
        length = self.lengths[index]
        actual = weigh(self.merits[-1], self.penalties) - weigh(merit, self.penalties)
        linear = weigh(self.predicted_decrease, self.penalties)
        predicted = length * linear - length**2 * self.bend
        if max(abs(actual), abs(predicted)) <= 10 * _ROUNDING:
            return 1.0
        return actual / predicted if predicted > 0 else 0.0

    def shorter(self, rows: Rows) -> float:
        r"""The length to try after the shortest one, a, was refused at ``rows``.

        It is the minimum of the parabola through the merits at 0 and a with the predicted slope at
        0, between a tenth of a and half of it.
        """
        length = min(self.lengths)
        slope = weigh(self.predicted_decrease, self.penalties)
        rise = weigh(merit_of_rows(rows), self.penalties) - weigh(self.merits[-1], self.penalties)
        above = max(rise + length * slope, 1e-300)
        return float(np.clip(length**2 * slope / (2 * above), 0.1 * length, 0.5 * length))

    def ended(self, length: float) -> "Search":
        """The search with only the length that was taken."""
        return replace(self, lengths=(length,))

    def next_penalties(self, multipliers: Vector) -> Vector:
        """Penalties that move halfway towards twice their multipliers when a step was shortened.

        A penalty far above its multiplier refuses every step along which that constraint bends: on
        networks that meant hundreds of short steps (docs/networks.md). One that is too low rises at
        once. Powell (1978) lowers them at every step; with that, runs that are cut short end
        further outside their budgets (measured).
        """
        lowered = lowered_penalties(self.penalties, multipliers)
        if self.lengths[0] < 1:
            return lowered
        return np.asarray(np.maximum(lowered, self.penalties))


def lowered_penalties(penalties: Vector, multipliers: Vector, least: float = _LEAST) -> Vector:
    """Penalties halfway to twice their multipliers; one that is too low rises at once."""
    enough = np.maximum(_ENOUGH * multipliers, least)
    return np.asarray(np.maximum(enough, (penalties + enough) / 2))


def least_penalty(multipliers: Vector) -> float:
    """The penalty of a violation without a multiplier, beside others that have one."""
    largest = _ENOUGH * float(multipliers.max(initial=0.0))
    return float(np.clip(largest, _LEAST_OF_ALL, _LEAST))
