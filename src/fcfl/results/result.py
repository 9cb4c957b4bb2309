"""The dataclasses of ``result.json``, which stores the result of a run or an audit.

Keys of the file are field names, except that `Result.overall` is stored as ``global``.
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
    """Number of training rows and held-out rows of a client."""

    train: int
    test: int

    def of(self, part: PartName) -> int:
        """Return the number of rows of one part."""
        return self.train if part == "train" else self.test


@dataclass(frozen=True)
class ClientResult:
    """The result of one client, or of all clients' rows together."""

    rows: RowCounts
    train: Part
    test: Part

    def part(self, name: PartName) -> Part:
        """Return the result on training rows or on held-out rows."""
        return self.train if name == "train" else self.test


@dataclass(frozen=True)
class WorstClient:
    """The worst-served client; all fields are None if losses and labels are unknown."""

    name: ClientId | None
    train_loss: float | None
    test_accuracy: float | None


# --- one run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationCounts:
    """Number of evaluations by each client, by requested quantity."""

    value: int = 0
    gradient: int = 0
    curvature: int = 0


@dataclass(frozen=True)
class Exchanges:
    """Number of exchanges with all clients, by phase of the run."""

    total: int = 0
    by_phase: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, by_phase: Mapping[str, int]) -> "Exchanges":
        """Return the exchanges of the given phases with their total."""
        return cls(sum(by_phase.values()), dict(by_phase))

    def plus(self, other: "Exchanges") -> "Exchanges":
        """Add exchanges phase by phase."""
        return Exchanges.of(Counter(self.by_phase) + Counter(other.by_phase))


@dataclass(frozen=True, kw_only=True)
class SelectionLine:
    """Held-out losses of one candidate setting: of the worst client, and the mean."""

    l2: float
    objective: Objective
    worst_client: ClientId
    worst_loss: float
    mean_loss: float
    standard_error_of_difference: float


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The chosen ``l2`` and ``objective``, with the losses of all candidates."""

    l2: float
    objective: Objective
    chosen: SelectionLine | None = None
    table: tuple[SelectionLine, ...] = ()
    sentence: str


@dataclass(frozen=True)
class Share:
    """Accuracy and selected share of training rows."""

    accuracy: float
    selected: float


@dataclass(frozen=True)
class PriceStep:
    """Accuracy and selected share of one model of a run: overall, and for each client."""

    accuracy: float
    selected: float
    clients: Mapping[ClientId, Share]

    @classmethod
    def of(cls, clients: Sequence[ClientId], confusion: Matrix) -> "PriceStep":
        """Compute shares from confusion counts, a row (tn, fp, fn, tp) for each client."""
        counts = np.vstack([confusion, confusion.sum(axis=0)])
        n = np.maximum(counts.sum(axis=1), 1e-300)
        accuracy = ((counts[:, 0] + counts[:, 3]) / n).tolist()
        selected = ((counts[:, 1] + counts[:, 3]) / n).tolist()
        shares = dict(zip(clients, map(Share, accuracy, selected), strict=False))
        return cls(accuracy[-1], selected[-1], shares)


@dataclass(frozen=True)
class PriceOfBudgets:
    """Cost of budgets and of margins, as accuracy on training rows.

    ``lost`` is the total accuracy lost. If the decision threshold P is not one half, wrong
    decisions have weight 2 (1 - P) for rows with label 1 and 2 P for rows with label 0. Without
    these weights, selecting nobody would appear cheap.
    """

    without_budgets: PriceStep
    with_budgets: PriceStep
    with_margins: PriceStep
    lost: float


@dataclass(frozen=True)
class MarginSummary:
    """The confidence of margins, and the clients with too few rows for it.

    ``cut_to`` is the confidence reached within the limit on accuracy, None if it equals the
    requested ``confidence``. ``rows_short`` is the required number of rows of each such client,
    as a multiple of its rows; None if no number of rows suffices.
    """

    confidence: float
    cut_to: float | None
    rows_short: Mapping[ClientId, float | None]

    @classmethod
    def of(
        cls, confidence: float, reached: float, names: Sequence[ClientId], times: Vector
    ) -> "MarginSummary":
        """Keep each client's largest factor in ``times`` if above 1, in descending order."""
        needed: dict[ClientId, float] = {}
        for name, factor in zip(names, times.tolist(), strict=True):
            if factor > 1.0:
                needed[name] = max(needed.get(name, 0.0), round(factor, 2))
        ordered = sorted(needed.items(), key=lambda item: -item[1])
        short = {name: factor if math.isfinite(factor) else None for name, factor in ordered}
        return cls(confidence, reached if reached < confidence else None, short)


@dataclass(frozen=True)
class PoolingSummary:
    """Clients whose budgets apply to estimates pooled over clients, and outliers.

    ``spread`` is the standard deviation of each comparison between clients. ``weights`` are the
    smallest weights of each client's own rows in its estimates. ``own_rows_decide`` are the clients
    with enough rows for all their comparisons. Of the other clients, ``exceed_on_own_rows`` exceed
    a budget on their own training rows. ``odd`` are the outliers among clients.
    """

    spread: Mapping[str, float]
    weights: Mapping[ClientId, float]
    own_rows_decide: tuple[ClientId, ...]
    exceed_on_own_rows: tuple[ClientId, ...]
    odd: tuple[ClientId, ...]


@dataclass(frozen=True)
class Start:
    """A starting point of training, and the clients' training losses at the end of its training."""

    start: str
    worst_loss: float | None
    mean_loss: float | None


# A model with a recall of at least one fourth selects none of 20 rows with a label with probability
# below .01 (.75 ** 20 = .003).
MIN_LABELLED = 20  # fewest rows with the label
FEW, FEW_SHARE = 5.0, 0.1  # largest degenerate count, and its share of the rows with the label
MAX_DEGENERATE = 3  # clients named in a sentence


def degenerate_side(
    selected: float, positives: float, n_rows: float, noise: float = 0.0
) -> Whom | None:
    """Return whether a model selects nearly nobody or nearly everybody, None if neither.

    1. "nobody": at least 20 rows have label 1, and the number of selected rows is at most 5 or at
       most a tenth of the rows with label 1.
    2. "everybody": the same condition with label 0 and the rows that are not selected.

    If counts have errors up to ``noise``, the conditions must hold for all counts within them.
    """

    def is_side(decided: float, labelled: float) -> bool:
        return labelled >= MIN_LABELLED and decided <= max(FEW, FEW_SHARE * labelled)

    if is_side(selected + noise, positives - noise):
        return "nobody"
    return "everybody" if is_side(n_rows - selected + noise, n_rows - positives - noise) else None


@dataclass(frozen=True)
class DegenerateRows:
    """Counts of training rows of which nearly none or nearly all are selected.

    ``client`` is None for the rows of all clients together.
    """

    client: ClientId | None
    whom: Whom
    rows: int
    positives: int
    selected: int


@dataclass(frozen=True)
class Degenerate:
    """A model that selects nearly nobody or nearly everybody: it meets any budget but is useless.

    ``threshold`` is the decision threshold of training. At ``advised_threshold`` the same scores
    select ``would_select`` of these rows, about as many as have label 1. Both are None if the
    search found no such threshold.
    """

    rows: tuple[DegenerateRows, ...]
    threshold: float
    advised_threshold: float | None = None
    would_select: int | None = None

    @property
    def positives(self) -> int:
        """Number of these rows with label 1."""
        return sum(one.positives for one in self.rows)

    @property
    def headline(self) -> str:
        """Describe the failure as a clause without counts."""
        sides = dict.fromkeys(one.whom for one in self.rows)
        return f"the model selects nearly {' or nearly '.join(sides)}"

    @property
    def counts(self) -> str:
        """The counts of the first clients, as a sentence."""
        listed = [
            f"{one.selected:,} of {one.rows:,} training rows at "
            f"{'all clients together' if one.client is None else one.client} "
            f"({one.positives:,} have the label)"
            for one in self.rows
        ]
        return f"Selected: {first_of(listed, MAX_DEGENERATE)}."

    @property
    def in_python(self) -> str:
        """The text of a warning in Python."""
        headline = f"{self.headline[0].upper()}{self.headline[1:]}"
        return f"{headline}. {self.counts} {self.way_out('threshold=')}"

    def way_out(self, option: str) -> str:
        """Return advice; ``option`` is the prefix of a threshold, such as ``threshold=``."""
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
    """Options and statement of an audit, and the sentences of failures at its gate."""

    confidence: float
    simultaneous: Simultaneous
    min_group_rows: float | None
    statement: str
    fail_on: FailOn | None = None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSource:
    """Name of the table, and checksums of its rows and of the policy."""

    table: str
    sha256: str
    policy_sha256: str | None = None


@dataclass(frozen=True)
class PrivacyLoss:
    """Differential privacy of one client's reports with respect to one row."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Privacy:
    """Privacy loss of each client, and the released values that it does not cover."""

    clients: Mapping[ClientId, PrivacyLoss]
    neighbours: str
    not_covered: tuple[str, ...]


@dataclass(frozen=True)
class SiteDeployment:
    """Limits and traffic of one site: messages, bytes each way, slowest response in seconds."""

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
    """Traffic of a deployed run, in total and by site."""

    budgets_met: bool
    bytes_to_sites: int
    bytes_from_sites: int
    sites: Mapping[ClientId, SiteDeployment]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute a result."""
    packages = ("numpy", "scipy", "pandas")
    python = platform.python_version()
    return {"fcfl": __version__, "python": python} | {name: version(name) for name in packages}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``result.json``.

    ``settings`` are the run's options by name. Methods with multipliers set ``prices``, most
    expensive budget first, and ``worst_clients``, the clients with positive weights in the loss.
    ``sweep`` is set only in the folder of a sweep.

    Rows with a probability of at least ``threshold`` are selected; it is None for an audit.
    ``thresholds`` are set if decisions depend on client and group. ``degenerate`` is set if the
    model selects nearly nobody or nearly everybody.

    ``exceeded`` maps the names of exceeded constraints to the excess on training rows: budgets of
    clients with enough rows, estimates over all clients for other clients, and limits on rate
    shifts.
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
        """Return the same content as an HTML table, for notebooks."""
        from .summary import as_html

        return as_html(self)

    def replace(self, **changes: Any) -> "Result":
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    @property
    def chosen_threshold(self) -> float | None:
        """The decision threshold, None if it is one half or unknown."""
        return None if self.threshold == HALF else self.threshold

    @property
    def n_rounds(self) -> int:
        """Total number of rounds."""
        return sum(self.rounds.values())

    @property
    def judged_part(self) -> PartName:
        """The part that verdicts refer to: held-out rows if there are any, else training rows."""
        return "test" if any(who.rows.test for who in self.clients.values()) else "train"

    @property
    def name_of_all(self) -> str:
        """The label of all rows together, different from all client names."""
        name = "all rows"
        while name in self.clients:
            name += " together"
        return name

    @property
    def everybody(self) -> Mapping[str, ClientResult]:
        """All clients, followed by all rows together if there are several clients."""
        together = {self.name_of_all: self.overall} if len(self.clients) > 1 else {}
        return {**self.clients, **together}

    def training_disparities(self) -> Iterator[tuple[ClientId | None, Disparity]]:
        """Yield (client, disparity) of training rows; the client is None for all rows together."""
        for name, client in (*self.clients.items(), (None, self.overall)):
            for entry in client.train.disparities:
                yield name, entry


def objective_name(setting: str | float | None) -> Objective | None:
    """Return the objective over clients; an infinite temperature is the mean."""
    if setting is None or setting in ("max", "mean"):
        return setting  # type: ignore[return-value]
    return "mean" if math.isinf(float(setting)) else float(setting)


def objective_setting(objective: Objective) -> float | Literal["max"]:
    """Return the objective as a temperature, or "max"."""
    return math.inf if objective == "mean" else objective
