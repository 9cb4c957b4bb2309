"""What is kept of a run, and the result file of an item: what tables and figures are made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from fcfl._files import replace_file
from fcfl.errors import DataError
from fcfl.results import OverSeeds, RowCounts

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
    overall: AllRowsRecord
    path: Path2D | None = None


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that raised an error; it is not written to disk, so it is tried again next time."""

    message: str


Record: TypeAlias = RunRecord | FailedRun


SCHEMA = 1
# What an item, a run or a publication may lack, and its value then; it is not written.
_MAY_LACK: dict[str, object] = dict.fromkeys(("path", "front", "optimum"))
_MAY_LACK |= {key: {} for key in ("accuracy", "disparity", "sd", "numbers")}
Budget: TypeAlias = float | Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """One client in one run: held-out figures, and its smooth disparity on training rows."""

    rows: int
    accuracy: float | None
    loss: float | None
    disparity: float | None
    train_smooth: float | None
    budget: float | None
    smallest_group: int | None


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run: its held-out figures, and whether it is within the budgets."""

    seed: int
    status: str
    rounds: int
    seconds: float
    l2: float | None
    objective: float | str | None
    accuracy: float | None
    global_disparity: float | None
    worst_accuracy: float | None
    worst_loss: float | None
    largest_disparity: float | None
    largest_large_disparity: float | None
    clients: Mapping[str, ClientFigures]
    within: Mapping[str, bool]
    within_all: bool | None
    met_in_training: bool | None
    train_loss: float | None
    path: Path2D | None = None


@dataclass(frozen=True, slots=True)
class ClientSpread:
    """One client over all runs of a row."""

    accuracy: OverSeeds
    disparity: OverSeeds
    train_smooth: OverSeeds
    budget: OverSeeds


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a method under one case and one protocol, over its runs."""

    case: str
    protocol: str
    line: str
    label: str
    kind: str
    n_runs: int
    failures: tuple[str, ...]
    rounds: float | None
    seconds: float | None
    accuracy: OverSeeds
    worst_accuracy: OverSeeds
    worst_loss: OverSeeds
    largest_disparity: OverSeeds
    global_disparity: OverSeeds
    largest_large_disparity: OverSeeds
    clients: Mapping[str, ClientSpread]
    share_within: Mapping[str, float | None]
    share_met_in_training: float | None
    runs: tuple[RunFigures, ...]

    @property
    def short_label(self) -> str:
        """The label without the family name."""
        return self.label.removeprefix("FCFL, ")


@dataclass(frozen=True, slots=True)
class Published:
    """Figures that others published, by client, or by name in ``numbers``."""

    label: str
    accuracy: Mapping[str, float] = field(default_factory=dict)
    disparity: Mapping[str, float] = field(default_factory=dict)
    sd: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def worst_client(self) -> str:
        """The client with the lowest accuracy."""
        return min(self.accuracy, key=self.accuracy.__getitem__)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One setting of an item; ``optimum`` is that of the synthetic problem."""

    name: str
    budget: Budget
    given: tuple[Published, ...]
    optimum: float | None = None

    def exceeded_by(self, published: Published) -> list[str] | None:
        """Return clients whose published disparity exceeds their budget; None without one."""
        if self.budget is None or not published.disparity:
            return None
        if isinstance(self.budget, Mapping):
            budgets = self.budget
        else:
            budgets = dict.fromkeys(published.disparity, self.budget)
        return [name for name, found in published.disparity.items() if found > budgets[name]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: seeds of the paper's protocol, re-splits, and whether it is only a trial."""

    seeds: int = 5
    splits: int = 20
    quick: bool = False


@dataclass(frozen=True, slots=True)
class ItemResult:
    """Everything an item's result file holds."""

    schema: int
    name: str
    title: str
    of: str
    paper: str
    chosen: str
    figure: str
    limits: Mapping[str, float]
    scale: Scale
    tables: tuple[str, ...]
    protocols: Mapping[str, str]
    cases: tuple[CaseResult, ...]
    rows: tuple[Row, ...]
    front: Path2D | None = None

    def rows_of(self, case: str, protocol: str) -> list[Row]:
        """Return the rows of one case under one protocol that have a run."""
        return [row for row in self.finished_rows if (row.case, row.protocol) == (case, protocol)]

    @property
    def finished_rows(self) -> list[Row]:
        """The rows that have a run."""
        return [row for row in self.rows if row.n_runs]

    @property
    def clients(self) -> list[str]:
        """Names of all clients, the paper's small one first."""
        names = dict.fromkeys(client for row in self.rows for client in row.clients)
        return sorted(names, key=lambda name: (name != "phd", name))


def item_text(result: ItemResult) -> str:
    """Return the result as JSON, one line for each row of its tables."""
    content = _without_unknown(msgspec.to_builtins(result))
    rows = content.pop("rows")
    return f'{_dumped(content)[:-1]},"rows":[\n' + ",\n".join(map(_dumped, rows)) + "\n]}\n"


def _without_unknown(value: Any) -> Any:
    """Leave out what an item or a publication does not have."""
    if isinstance(value, dict):
        kept = {name: _without_unknown(one) for name, one in value.items()}
        return {n: one for n, one in kept.items() if n not in _MAY_LACK or one != _MAY_LACK[n]}
    return [_without_unknown(one) for one in value] if isinstance(value, list | tuple) else value


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_item_result(result: ItemResult, folder: Path) -> None:
    """Write ``NAME.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{result.name}.json", item_text(result).encode())


def read_item_results(folder: Path) -> list[ItemResult]:
    """Return all result files in a folder, by name."""
    return [read_item_result(path) for path in sorted(folder.glob("*.json"))]


def read_item_result(path: Path) -> ItemResult:
    """Read one result file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ItemResult)
    except msgspec.DecodeError as error:
        raise DataError(f"{str(path)!r} is not the result file of an item: {error}.") from None
