"""The dataclasses of ``result.json``: what a run or an audit found.

Every key of the file has the name of a field; `Result.overall` alone is called ``global`` there.
"""

import math
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from fcfl import __version__
from fcfl._checks import first_of
from fcfl._types import ClientId, Matrix, Vector
from fcfl.audit.auditing import FailOn, Part, Simultaneous
from fcfl.audit.verdicts import Disparity
from fcfl.models.loss import HALF
from fcfl.models.model import GroupThresholds
from fcfl.problem import Price

from .many_runs import SweepPoint

PartName = Literal["train", "test"]
Status = Literal["running", "converged", "stopped", "infeasible", "failed", "audited"]
Objective: TypeAlias = Literal["max", "mean"] | float
Whom: TypeAlias = Literal["nobody", "everybody"]


# --- one client -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowCounts:
    """Rows of a client."""

    train: int
    test: int

    def of(self, part: PartName) -> int:
        """Return the rows of one part."""
        return self.train if part == "train" else self.test


@dataclass(frozen=True)
class ClientResult:
    """The result of one client, or of all clients' rows together."""

    rows: RowCounts
    train: Part
    test: Part

    def part(self, name: PartName) -> Part:
        """Return the result on training rows, or on those held out."""
        return self.train if name == "train" else self.test


@dataclass(frozen=True)
class WorstClient:
    """The client served worst; all None where no losses and labels are known."""

    name: ClientId | None
    train_loss: float | None
    test_accuracy: float | None


# --- one run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationCounts:
    """Number of points each client evaluated, by what was requested."""

    value: int = 0
    gradient: int = 0
    curvature: int = 0


@dataclass(frozen=True)
class Exchanges:
    """Requests that all clients answered, by phase of the run."""

    total: int = 0
    by_phase: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, by_phase: Mapping[str, int]) -> "Exchanges":
        """Return the phases with their total."""
        return cls(sum(by_phase.values()), dict(by_phase))

    def plus(self, other: "Exchanges") -> "Exchanges":
        """Return the sum of both, phase by phase."""
        return Exchanges.of(Counter(self.by_phase) + Counter(other.by_phase))


@dataclass(frozen=True, kw_only=True)
class SelectionLine:
    """Held-out losses of one setting that was tried: the worst client's and the mean."""

    l2: float
    objective: Objective
    worst_client: ClientId
    worst_loss: float
    mean_loss: float
    standard_error_of_difference: float


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How ``l2`` and ``objective`` were chosen."""

    l2: float
    objective: Objective
    chosen: SelectionLine | None = None
    table: tuple[SelectionLine, ...] = ()
    sentence: str


@dataclass(frozen=True)
class Share:
    """Accuracy on training rows, and the share of them that is selected."""

    accuracy: float
    selected: float


@dataclass(frozen=True)
class PriceStep:
    """Accuracy and share selected of one of a run's models: overall, and for each client."""

    accuracy: float
    selected: float
    clients: Mapping[ClientId, Share]

    @classmethod
    def of(cls, clients: Sequence[ClientId], confusion: Matrix) -> "PriceStep":
        """Return the shares of counts: negatives, false and true, then positives, by client."""
        counts = np.vstack([confusion, confusion.sum(axis=0)])
        n = np.maximum(counts.sum(axis=1), 1e-300)
        accuracy = ((counts[:, 0] + counts[:, 3]) / n).tolist()
        selected = ((counts[:, 1] + counts[:, 3]) / n).tolist()
        shares = dict(zip(clients, map(Share, accuracy, selected), strict=False))
        return cls(accuracy[-1], selected[-1], shares)


@dataclass(frozen=True)
class PriceOfBudgets:
    """The cost of budgets, and of margins in addition.

    ``lost`` is the accuracy lost in all. With a decision threshold P other than one half it weighs
    a wrong decision by 2 (1 - P) for a row with label 1 and by 2 P for one with label 0: otherwise
    selecting nobody would look cheap.
    """

    without_budgets: PriceStep
    with_budgets: PriceStep
    with_margins: PriceStep
    lost: float


@dataclass(frozen=True)
class MarginSummary:
    """The confidence that margins were made for, and where rows do not support it.

    ``cut_to`` is the confidence that was reached within the limit on accuracy, None where it is
    the one requested. ``rows_short`` is the factor by which each client's rows are too few, None
    where no number of rows suffices.
    """

    confidence: float
    cut_to: float | None
    rows_short: Mapping[ClientId, float | None]

    @classmethod
    def of(
        cls, confidence: float, reached: float, names: Sequence[ClientId], times: Vector
    ) -> "MarginSummary":
        """Return the largest factor of each name above 1, the largest first; infinite is None."""
        needed: dict[ClientId, float] = {}
        for name, factor in zip(names, times.tolist(), strict=True):
            if factor > 1.0:
                needed[name] = max(needed.get(name, 0.0), round(factor, 2))
        ordered = sorted(needed.items(), key=lambda item: -item[1])
        short = {name: factor if math.isfinite(factor) else None for name, factor in ordered}
        return cls(confidence, reached if reached < confidence else None, short)


@dataclass(frozen=True)
class PoolingSummary:
    """Which budgets are kept by estimates over clients, and which clients are outliers.

    ``spread`` is the standard deviation between clients of each comparison, ``weights`` the least
    weight of each client's own rows in its estimates. ``own_rows_decide`` are the clients whose own
    rows can tell all their comparisons; of the others, ``exceed_on_own_rows`` exceed a budget by
    their own training rows. ``odd`` contradict the other clients.
    """

    spread: Mapping[str, float]
    weights: Mapping[ClientId, float]
    own_rows_decide: tuple[ClientId, ...]
    exceed_on_own_rows: tuple[ClientId, ...]
    odd: tuple[ClientId, ...]


@dataclass(frozen=True)
class Start:
    """A start of training, and the clients' training losses where training ended from there."""

    start: str
    worst_loss: float | None
    mean_loss: float | None


# The rule of the project's contract: with 20 rows of a label, selecting none of them by chance has
# a probability below .01 for any model that finds a fourth of them (.75 ** 20 = .003).
MIN_LABELLED = 20  # rows with the label in question
FEW, FEW_SHARE = 5.0, 0.1  # selected rows, and their share of the labelled ones, that are too few
MAX_DEGENERATE = 3  # clients that a sentence names


def degenerate_side(
    selected: float, positives: float, n_rows: float, noise: float = 0.0
) -> Whom | None:
    """Return whom a model selects, where that is nearly nobody or nearly everybody.

    1. "nobody": at least 20 rows have label 1, and at most 5 rows, or a tenth as many as have the
       label, are selected.
    2. "everybody": the same of label 0 and of the rows that are not selected.

    Counts that may be off by ``noise`` must be beyond these limits by as much.
    """

    def is_side(decided: float, labelled: float) -> bool:
        return labelled >= MIN_LABELLED and decided <= max(FEW, FEW_SHARE * labelled)

    if is_side(selected + noise, positives - noise):
        return "nobody"
    return "everybody" if is_side(n_rows - selected + noise, n_rows - positives - noise) else None


@dataclass(frozen=True)
class DegenerateRows:
    """Training rows of which nearly nobody or nearly everybody is selected.

    ``client`` is None for all clients' rows together.
    """

    client: ClientId | None
    whom: Whom
    rows: int
    positives: int
    selected: int


@dataclass(frozen=True)
class Degenerate:
    """A model that selects nearly nobody or nearly everybody: it keeps any budget and is useless.

    ``threshold`` is the one it was trained at. At ``advised_threshold`` the same scores select
    ``would_select`` of these rows, about as many as have label 1; None if no threshold does.
    """

    rows: tuple[DegenerateRows, ...]
    threshold: float
    advised_threshold: float | None = None
    would_select: int | None = None

    @property
    def positives(self) -> int:
        """The rows with label 1 among those in question."""
        return sum(one.positives for one in self.rows)

    @property
    def headline(self) -> str:
        """State who is selected, as a clause without counts."""
        sides = dict.fromkeys(one.whom for one in self.rows)
        return f"the model selects nearly {' or nearly '.join(sides)}"

    @property
    def counts(self) -> str:
        """Return the counts of a few clients, as a sentence."""
        listed = [
            f"{one.selected:,} of {one.rows:,} training rows at "
            f"{'all clients together' if one.client is None else one.client} "
            f"({one.positives:,} have the label)"
            for one in self.rows
        ]
        return f"Selected: {first_of(listed, MAX_DEGENERATE)}."

    @property
    def in_python(self) -> str:
        """Return the sentences of a warning in Python."""
        headline = f"{self.headline[0].upper()}{self.headline[1:]}"
        return f"{headline}. {self.counts} {self.way_out('threshold=')}"

    def way_out(self, option: str) -> str:
        """State what to do; ``option`` is how a threshold is given: ``--threshold`` and a space."""
        if self.advised_threshold is None or self.would_select is None:
            return (
                "Such a model keeps budgets on equal rates and is of no use. Try another decision "
                f"threshold ({option.strip()}), a smaller l2, a larger budget, or more rows."
            )
        return (
            f"At a decision threshold of {self.advised_threshold:g} instead of {self.threshold:g} "
            f"its scores select {self.would_select:,} of these rows; {self.positives:,} have the "
            f"label. Train with {option}{self.advised_threshold:g}."
        )


@dataclass(frozen=True)
class AuditSection:
    """Confidence of the intervals, groups that are too small, and the gate of an audit."""

    confidence: float
    simultaneous: Simultaneous
    min_group_rows: float | None
    statement: str
    fail_on: FailOn | None = None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSource:
    """The table, and checksums of its rows and of the policy."""

    table: str
    sha256: str
    policy_sha256: str | None = None


@dataclass(frozen=True)
class PrivacyLoss:
    """Bound on what one client's reports disclose about a row."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Privacy:
    """The privacy loss of each client, and what it does not cover."""

    clients: Mapping[ClientId, PrivacyLoss]
    neighbours: str
    not_covered: tuple[str, ...]


@dataclass(frozen=True)
class SiteDeployment:
    """A site's conditions and traffic: messages, bytes each way, its slowest response."""

    policy_sha256: str | None
    min_group_rows: float
    withhold_below: float
    fcfl_version: str
    messages: int
    bytes_to: int
    bytes_from: int
    slowest_seconds: float


@dataclass(frozen=True)
class Deployment:
    """Traffic of a run over sites that keep their rows."""

    budgets_met: bool
    bytes_to_sites: int
    bytes_from_sites: int
    sites: Mapping[ClientId, SiteDeployment]


def versions() -> dict[str, str]:
    """Return the versions that computed a result."""
    packages = ("numpy", "scipy", "pandas")
    python = platform.python_version()
    return {"fcfl": __version__, "python": python} | {name: version(name) for name in packages}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``result.json``.

    ``settings`` are the run's options by name. Methods with multipliers give ``prices``, most
    expensive first, and ``worst_clients``, the clients whose weights are positive. ``sweep`` is
    given only in the folder of a sweep.

    Rows are selected from a probability of ``threshold`` on, None for an audit; ``thresholds`` are
    given where decisions are by client and group. ``degenerate`` is given if the model selects
    nearly nobody or nearly everybody.

    ``exceeded`` is by how much decisions on training rows exceed what they must keep, by name:
    budgets on the own rows of clients whose rows can tell, estimates over clients for the others,
    and limits on rate shifts.
    """

    method: str
    status: Status
    message: str
    rounds: Mapping[str, int]
    exchanges: Exchanges = Exchanges()
    evaluations: EvaluationCounts = EvaluationCounts()
    bytes_from_clients: int = 0
    seconds: float | None = None
    kkt_residual: float | None = None
    l2: float | None = None
    objective: Objective | None = None
    selection: Selection | None = None
    threshold: float | None = None
    thresholds: GroupThresholds | None = None
    degenerate: Degenerate | None = None
    seed: int | None = None
    fcfl_version: str
    worst_client: WorstClient
    clients: Mapping[ClientId, ClientResult]
    overall: ClientResult = msgspec.field(name="global")
    starts: tuple[Start, ...] = ()
    exceeded: Mapping[str, float] = {}
    price: PriceOfBudgets | None = None
    margins: MarginSummary | None = None
    pooling: PoolingSummary | None = None
    privacy: Privacy | None = None
    audit: AuditSection | None = None
    prices: tuple[Price, ...] = ()
    worst_clients: Mapping[ClientId, float] = {}
    settings: Mapping[str, Any] = {}
    data: DataSource | None = None
    versions: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    deployment: Deployment | None = None
    sweep: tuple[SweepPoint, ...] = ()

    def __repr__(self) -> str:
        """Return method, status, exchanges, and a line for each disparity of the first clients."""
        from .summary import as_text  # reads results

        return as_text(self)

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks."""
        from .summary import as_html

        return as_html(self)

    def replace(self, **changes: Any) -> "Result":
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    @property
    def chosen_threshold(self) -> float | None:
        """The decision threshold, None where it is the usual one half or not known."""
        return None if self.threshold == HALF else self.threshold

    @property
    def n_rounds(self) -> int:
        """Rounds of all stages."""
        return sum(self.rounds.values())

    @property
    def judged_part(self) -> PartName:
        """The held-out rows, or the training rows where nothing was held out."""
        return "test" if any(who.rows.test for who in self.clients.values()) else "train"

    @property
    def name_of_all(self) -> str:
        """The name of all rows together: one that no client has."""
        name = "all rows"
        while name in self.clients:
            name += " together"
        return name

    @property
    def everybody(self) -> Mapping[str, ClientResult]:
        """All clients, and all rows together where there are several clients."""
        together = {self.name_of_all: self.overall} if len(self.clients) > 1 else {}
        return {**self.clients, **together}

    def training_disparities(self) -> Iterator[tuple[ClientId | None, Disparity]]:
        """Yield every disparity on training rows with its client, None for all rows together."""
        for name, client in (*self.clients.items(), (None, self.overall)):
            for entry in client.train.disparities:
                yield name, entry


def objective_name(setting: str | float | None) -> Objective | None:
    """Return what is minimised over clients; an infinite temperature is the mean."""
    if setting is None or setting in ("max", "mean"):
        return setting  # type: ignore[return-value]
    return "mean" if math.isinf(float(setting)) else float(setting)


def objective_setting(objective: Objective) -> float | Literal["max"]:
    """Return the same as a temperature that a method takes."""
    return math.inf if objective == "mean" else objective
