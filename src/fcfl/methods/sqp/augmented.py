r"""The augmented Lagrangian of a step: a second word on whether it was a good one.

.. math:: \min_t\; t + \sum_i \psi(a_i - t;\, \lambda_i, \sigma_i) + \sum_j \psi(b_j;\, \mu_j,
          \sigma_j), \qquad \psi(c;\, \mu, \sigma) = \begin{cases} \mu c + \tfrac\sigma2 c^2 &
          c > -\mu / \sigma \\ -\mu^2 / 2\sigma & \text{else} \end{cases}

over objective rows ``a`` and constraint rows ``b`` with the multipliers of the step. A full step
along budgets that bend exceeds them by a little, which the next one mends. The merit weighs that
with twice the multiplier and refuses the step, or finds that little of what was predicted came true
and damps the next ones (the Maratos effect): near an optimum steps of a tenth of their length were
left. This function weighs a small violation with its multiplier, which is what it costs.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fcfl._types import Vector

Rows: TypeAlias = tuple[Vector, Vector]
"""Objective rows and constraint rows at a point."""

# A violation v weighs μ v + (ρ / .01) v² / 2: with a penalty ρ of twice the multiplier, as much as
# in the merit at .01, less below. Where a violation is above .01, or the largest loss rises by
# more, nothing is said. With .003 it takes as many rounds, with .03 nine groups take twice as many
# (docs/rounds.md).
_STRICT = 1e-2

# A loss without a multiplier has the stiffness of one with half of this.
_LEAST = 0.1

_ROUNDING = 1e-11  # decreases below it, beside a value of one, are rounding


@dataclass(frozen=True)
class Augmented:
    """The rows where a step begins and where it leads to first order, and their multipliers.

    ``penalties`` are the merit's; ``bend`` is half of :math:`d^T B d`.
    """

    here: Rows
    predicted: Rows
    multipliers: Rows
    penalties: Vector
    bend: float

    def value(self, rows: Rows) -> float:
        """The function at a point with these rows."""
        stiffness = np.maximum(2.0 * self.multipliers[0], _LEAST) / _STRICT
        level = _shared_level(rows[0], self.multipliers[0], stiffness)
        above = _psi(rows[0] - level, self.multipliers[0], stiffness)
        return level + above + _psi(rows[1], self.multipliers[1], self.penalties / _STRICT)

    def ratio(self, length: float, rows: Rows) -> float:
        """Its decrease along the step, as a share of what the quadratic model predicted.

        Zero where the step begins or ends far from the budgets, or raises the largest loss by much:
        there linearised rows say little, and squares of violations say too much.
        """
        if self._is_far(rows):
            return 0.0
        here = self.value(self.here)
        along = [a + length * (b - a) for a, b in zip(self.here, self.predicted, strict=True)]
        predicted = here - self.value((along[0], along[1])) - length**2 * self.bend
        actual = here - self.value(rows)
        if max(abs(actual), abs(predicted)) <= _ROUNDING * max(abs(here), 1.0):
            return 1.0
        return actual / predicted if predicted > 0 else 0.0

    def _is_far(self, rows: Rows) -> bool:
        rise = rows[0].max() - self.here[0].max()
        exceeded = [part.max(initial=0.0) for part in (self.here[1], rows[1])]
        return bool(max(rise, *exceeded) > _STRICT)


def _psi(excess: Vector, multipliers: Vector, stiffness: Vector) -> float:
    """The sum of ψ over rows."""
    reach = np.maximum(excess, -multipliers / stiffness)
    return float(np.sum(multipliers * reach + 0.5 * stiffness * reach**2))


def _shared_level(values: Vector, weights: Vector, stiffness: Vector) -> float:
    """The t that minimises the objective rows' part.

    There the rows' slopes, none below zero, sum to one; of the levels at which those of the k
    largest would do so, the highest is the one.
    """
    ends = values + weights / stiffness  # where a row's slope becomes zero
    order = np.argsort(-ends, kind="stable")
    total = np.cumsum(stiffness[order])
    return float(((np.cumsum((stiffness * ends)[order]) - 1.0) / total).max())
