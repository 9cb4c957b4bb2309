"""What a model does for one client, and for all rows together."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fcfl._types import ClientId
from fcfl.audit.verdicts import Verdict

from .json_fields import omitted

PartName = Literal["train", "test"]
PARTS: tuple[PartName, PartName] = ("train", "test")
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class GroupCount:
    """Rows of one group, and how many of them the model selects.

    A group that is not ``is_compared`` has too few rows: no value, interval or verdict depends on
    it.
    """

    rate: str
    group: str
    rows: int
    selected: int
    is_compared: bool = field(default=True, metadata=omitted())


@dataclass(frozen=True)
class Expected:
    """A disparity on as many new rows as training rows, and the chance that the budget is kept."""

    value: float
    low: float
    high: float
    chance_kept: float | None


@dataclass(frozen=True)
class Disparity:
    """One rule on one client's rows, or on all rows together.

    ``value`` is of hard decisions; ``smooth`` what training holds within the budget, known on
    training rows only. ``price`` is None where no method said what the budget costs.
    """

    metric: str
    attribute: str
    rule: str
    value: float | None
    smooth: float | None = None
    low: float | None = None
    high: float | None = None
    budget: float | None = None
    expected: Expected | None = None
    verdict: Verdict = "unconstrained"
    price: float | None = None
    smallest_verifiable: float | None = None
    groups: tuple[GroupCount, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupScores:
    """Rows of a group with each label, by predicted probability in equal bins from 0 to 1."""

    attribute: str
    group: str
    negatives: tuple[int, ...]
    positives: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What a model does on training rows, or on rows held out; nothing of no rows.

    ``selected`` and ``positives`` are the numbers of rows that the model selects and that have the
    positive label. ``scores`` are known of all rows together, where every client tells them.
    """

    loss: float | None = None
    accuracy: float | None = None
    accuracy_interval: Interval | None = None
    balanced_accuracy: float | None = None
    balanced_accuracy_interval: Interval | None = None
    disparities: tuple[Disparity, ...] = ()
    selected: int | None = field(default=None, metadata=omitted())
    positives: int | None = field(default=None, metadata=omitted())
    scores: tuple[GroupScores, ...] = field(default=(), metadata=omitted())


@dataclass(frozen=True)
class RowCounts:
    """Rows of a client."""

    train: int
    test: int

    def of(self, part: PartName) -> int:
        """The rows of one part."""
        return self.train if part == "train" else self.test


@dataclass(frozen=True)
class Overall:
    """All clients' rows together."""

    train: Part
    test: Part


@dataclass(frozen=True)
class ClientResult:
    """What one client got."""

    rows: RowCounts
    train: Part
    test: Part

    def part(self, name: PartName) -> Part:
        """What it got on its training rows, or on those held out."""
        return self.train if name == "train" else self.test


@dataclass(frozen=True)
class WorstClient:
    """Who is served worst; None where nobody is known to be."""

    name: ClientId | None
    train_loss: float | None
    test_accuracy: float | None
