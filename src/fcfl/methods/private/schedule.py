r"""What is asked in which round, and which share of the privacy loss it gets.

Shares are of :math:`\mu^2` (see `fcfl.accountant`) and are fixed beforehand: they depend on
nobody's rows. They were chosen on other partitions than those in docs/privacy.md.
"""

import math
from dataclasses import dataclass

from fcfl.releases import Kind, Release

GRADIENT_ROUNDS = 3  # more of them share the same budget: noisier gradients
EVALUATION = 0.06  # of the decisions on training rows, at the end
_FIRST: dict[Kind, float] = {"counts": 0.05, "moments": 0.15, "gradient": 0.2}
_FULL: dict[Kind, float] = {"scores": 0.1, "rates": 0.03}
_CORRECTIONS = 0.12  # of all rounds that ask for rates only


@dataclass(frozen=True)
class Schedule:
    """The releases of each round: the last exchange, after ``rounds``, counts decisions."""

    mu: float
    rounds: int

    def releases(self, taken: int) -> tuple[Release, ...]:
        """What is asked of every client after so many rounds."""
        if taken >= self.rounds:
            own = Release("evaluation", self.mu * math.sqrt(EVALUATION))
            return own, Release("held_out", self.mu)  # other rows: all of theirs is left
        shares = self._shares(taken)
        scale = (1.0 - EVALUATION) / self._total
        return tuple(
            Release(kind, self.mu * math.sqrt(scale * share)) for kind, share in shares.items()
        )

    def _shares(self, taken: int) -> dict[Kind, float]:
        if taken == 0:
            return _FIRST
        if taken <= GRADIENT_ROUNDS:
            return _FULL
        return {"rates": _CORRECTIONS / (self.rounds - 1 - GRADIENT_ROUNDS)}

    @property
    def _total(self) -> float:
        return sum(sum(self._shares(taken).values()) for taken in range(self.rounds))
