"""The paper's synthetic problem (section 5.2) as a client: one objective, the other as a rate.

The second objective lies in [0, 1] and is the rate of a group; it is compared with a group whose
rate is always zero, so that a budget bounds the objective itself.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fcfl._types import CurvatureWeights, Point, Report, Vector
from fcfl.client.counts import Counts
from fcfl.client.questions import Counted, Introduction, Setup
from fcfl.data.synthetic import SyntheticClient
from fcfl.rules import Difference

SYNTHETIC = "synthetic"
ATTRIBUTE, GROUPS = "objective", ("l2", "zero")
RULE = Difference("demographic_parity", ATTRIBUTE)


class SyntheticParty:
    """Answers for two formulas instead of rows."""

    def __init__(self) -> None:
        self.formulas = SyntheticClient()

    def introduce(self) -> Introduction:
        """One attribute with two groups."""
        levels = {ATTRIBUTE: GROUPS}
        return Introduction(SYNTHETIC, levels, levels)

    def report(self, setup: Setup, points: Sequence[Point]) -> tuple[Report, ...]:
        """The two objectives at each point."""
        return tuple(self._report(point) for point in points)

    def _report(self, point: Point) -> Report:
        weights = (point.curvature_weights or {}).get(SYNTHETIC)
        if weights is not None:
            first = CurvatureWeights(weights.loss, weights.rates[:1])
            point = replace(point, curvature_weights={SYNTHETIC: first})
        said = self.formulas.report(point)
        grads = said.rate_grads
        return replace(
            said,
            group_counts=np.ones(2),
            rates=np.append(said.rates, 0.0),
            rate_grads=None if grads is None else np.vstack([grads, np.zeros(grads.shape[1])]),
        )

    def count(self, setup: Setup, params: Vector) -> Counted:
        """There are no rows to count."""
        none = Counts(0, 0, 0, 0, 0.0, np.zeros(2), np.zeros(2))
        said = self._report(Point(params))
        return Counted(said, none, none, self._report(Point(params, "decisions")).rates)
