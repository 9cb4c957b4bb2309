"""What is kept of one run: losses, rates and group counts of every client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fcfl.results import RowCounts
from fcfl_paper.reproduction.json_fields import key_of, omitted

Path2D: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class PartRecord:
    """Training or held-out rows; ``groups`` has rows and selected rows of each group."""

    loss: float | None
    accuracy: float | None
    disparity: float | None
    smooth: float | None
    budget: float | None
    groups: tuple[tuple[int, int], ...]

    @property
    def smallest_group(self) -> int | None:
        """Rows of the smallest group."""
        return min((rows for rows, _ in self.groups), default=None)


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """One client."""

    train: PartRecord
    test: PartRecord
    rows: RowCounts


@dataclass(frozen=True, slots=True)
class AllRowsRecord:
    """The rows of all clients together."""

    train: PartRecord
    test: PartRecord


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A finished run; ``path`` has both objectives of the synthetic problem, round by round."""

    status: str
    budgets_met: bool
    rounds: int
    seconds: float
    l2: float | None
    objective: float | str | None
    chosen: str | None
    clients: Mapping[str, ClientRecord]
    overall: AllRowsRecord = field(metadata=key_of("global"))
    path: Path2D | None = field(default=None, metadata=omitted())


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that raised an error; it is not written to disk, so it is tried again next time."""

    message: str


Record: TypeAlias = RunRecord | FailedRun
