r"""Which step lengths are taken: a penalised merit, compared with the worst of the last few.

.. math:: \phi_\rho(\theta) = f(\theta) + \sum_j \rho_j \max(v_j(\theta), 0)

The objective and the violations are kept apart, so that past iterates can be weighed under the
present penalties.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fcfl._types import Vector

# Share of the predicted decrease that a step must achieve (Armijo); the usual choice, so small that
# it only refuses steps whose decrease is accidental.
_ARMIJO = 1e-4

# A penalty above the multiplier makes the merit exact: its minimiser solves the constrained
# problem. Twice the multiplier leaves room for a multiplier that still grows.
_ENOUGH = 2.0

# Penalty of a violation that no multiplier asks for yet. Without one a step could exceed that
# budget at no cost.
_LEAST = 0.1

Merit: TypeAlias = tuple[float, Vector]
"""An objective and the violations that penalties multiply; `weigh` adds them up."""


def weigh(merit: Merit, penalties: Vector) -> float:
    """The merit under ``penalties``."""
    return float(merit[0] + penalties @ merit[1])


@dataclass(frozen=True)
class Search:
    """The step lengths being tried, and what a point must come below.

    ``settled`` says that the first length is taken without a comparison. ``merits`` are those of
    the last iterates, newest last; ``predicted_decrease`` is how much the linearised merit falls
    along the full step, its objective and each of its violations.
    """

    lengths: tuple[float, ...]
    settled: bool
    merits: tuple[Merit, ...]
    predicted_decrease: Merit
    penalties: Vector

    def accepts(self, index: int, merit: Merit) -> bool:
        r"""Whether the point of length ``lengths[index]`` may be the next iterate.

        .. math:: \phi(\theta + a d) \le \max_i \phi(\theta_i) - 10^{-4} a \Delta

        over the last iterates :math:`\theta_i`, with :math:`\Delta` the predicted decrease.
        """
        if self.settled:
            return index == 0
        worst = max(weigh(before, self.penalties) for before in self.merits)
        predicted = weigh(self.predicted_decrease, self.penalties)
        return weigh(merit, self.penalties) <= worst - _ARMIJO * self.lengths[index] * predicted

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
        enough = np.maximum(_ENOUGH * multipliers, _LEAST)
        was_short = self.lengths[0] < 1
        lower = (self.penalties + enough) / 2 if was_short else self.penalties
        return np.asarray(np.maximum(enough, lower))
