"""What a run or an audit found out: the dataclasses of ``result.json``, schema 2.

Fields have the names of the keys in the file; `Result.overall` alone is called ``global`` there.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fcfl._types import ClientId
from fcfl.audit.auditing import FailOn, Simultaneous
from fcfl.models.group_thresholds import GroupThresholds
from fcfl.models.loss import HALF
from fcfl.problem.prices import Price

from .client_result import ClientResult, Disparity, Overall, PartName, RowCounts, WorstClient
from .degenerate import Degenerate
from .json_fields import key_of, omitted
from .summary import summary_of
from .sweep_curve import SweepPoint

SCHEMA = 2

Status = Literal["running", "converged", "stopped", "infeasible", "failed", "audited"]
Objective: TypeAlias = Literal["max", "mean"] | float


def objective_name(setting: str | float | None) -> Objective | None:
    """What is minimised over clients, as a result says it: an infinite temperature is the mean."""
    if setting is None or setting in ("max", "mean"):
        return setting  # type: ignore[return-value]
    return "mean" if math.isinf(float(setting)) else float(setting)


def objective_setting(objective: Objective) -> float | Literal["max"]:
    """The same as a temperature that a method takes."""
    return math.inf if objective == "mean" else objective


@dataclass(frozen=True)
class EvaluationCounts:
    """How many points each client evaluated, by what was asked about them."""

    value: int = 0
    gradient: int = 0
    curvature: int = 0


@dataclass(frozen=True)
class Exchanges:
    """Requests that all clients answered, by what they were made for."""

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
    """One setting that was tried, by held-out losses: of all rows, and of who is served worst."""

    l2: float
    objective: Objective
    worst_client: ClientId
    worst_loss: float
    mean_loss: float
    standard_error_of_difference: float


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How ``l2`` and ``objective`` were chosen; the content of ``selection.json``."""

    l2: float
    objective: Objective
    chosen: SelectionLine | None = field(default=None, metadata=omitted())
    table: tuple[SelectionLine, ...] = ()
    sentence: str


@dataclass(frozen=True)
class Share:
    """Accuracy on training rows, and the share of them that is selected."""

    accuracy: float
    selected: float


@dataclass(frozen=True)
class PriceStep:
    """What one of the models of a run does on training rows: overall, and for each client."""

    accuracy: float
    selected: float
    clients: Mapping[ClientId, Share]


@dataclass(frozen=True)
class PriceOfBudgets:
    """What budgets cost, and what margins cost beside them.

    ``lost`` is the accuracy lost in all. With a decision threshold P other than one half it weighs
    a wrong decision by 2 (1 - P) for a row with label 1 and by 2 P for one with label 0: else
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
    the one asked for. ``rows_short`` is how many times its rows each client would need that
    has too few, None where no number of rows suffices.
    """

    confidence: float
    cut_to: float | None
    rows_short: Mapping[ClientId, float | None]


@dataclass(frozen=True)
class PoolingSummary:
    """Which budgets are kept by estimates over clients, and who differs from the others.

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
    """Where training started, and the clients' training losses where it ended from there."""

    start: str
    worst_loss: float | None
    mean_loss: float | None


@dataclass(frozen=True)
class AuditSection:
    """How sure the intervals are, which groups are too small, and for an audit its gate."""

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
    policy_sha256: str | None = field(default=None, metadata=omitted())


@dataclass(frozen=True)
class PrivacyLoss:
    """What one client's reports may have disclosed about a row."""

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
    """What a site insisted on, and its traffic: messages, bytes each way, its slowest answer."""

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
    """A run over sites that keep their rows: what it cost on the wire."""

    budgets_met: bool
    bytes_to_sites: int
    bytes_from_sites: int
    sites: Mapping[ClientId, SiteDeployment]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything ``result.json`` says.

    ``settings`` are the run's options by name. ``own_best_losses`` are given where losses count
    from there; ``prices``, most expensive first, and ``worst_clients``, the clients that pay with
    their weights, by methods that know them; ``sweep`` only in the folder of a sweep. Rows are
    selected from a probability of ``threshold`` on, None for an audit; ``thresholds`` are given
    where decisions are by client and group. ``degenerate`` is given if the model selects nearly
    nobody or nearly everybody.

    ``exceeded`` says by how much decisions on training rows exceed what they must keep, by name:
    budgets on the own rows of clients whose rows can tell, estimates over clients for the others,
    and limits on rate shifts. Empty if they keep everything; None for an audit and in files of
    schema 1.
    """

    method: str
    status: Status
    message: str
    rounds: Mapping[str, int]
    exchanges: Exchanges = Exchanges()
    evaluations: EvaluationCounts
    bytes_from_clients: int
    seconds: float | None
    kkt_residual: float | None
    l2: float | None
    objective: Objective | None
    own_best_losses: Mapping[ClientId, float] | None = None
    selection: Selection | None = None
    threshold: float | None = None
    thresholds: GroupThresholds | None = field(default=None, metadata=omitted())
    degenerate: Degenerate | None = field(default=None, metadata=omitted())
    seed: int | None
    fcfl_version: str
    worst_client: WorstClient
    clients: Mapping[ClientId, ClientResult]
    overall: Overall = field(metadata=key_of("global"))
    starts: tuple[Start, ...] = ()
    exceeded: Mapping[str, float] | None = field(default=None, metadata=omitted())
    price: PriceOfBudgets | None = None
    margins: MarginSummary | None = None
    pooling: PoolingSummary | None = None
    privacy: Privacy | None = None
    audit: AuditSection | None = field(default=None, metadata=omitted())
    prices: tuple[Price, ...] = field(default=(), metadata=omitted())
    worst_clients: Mapping[ClientId, float] = field(default_factory=dict, metadata=omitted())
    settings: Mapping[str, object] = field(default_factory=dict)
    data: DataSource | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    deployment: Deployment | None = field(default=None, metadata=omitted())
    sweep: tuple[SweepPoint, ...] = field(default=(), metadata=omitted())

    def __repr__(self) -> str:
        """Method, status, exchanges, and a line for each disparity of the first clients."""
        return summary_of(self).text

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        return summary_of(self).html

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
    def all_rows(self) -> ClientResult:
        """All clients' rows together, as if they were one client's."""
        rows = [client.rows for client in self.clients.values()]
        total = RowCounts(sum(r.train for r in rows), sum(r.test for r in rows))
        return ClientResult(total, self.overall.train, self.overall.test)

    @property
    def name_of_all(self) -> str:
        """The name of all rows together: one that no client has."""
        name = "all rows"
        while name in self.clients:
            name += " together"
        return name

    def training_disparities(self) -> Iterator[tuple[ClientId | None, Disparity]]:
        """Every disparity on training rows with its client, None for all rows together."""
        for name, client in self.clients.items():
            for entry in client.train.disparities:
                yield name, entry
        for entry in self.overall.train.disparities:
            yield None, entry
