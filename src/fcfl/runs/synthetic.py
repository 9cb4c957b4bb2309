r"""The paper's synthetic problem (section 5.2): two non-convex objectives in twenty dimensions.

.. math:: l_1(\theta) = 1 - e^{-|\theta - 1/\sqrt n|^2}, \qquad
          l_2(\theta) = 1 - e^{-|\theta + 1/\sqrt n|^2}

The problem is to minimise :math:`l_1` subject to :math:`l_2 \le \epsilon`. It has one client with
the loss :math:`l_1` and the group rate :math:`l_2`, which lies in [0, 1]. A run compares this rate
with a second group, whose rate is always zero. The budget is therefore a bound on :math:`l_2`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fcfl._checks import check_curvature_weights
from fcfl._types import CurvatureWeights, Matrix, Point, Report, Vector
from fcfl.client.client import Counted, Introduction, Setup
from fcfl.client.counts import Counts
from fcfl.rules import Difference
from fcfl.runs.settings import SYNTHETIC

ATTRIBUTE, GROUPS = "objective", ("l2", "zero")
RULE = Difference("demographic_parity", ATTRIBUTE)


@dataclass(frozen=True, slots=True)
class SyntheticClient:
    """Client that reports two objectives, their gradients and the Hessian of their weighted sum."""

    n_params: int = 20

    @property
    def center(self) -> Vector:
        """Return the minimiser of the first objective; the second minimiser is its negative."""
        return np.full(self.n_params, 1.0 / np.sqrt(self.n_params))

    def report(self, point: Point) -> Report:
        """Return both objectives at ``point``, with gradients and curvature as requested."""
        value_1, grad_1, hess_1 = _bump(point.params - self.center)
        value_2, grad_2, hess_2 = _bump(point.params + self.center)
        one = np.ones(1)
        values = Report(1.0, value_1, one, np.array([value_2]))
        if not point.wants_gradients:
            return values
        curvature = None
        if point.want == "curvature":
            weights = check_curvature_weights(SYNTHETIC, point)
            curvature = weights.loss * hess_1 + weights.rates[0] * hess_2
        return Report(1.0, value_1, one, values.rates, grad_1, grad_2[None, :], curvature)


def _bump(offset: Vector) -> tuple[float, Vector, Matrix]:
    """Return the value, gradient and Hessian of ``1 - exp(-|offset|²)``."""
    height = float(np.exp(-(offset @ offset)))
    hessian = 2 * height * (np.eye(offset.size) - 2 * np.outer(offset, offset))
    return 1.0 - height, 2 * height * offset, hessian


def start(*, feasible: bool, n_params: int = 20, seed: int = 0) -> Vector:
    """Return initial parameters that satisfy budgets from .2 up, or that exceed budgets up to .8.

    In both cases the first objective is above .9, and so above the constrained optimum.
    """
    center = np.full(n_params, 1.0 / np.sqrt(n_params))
    sideways = np.random.default_rng(seed).standard_normal(n_params)
    sideways -= (sideways @ center) * center
    sideways /= np.linalg.norm(sideways)
    return -0.9 * center + 0.1 * sideways if feasible else 1.5 * sideways - 0.3 * center


def constrained_optimum(budget: float) -> float:
    r"""Return the smallest :math:`l_1` under :math:`l_2 \le` ``budget``."""
    distance = np.sqrt(-np.log1p(-budget))
    return float(1.0 - np.exp(-((2.0 - min(distance, 2.0)) ** 2)))


class SyntheticParty:
    """A client of a federation that evaluates the two objectives instead of rows."""

    def __init__(self) -> None:
        self.formulas = SyntheticClient()

    def introduce(self) -> Introduction:
        """Return one attribute with two groups."""
        levels = {ATTRIBUTE: GROUPS}
        return Introduction(SYNTHETIC, levels, levels)

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """Return the two objectives at each point."""
        return tuple(self._report(point) for point in points)

    def _report(self, point: Point) -> Report:
        weights = (point.curvature_weights or {}).get(SYNTHETIC)
        if weights is not None:
            first = CurvatureWeights(weights.loss, weights.rates[:1])
            point = replace(point, curvature_weights={SYNTHETIC: first})
        report = self.formulas.report(point)
        grads = report.rate_grads
        return replace(
            report,
            group_counts=np.ones(2),
            rates=np.append(report.rates, 0.0),
            rate_grads=None if grads is None else np.vstack([grads, np.zeros(grads.shape[1])]),
        )

    def count(self, setup: Setup, params: Vector) -> Counted:
        """Return counts of no rows."""
        none = Counts(0, 0, 0, 0, 0.0, np.zeros(2), np.zeros(2))
        hard = self._report(Point(params, "decisions")).rates
        return Counted(self._report(Point(params)), none, none, hard)
