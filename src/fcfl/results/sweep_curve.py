"""The trade-off curve of a sweep: the dataclasses of ``sweep.json``."""

from dataclasses import dataclass, field

from .json_fields import omitted
from .judged import Judged


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """What the curve shows of one run.

    Its budget is ``budget``, or ``relative``: a share of the disparity without budgets. A point
    that was trained twice has the exchanges of both runs. A point is ``degenerate`` if its model
    selects nearly nobody, nearly everybody, or fewer than half as many rows as without budgets.
    """

    budget: float | None = field(default=None, metadata=omitted())
    relative: float | None = field(default=None, metadata=omitted())
    status: str
    budgets_met: bool
    degenerate: bool = field(default=False, metadata=omitted())
    exchanges: int
    worst_client: str | None
    worst_client_train_loss: float | None
    worst_client_test_accuracy: float | None
    test_accuracy: float | None
    largest_train_disparity: float | None
    largest_test_disparity: float | None
    folder: str
    judged: Judged = field(default_factory=Judged)

    @property
    def value(self) -> float | None:
        """The budget, in the terms of its sweep."""
        return self.budget if self.relative is None else self.relative

    @property
    def is_success(self) -> bool:
        """Whether budgets are met by a model that selects neither nobody nor everybody."""
        return self.budgets_met and not self.degenerate


@dataclass(frozen=True)
class Sweep:
    """A run for each budget, the loosest first."""

    points: tuple[SweepPoint, ...]
