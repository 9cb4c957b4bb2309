"""Several runs on the same rows: the dataclasses of ``sweep.json`` and ``comparison.json``.

Runs are compared on all rows together and on clients with enough people. At a client with 18
people, one decision can change a rate by a tenth, which is no evidence about a model. Such a client
has budgets and verdicts but is excluded from the comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

from fcfl._types import ClientId
from fcfl.audit.verdicts import Disparity
from fcfl.rules import LEAST_ROWS

if TYPE_CHECKING:
    from .result import ClientResult, PartName, Result

ENOUGH = int(LEAST_ROWS[0])  # smallest number of people in every compared group
MAJORITY = "majority"  # baseline that predicts the more frequent label for everybody


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Summary of a result on held-out rows, or on training rows if none are held out.

    ``accuracy``, the share ``selected`` and ``all_rows`` (the largest difference of group rates,
    with its interval) are measured on all rows together. ``median``, ``largest``,
    ``lowest_accuracy`` and the number of budgets ``kept`` (of ``n_budgets``) are computed over
    ``clients`` with enough people. ``too_small`` are the other clients.
    """

    all_rows: float | None = None
    low: float | None = None
    high: float | None = None
    accuracy: float | None = None
    selected: float | None = None
    median: float | None = None
    largest: float | None = None
    lowest_accuracy: float | None = None
    kept: int = 0
    n_budgets: int = 0
    clients: tuple[ClientId, ...] = ()
    too_small: tuple[ClientId, ...] = ()

    @property
    def keeps(self) -> str:
        """Number of budgets that decisions meet, such as ``5/6``."""
        return f"{self.kept}/{self.n_budgets}" if self.n_budgets else "–"


def judge(result: "Result") -> Judged:
    """Summarise a result for comparison; use all clients if none has enough people."""
    part, together = result.judged_part, result.overall
    enough = [name for name, who in result.clients.items() if has_enough(who, part)]
    clients = enough or list(result.clients)
    parts = [result.clients[name].part(part) for name in clients]
    largest = [largest_difference(result.clients[name], part) for name in clients]
    values = [entry.value for entry in largest if entry is not None and entry.value is not None]
    limited = [
        (entry.value, entry.budget, entry.is_ratio)
        for one in parts
        for entry in one.disparities
        if entry.value is not None and entry.budget is not None
    ]
    pooled, rows = together.part(part), together.rows.of(part)
    difference = largest_difference(together, part) or Disparity("", "", "difference", None)
    return Judged(
        all_rows=difference.value,
        low=difference.low,
        high=difference.high,
        accuracy=pooled.accuracy,
        selected=None if pooled.selected is None or not rows else pooled.selected / rows,
        median=median(values) if values else None,
        largest=max(values, default=None),
        lowest_accuracy=min((p.accuracy for p in parts if p.accuracy is not None), default=None),
        kept=sum(v >= budget if is_ratio else v <= budget for v, budget, is_ratio in limited),
        n_budgets=len(limited),
        clients=tuple(clients),
        too_small=tuple(name for name in result.clients if name not in clients),
    )


def has_enough(client: "ClientResult", part: "PartName") -> bool:
    """Return whether at least two groups are compared and each has enough people."""
    entries = client.part(part).disparities
    sizes = [group.rows for entry in entries for group in entry.groups if group.is_compared]
    measured = all(entry.value is not None for entry in entries)
    return bool(sizes) and measured and min(sizes) >= ENOUGH


def largest_difference(client: "ClientResult", part: "PartName") -> Disparity | None:
    """Return a client's largest difference of group rates, ignoring ratios."""
    found = [e for e in client.part(part).disparities if not e.is_ratio and e.value is not None]
    return max(found, key=lambda entry: entry.value or 0.0, default=None)


# --- a sweep --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One run of a sweep.

    The budget is either ``budget`` or ``relative``, a share of the disparity without budgets.
    ``degenerate`` is True if the model selects nearly nobody, nearly everybody, or fewer than half
    as many rows as without budgets.
    """

    budget: float | None = None
    relative: float | None = None
    status: str
    budgets_met: bool
    degenerate: bool = False
    exchanges: int
    worst_client: str | None
    worst_client_train_loss: float | None
    test_accuracy: float | None
    folder: str
    judged: Judged = field(default_factory=Judged)

    @property
    def value(self) -> float | None:
        """The budget, absolute or relative as in its sweep."""
        return self.budget if self.relative is None else self.relative

    @property
    def is_success(self) -> bool:
        """Whether the model meets its budgets and is not degenerate."""
        return self.budgets_met and not self.degenerate


@dataclass(frozen=True)
class Sweep:
    """One run for each budget, loosest budget first."""

    points: tuple[SweepPoint, ...]


# --- a comparison of methods ----------------------------------------------------------------------


@dataclass(frozen=True)
class ClientRun:
    """Result of one client in one run; ``value`` is its largest difference of group rates."""

    accuracy: float | None = None
    value: float | None = None
    verdict: str | None = None


@dataclass(frozen=True, kw_only=True)
class MethodRun:
    """One method with one seed; ``part`` is None for a failed run.

    ``still_moving`` describes the change in the last rounds of a run that stopped before
    convergence.
    """

    folder: str
    method: str
    seed: int
    status: str
    message: str
    part: Literal["train", "test"] | None = None
    exchanges: int | None = None
    bytes_from_clients: int | None = None
    seconds: float | None = None
    clients: Mapping[ClientId, ClientRun] = field(default_factory=dict)
    judged: Judged = field(default_factory=Judged)
    still_moving: str = ""


@dataclass(frozen=True)
class OverSeeds:
    """Mean over seeds; interval and standard deviation if there are several seeds."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None


@dataclass(frozen=True)
class ClientOverSeeds:
    """Results of one client over all seeds of a method."""

    accuracy: OverSeeds
    disparity: OverSeeds


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """Results of one method over all its seeds.

    ``all_rows`` (the largest difference), ``accuracy`` and the share ``selected`` are measured on
    all rows together. ``median``, ``largest``, ``lowest_accuracy`` and the number of budgets
    ``kept`` are computed over clients with enough people (`Judged`).
    """

    method: str
    what: str
    seeds: tuple[int, ...]
    failed: int
    exchanges: OverSeeds
    bytes_from_clients: OverSeeds
    seconds: OverSeeds
    clients: Mapping[ClientId, ClientOverSeeds]
    accuracy: OverSeeds = OverSeeds()
    all_rows: OverSeeds = OverSeeds()
    median: OverSeeds = OverSeeds()
    largest: OverSeeds = OverSeeds()
    lowest_accuracy: OverSeeds = OverSeeds()
    selected: OverSeeds = OverSeeds()
    kept: int = 0
    n_budgets: int = 0
    too_small: tuple[ClientId, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The content of ``comparison.json``."""

    table: str
    confidence_over_seeds: float
    methods: tuple[MethodSummary, ...]
    runs: tuple[MethodRun, ...]
