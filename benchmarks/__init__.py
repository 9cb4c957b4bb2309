"""Speed claims, each a ratio measured within one run: ``python -m benchmarks``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """Two medians in milliseconds, what they are of, and the claim about their ratio."""

    ours: str
    ours_ms: float
    other: str
    other_ms: float
    at_most: float

    @property
    def ratio(self) -> float:
        """Ours divided by the other."""
        return self.ours_ms / self.other_ms

    @property
    def holds(self) -> bool:
        """Whether the claimed ratio is kept."""
        return self.ratio <= self.at_most
