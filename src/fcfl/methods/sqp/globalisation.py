r"""Which step lengths are taken: a merit function, and an augmented Lagrangian beside it.

.. math:: \phi_\rho(\theta) = f(\theta) + \sum_j \rho_j \max(v_j(\theta), 0)

A step is compared with the worst merit of the last few iterates, not with the last one (Grippo,
Lampariello and Lucidi, 1986), so that full steps pass where the curvature of the constraints
raises the merit for a moment (the Maratos effect). Objective and violations are stored apart, so
that past iterates can be weighed under the present penalties.

With exact curvature a step that the merit rejects is taken if the augmented Lagrangian falls:

.. math:: \min_t\; t + \sum_i \psi(a_i - t;\, \lambda_i, \sigma_i) + \sum_j \psi(b_j;\, \mu_j,
          \sigma_j), \qquad \psi(c;\, \mu, \sigma) = \begin{cases} \mu c + \tfrac\sigma2 c^2 &
          c > -\mu / \sigma \\ -\mu^2 / 2\sigma & \text{else} \end{cases}

over objective rows ``a`` and constraint rows ``b`` with the multipliers of the step. A full step
along nonlinear budgets exceeds them by a little, which the next step corrects. The merit weighs
such a violation with twice its multiplier; this function weighs it with the multiplier, which is
what it costs.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fcfl._types import Vector
from fcfl.methods.sqp.subproblem import Rows

# Share of the predicted decrease that a step must achieve (Armijo): small, so that only accidental
# decreases are rejected. The augmented Lagrangian must achieve more of it.
_ARMIJO, _ARMIJO_OF_AUGMENTED = 1e-4, 0.1

# The violation up to which the augmented Lagrangian may also measure how well a step was predicted.
_SMALL_VIOLATION = 1e-3

# A violation v weighs μ v + (ρ / .01) v² / 2: with a penalty ρ of twice the multiplier, as much as
# in the merit at .01, less below. Above .01 the augmented Lagrangian is not used.
_STRICT = 1e-2

# Twice the smallest multiplier of a loss by which its stiffness is computed.
_LEAST_STIFFNESS = 0.1

# By how much equal merits may differ: sums of a few thousand float64 numbers of size one.
_MERIT_ROUNDING, _DECREASE_ROUNDING = 1e-12, 1e-11

# A penalty above the multiplier makes the merit exact: its minimiser solves the constrained
# problem. Twice the multiplier allows for one that still grows.
_ENOUGH = 2.0

# Bounds on the penalty of a violation without a multiplier. With exact curvature it is no larger
# than that of any other budget: with a hundred active rows multipliers are near .01.
_LEAST, _LEAST_OF_ALL = 0.1, 0.01

Merit: TypeAlias = tuple[float, Vector]
"""An objective and the violations that penalties multiply; `weigh` adds them up."""


def merit_of_rows(rows: Rows) -> Merit:
    """Return the largest objective and the violations."""
    return float(rows[0].max()), np.maximum(rows[1], 0.0)


def weigh(merit: Merit, penalties: Vector) -> float:
    """Return the merit under ``penalties``."""
    return float(merit[0] + penalties @ merit[1])


@dataclass(frozen=True)
class Search:
    """The step lengths being tried, and what a point is compared with.

    A ``settled`` search takes its first length without a comparison. ``merits`` are those of the
    last iterates, the newest last. ``here`` and ``predicted`` are the rows where the step begins
    and where it ends to first order, ``multipliers`` theirs. ``bend`` is half of :math:`d^T B d`,
    by which the quadratic model predicts a smaller decrease.
    """

    lengths: tuple[float, ...]
    settled: bool
    merits: tuple[Merit, ...]
    here: Rows
    predicted: Rows
    multipliers: Rows
    penalties: Vector
    bend: float
    uses_augmented: bool

    def accepts(self, index: int, rows: Rows) -> bool:
        r"""Return whether the point of length ``lengths[index]`` may be the next iterate.

        .. math:: \phi(\theta + a d) \le \max_i \phi(\theta_i) - 10^{-4} a \Delta

        over the last iterates :math:`\theta_i`, with :math:`\Delta` the predicted decrease; or the
        augmented Lagrangian falls by a tenth of its prediction.
        """
        if self.settled:
            return index == 0
        if self.uses_augmented and self._augmented_ratio(index, rows) >= _ARMIJO_OF_AUGMENTED:
            return True
        worst = max(weigh(before, self.penalties) for before in self.merits)
        limit = worst - _ARMIJO * self.lengths[index] * self._predicted_decrease()
        merit = weigh(merit_of_rows(rows), self.penalties)
        return merit <= limit + _MERIT_ROUNDING * max(abs(worst), 1.0)

    def ratio(self, index: int, rows: Rows) -> float:
        """Return the decrease since the last iterate as a share of the predicted one.

        That is the merit's decrease or, where violations are small, the augmented Lagrangian's if
        its share is larger.
        """
        share = self._merit_ratio(index, rows)
        if not self.uses_augmented or rows[1].max(initial=0.0) > _SMALL_VIOLATION:
            return share
        return max(share, self._augmented_ratio(index, rows))

    def shorter(self, rows: Rows) -> float:
        r"""Return the length to try after the shortest one, a, was rejected at ``rows``.

        It is the minimum of the parabola through the merits at 0 and a with the predicted slope at
        0, between a tenth of a and half of it.
        """
        length, slope = min(self.lengths), self._predicted_decrease()
        rise = weigh(merit_of_rows(rows), self.penalties) - weigh(self.merits[-1], self.penalties)
        above = max(rise + length * slope, 1e-300)
        return float(np.clip(length**2 * slope / (2 * above), 0.1 * length, 0.5 * length))

    def next_penalties(self, multipliers: Vector) -> Vector:
        """Return penalties that are lowered only if a step was shortened.

        A penalty far above its multiplier rejects every step along which that constraint is
        nonlinear: on networks that meant hundreds of short steps.
        """
        lowered = lowered_penalties(self.penalties, multipliers)
        if self.lengths[0] < 1:
            return lowered
        return np.asarray(np.maximum(lowered, self.penalties))

    def augmented(self, rows: Rows) -> float:
        """Return the augmented Lagrangian at a point with these rows."""
        stiffness = np.maximum(2.0 * self.multipliers[0], _LEAST_STIFFNESS) / _STRICT
        level = _shared_level(rows[0], self.multipliers[0], stiffness)
        above = _psi(rows[0] - level, self.multipliers[0], stiffness)
        return level + above + _psi(rows[1], self.multipliers[1], self.penalties / _STRICT)

    def _predicted_decrease(self) -> float:
        """Return the decrease of the merit along the full step, to first order."""
        here, there = merit_of_rows(self.here), merit_of_rows(self.predicted)
        return weigh((here[0] - there[0], here[1] - there[1]), self.penalties)

    def _merit_ratio(self, index: int, rows: Rows) -> float:
        r"""Compare with the quadratic model, :math:`a \Delta - a^2 \tfrac12 d^T B d`."""
        length, merit = self.lengths[index], merit_of_rows(rows)
        actual = weigh(self.merits[-1], self.penalties) - weigh(merit, self.penalties)
        predicted = length * self._predicted_decrease() - length**2 * self.bend
        return _ratio(actual, predicted, 10 * _MERIT_ROUNDING)

    def _augmented_ratio(self, index: int, rows: Rows) -> float:
        """Return 0 where the step begins or ends far from the budgets, or the largest loss rises.

        There linearised rows predict little, and squares of violations are too large.
        """
        rise = rows[0].max() - self.here[0].max()
        exceeded = [part.max(initial=0.0) for part in (self.here[1], rows[1])]
        if max(rise, *exceeded) > _STRICT:
            return 0.0
        length, here = self.lengths[index], self.augmented(self.here)
        a, b = (h + length * (p - h) for h, p in zip(self.here, self.predicted, strict=True))
        predicted = here - self.augmented((a, b)) - length**2 * self.bend
        actual = here - self.augmented(rows)
        return _ratio(actual, predicted, _DECREASE_ROUNDING * max(abs(here), 1.0))


def _ratio(actual: float, predicted: float, rounding: float) -> float:
    """Return 1 where both are rounding, 0 where no decrease was predicted."""
    if max(abs(actual), abs(predicted)) <= rounding:
        return 1.0
    return actual / predicted if predicted > 0 else 0.0


def lowered_penalties(penalties: Vector, multipliers: Vector, least: float = _LEAST) -> Vector:
    """Return penalties halfway to twice their multipliers; one that is too low rises at once."""
    enough = np.maximum(_ENOUGH * multipliers, least)
    return np.asarray(np.maximum(enough, (penalties + enough) / 2))


def least_penalty(multipliers: Vector) -> float:
    """Return the penalty of a violation without a multiplier, beside others that have one."""
    largest = _ENOUGH * float(multipliers.max(initial=0.0))
    return float(np.clip(largest, _LEAST_OF_ALL, _LEAST))


def _psi(excess: Vector, multipliers: Vector, stiffness: Vector) -> float:
    """Return the sum of ψ over rows."""
    reach = np.maximum(excess, -multipliers / stiffness)
    return float(np.sum(multipliers * reach + 0.5 * stiffness * reach**2))


def _shared_level(values: Vector, weights: Vector, stiffness: Vector) -> float:
    """Return the t that minimises the objective rows' part.

    There the rows' slopes, none below zero, sum to one; of the levels at which those of the k
    largest would do so, it is the highest.
    """
    ends = values + weights / stiffness  # where a row's slope becomes zero
    order = np.argsort(-ends, kind="stable")
    total = np.cumsum(stiffness[order])
    return float(((np.cumsum((stiffness * ends)[order]) - 1.0) / total).max())
