"""Which step lengths are taken: a penalised merit, compared with the worst of the last few.

The merit of a point is its objective plus its violations, each times a penalty of its own. They are
kept apart, so that the past can be weighed under the penalties of today.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fcfl._types import Vector

_ARMIJO = 1e-4  # share of the promised decrease that a step must deliver
_ENOUGH = 2.0  # times the multiplier; above it a penalty is exact
_LEAST = 0.1  # penalty of a violation that no multiplier asks for yet

Merit: TypeAlias = tuple[float, Vector]
"""An objective and what penalties multiply; `weigh` adds them up."""


def weigh(merit: Merit, penalties: Vector) -> float:
    """The merit under ``penalties``."""
    return float(merit[0] + penalties @ merit[1])


@dataclass(frozen=True)
class Search:
    """The step lengths being tried, and what a point must come below.

    ``settled`` says that the first length is known to do. ``merits`` are those of the last
    iterates, newest last; ``promise`` is how much the linearised merit falls by the full step.
    """

    lengths: tuple[float, ...]
    settled: bool
    merits: tuple[Merit, ...]
    promise: Merit
    penalties: Vector

    def accepts(self, index: int, merit: Merit) -> bool:
        """Whether the point of length ``lengths[index]`` may be the next iterate."""
        if self.settled:
            return index == 0
        worst = max(weigh(before, self.penalties) for before in self.merits)
        promised = weigh(self.promise, self.penalties)
        return weigh(merit, self.penalties) <= worst - _ARMIJO * self.lengths[index] * promised

    def ended(self, length: float) -> "Search":
        """With the one length that was taken."""
        return replace(self, lengths=(length,))

    def next_penalties(self, multipliers: Vector) -> Vector:
        """Penalties that fall by halves towards twice their multipliers when a step was short.

        Under one far above its multiplier no step passes on which that constraint bends. One that
        is too low rises at once. (Powell, 1978, lowers them at every step; then runs that are cut
        short end further outside their budgets: measured.)
        """
        enough = np.maximum(_ENOUGH * multipliers, _LEAST)
        was_short = self.lengths[0] < 1
        lower = (self.penalties + enough) / 2 if was_short else self.penalties
        return np.asarray(np.maximum(enough, lower))
