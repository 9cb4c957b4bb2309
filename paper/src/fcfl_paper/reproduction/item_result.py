"""The result file of an item, typed: what tables, readings and figures are made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from fcfl._files import replace_file
from fcfl.errors import DataError
from fcfl.results import OverSeeds
from fcfl_paper.reproduction.json_fields import from_json, omitted, to_json

from .run_record import Path2D

SCHEMA = 1
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
    path: Path2D | None = field(default=None, metadata=omitted())


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
    accuracy: Mapping[str, float] = field(default_factory=dict, metadata=omitted())
    disparity: Mapping[str, float] = field(default_factory=dict, metadata=omitted())
    sd: Mapping[str, float] = field(default_factory=dict, metadata=omitted())
    numbers: Mapping[str, float] = field(default_factory=dict, metadata=omitted())

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
    optimum: float | None = field(default=None, metadata=omitted())

    def exceeded_by(self, published: Published) -> list[str] | None:
        """Clients whose published disparity exceeds their budget; None where there is no budget."""
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
    front: Path2D | None = field(default=None, metadata=omitted())

    def rows_of(self, case: str, protocol: str) -> list[Row]:
        """The rows of one case under one protocol that have a run."""
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
    """The result as JSON, one line for each row of its tables."""
    content = to_json(result)
    rows = content.pop("rows")
    return f'{_dumped(content)[:-1]},"rows":[\n' + ",\n".join(map(_dumped, rows)) + "\n]}\n"


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_item_result(result: ItemResult, folder: Path) -> None:
    """Write ``NAME.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{result.name}.json", item_text(result).encode())


def read_item_results(folder: Path) -> list[ItemResult]:
    """All result files in a folder, by name."""
    return [read_item_result(path) for path in sorted(folder.glob("*.json"))]


def read_item_result(path: Path) -> ItemResult:
    """One result file."""
    try:
        return from_json(ItemResult, json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise DataError(f"{str(path)!r} is not the result file of an item: {error}.") from None
