"""Several methods on the same rows: the dataclasses of ``comparison.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fcfl._types import ClientId

from .client_result import PartName
from .judged import Judged


@dataclass(frozen=True)
class ClientRun:
    """One client in one run; ``value`` is its largest difference of group rates."""

    accuracy: float | None = None
    value: float | None = None
    verdict: str | None = None


@dataclass(frozen=True, kw_only=True)
class MethodRun:
    """One method with one seed; ``part`` is None for a run that failed.

    ``still_moving`` says of a run that stopped before it converged how much its last rounds
    changed.
    """

    folder: str
    method: str
    seed: int
    status: str
    message: str
    part: PartName | None = None
    worst_client: ClientId | None = None
    worst_accuracy: float | None = None
    accuracy: float | None = None
    worst_train_loss: float | None = None
    largest_client: ClientId | None = None
    largest_disparity: float | None = None
    low: float | None = None
    high: float | None = None
    verdicts: Mapping[str, int] = field(default_factory=dict)
    exchanges: int | None = None
    bytes_from_clients: int | None = None
    seconds: float | None = None
    clients: Mapping[ClientId, ClientRun] = field(default_factory=dict)
    judged: Judged = field(default_factory=Judged)
    still_moving: str = ""


@dataclass(frozen=True)
class OverSeeds:
    """A mean, the ends of its interval, and the standard deviation, where there are several."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None


@dataclass(frozen=True)
class ClientOverSeeds:
    """One client over all seeds of a method."""

    accuracy: OverSeeds
    disparity: OverSeeds


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """One method over all its seeds.

    ``all_rows`` is the difference over all rows together, ``selected`` the share of them that is
    selected; ``median``, ``largest``,
    ``lowest_accuracy`` and the budgets ``kept`` are of clients with enough people (`Judged`).
    """

    method: str
    what: str
    seeds: tuple[int, ...]
    failed: int
    worst_accuracy: OverSeeds
    accuracy: OverSeeds
    worst_train_loss: OverSeeds
    largest_disparity: OverSeeds
    exchanges: OverSeeds
    bytes_from_clients: OverSeeds
    seconds: OverSeeds
    verdicts: Mapping[str, int]
    clients: Mapping[ClientId, ClientOverSeeds]
    all_rows: OverSeeds = OverSeeds()
    median: OverSeeds = OverSeeds()
    largest: OverSeeds = OverSeeds()
    lowest_accuracy: OverSeeds = OverSeeds()
    selected: OverSeeds = OverSeeds()
    kept: int = 0
    n_budgets: int = 0
    too_small: tuple[ClientId, ...] = ()


MAJORITY = "majority"  # the line of everybody getting the more frequent label


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything ``comparison.json`` says."""

    schema: int = 1
    table: str
    confidence_over_seeds: float
    methods: tuple[MethodSummary, ...]
    runs: tuple[MethodRun, ...]
