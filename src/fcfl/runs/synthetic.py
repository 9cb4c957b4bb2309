"""The paper's synthetic problem (section 5.2) as a client: one objective, the other as a rate.

The second objective lies in [0, 1] and is the rate of a group; it is compared with a group whose
rate is always zero, so that a budget bounds the objective itself.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fcfl._types import CurvatureWeights, Point, Report, Vector
from fcfl.client.client import Counted, Introduction, Setup
from fcfl.client.counts import Counts
from fcfl.data.synthetic import SyntheticClient
from fcfl.rules import Difference

SYNTHETIC = "synthetic"
ATTRIBUTE, GROUPS = "objective", ("l2", "zero")
RULE = Difference("demographic_parity", ATTRIBUTE)


class SyntheticParty:
    """A client that evaluates two formulas instead of rows."""

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
