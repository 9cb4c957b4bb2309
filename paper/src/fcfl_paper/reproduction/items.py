"""The items of the paper as TOML files: methods compared, cases, and the runs they need."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

import fcfl_paper
from fcfl import __version__
from fcfl._checks import check_choice, check_keys, did_you_mean
from fcfl.errors import DataError
from fcfl.methods.registry import METHODS

from .records import Budget, Published, Scale

Kind = Literal["theirs", "ours", "baseline"]
Settings: TypeAlias = Mapping[str, object]  # of a run, as the experiment takes them


@dataclass(frozen=True)
class Line:
    """One line of a table, as ``lines.toml`` describes it."""

    label: str
    kind: Kind
    options: Settings
    is_random: bool = False
    enforces_budgets: bool = False
    tuned_by: str | None = None
    budget_times: float = 1.0
    quick: Settings = field(default_factory=dict)

    @property
    def is_cross_validated(self) -> bool:
        """Whether l2 and objective are both left to cross-validation."""
        chosen = {"l2", "objective"} & self.options.keys()
        chooses = METHODS[str(self.options["method"])].traits.is_cross_validated
        return chooses and not chosen and self.tuned_by is None


def _settings(table: Settings) -> Settings:
    return {
        key.replace("-", "_"): tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
    }


def _line(options: Settings, quick: Settings | None = None, **others: Any) -> Line:
    return Line(options=_settings(options), quick=_settings(quick or {}), **others)


LINES: dict[str, Line] = {
    name: _line(**table)
    for name, table in tomllib.loads(
        (Path(__file__).parent / "lines.toml").read_text(encoding="utf-8")
    ).items()
}
Protocol = Literal["original", "resplits", "partitions", "splits", "starts"]
Figure = Literal["dots", "series", "front", "plane", "clients"]

PROTOCOLS: dict[str, str] = {
    "original": "the original split of Adult; seeds are those of the start and of the folds",
    "resplits": "each client's rows pooled and split again at random, 67/33, one seed per split",
    "partitions": "rows assigned to clients and split at random, one seed per partition",
    "splits": "each client's rows split at random, 67/33, one seed per split",
    "starts": "no rows",
}


@dataclass(frozen=True)
class Case:
    """One setting: rows, budget and metric, and what others published for it, on test rows.

    ``options`` are settings of every run, ``of_line`` those of the runs of one line. ``lines`` are
    those of the item unless the case has its own. ``tuned_as`` names an earlier case whose
    cross-validated l2 and objective are used, as in a sweep.
    """

    name: str
    options: Settings
    lines: tuple[str, ...]
    of_line: Mapping[str, Settings]
    given: tuple[Published, ...]
    tuned_as: str | None = None

    @property
    def budget(self) -> Budget:
        """The budget all lines are judged by; None where there is none, or it is relative."""
        return cast(Budget, self.options.get("budget"))


@dataclass(frozen=True)
class Item:
    """A table or figure: its cases under one or several protocols.

    ``chosen`` says how settings were chosen, ``paper`` what the paper says; ``limits`` on accuracy,
    largest local and global disparity are the target where later papers published one.
    """

    name: str
    title: str
    of: str
    paper: str
    chosen: str
    figure: Figure
    table: str
    protocols: tuple[Protocol, ...]
    cases: tuple[Case, ...]
    limits: Mapping[str, float]


def folder_of_items() -> Path:
    """Return ``experiments`` here, else that of the source tree or of the installed package."""
    package = Path(fcfl_paper.__file__).parent
    places = (Path("experiments"), package.parents[1] / "experiments", package / "experiments")
    found = next((place for place in places if any(place.glob("*.toml"))), None)
    if found is None:
        raise DataError(
            "There is no folder `experiments` here with the items to reproduce. "
            "Run the command in a copy of the source tree."
        )
    return found


def find_items(names: Sequence[str] = ("all",), folder: Path | None = None) -> list[Item]:
    """Return the named items, each once, in the order of their files; ``all`` is all of them."""
    place = folder_of_items() if folder is None else folder
    paths = {path.stem: path for path in sorted(place.glob("*.toml"))}
    for name in names:
        if name != "all" and name not in paths:
            raise ValueError(f"There is no item {name!r}. {did_you_mean(name, [*paths, 'all'])}")
    wanted = paths if "all" in names else {name: paths[name] for name in names}
    return [read_item(path) for path in wanted.values()]


def read_item(path: Path) -> Item:
    """Read and check an item."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"Cannot read the item {str(path)!r}: {error}.") from None
    known = {field.name for field in fields(Item)} - {"name", "cases"} | {"lines", "case"}
    check_keys(table, known, repr(str(path)), DataError)
    check_choice("figure", table["figure"], get_args(Figure))
    for protocol in table["protocols"]:
        check_choice("protocols", protocol, PROTOCOLS)
    lines = _lines(path, table.pop("lines", ()))
    cases = tuple(_case(path, case, lines) for case in table.pop("case"))
    protocols, limits = tuple(table.pop("protocols")), table.pop("limits", {})
    return Item(path.stem, cases=cases, protocols=protocols, limits=limits, **table)


def _case(path: Path, table: Mapping[str, Any], lines: tuple[str, ...]) -> Case:
    options = _settings(table.get("options", {}))
    of_line = {name: _settings(found) for name, found in table.get("of-line", {}).items()}
    own = _lines(path, table["lines"]) if "lines" in table else lines
    given = msgspec.convert(table.get("given", ()), tuple[Published, ...])
    return Case(table["name"], options, own, of_line, given, table.get("tuned-as"))


def _lines(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in LINES:
            raise DataError(
                f"There is no line {name!r} in {str(path)!r}. {did_you_mean(name, LINES)}"
            )
    return tuple(names)


TEST_SIZE = 0.33  # of a re-split, as in the paper
QUICK = Scale(seeds=1, splits=1, quick=True)
_BUDGET_SETTINGS = ("budget", "relative_budget", "scope")


@dataclass(frozen=True)
class Run:
    """One training run; ``tuned_by`` is the run whose l2 and objective it uses.

    ``table`` in the settings is the name of a set, not yet a file, so that ``key`` is the same on
    every machine.
    """

    settings: Settings
    tuned_by: "Run | None" = None
    keeps_path: bool = False

    @property
    def key(self) -> str:
        """Names the run: the same settings and the same version have the same key."""
        parent = self.tuned_by.key if self.tuned_by else None
        content = [__version__, sorted(self.settings.items()), parent, self.keeps_path]
        return hashlib.sha256(json.dumps(content, default=dict).encode()).hexdigest()[:16]

    @property
    def table(self) -> str:
        """Name of the set it reads."""
        return str(self.settings["table"])

    @property
    def budget(self) -> float:
        """The one budget of the run."""
        return cast(float, self.settings["budget"])

    def with_tuning(self, l2: float | None, objective: float | str | None) -> "Run":
        """Return the run with what cross-validation chose in another one."""
        return replace(self, settings={**self.settings, "l2": l2, "objective": objective})


@dataclass(frozen=True)
class Place:
    """Where a run belongs in its item."""

    case: str
    line: str
    protocol: Protocol
    seed: int


def plan_runs(item: Item, scale: Scale, substitutes: Mapping[str, str]) -> dict[Place, Run]:
    """Return every place of the item and its run; several places may share one.

    ``substitutes`` names the sets used instead of others, such as a demo for credentialed data.
    """
    plan = {}
    for case, protocol in product(item.cases, item.protocols):
        for line in case.lines:
            for seed in _seeds(scale, protocol, LINES[line]):
                place = Place(case.name, line, protocol, seed)
                plan[place] = run_of(item, case, place, scale, substitutes)
    return plan


def _seeds(scale: Scale, protocol: Protocol, line: Line) -> range:
    """Return the seeds of a line; one is enough where nothing is random."""
    if protocol == "resplits":
        return range(scale.splits)
    if protocol == "starts" or (protocol == "original" and not line.is_random):
        return range(1)
    return range(scale.seeds)


def run_of(
    item: Item, case: Case, place: Place, scale: Scale, substitutes: Mapping[str, str]
) -> Run:
    """Return the run at one place."""
    line = LINES[place.line]
    options = {
        name: value
        for name, value in case.options.items()
        if line.enforces_budgets or name not in _BUDGET_SETTINGS
    }
    settings = {**options, **line.options, **case.of_line.get(place.line, {}), "seed": place.seed}
    if line.budget_times != 1.0:
        settings["budget"] = round(line.budget_times * cast(float, settings["budget"]), 6)
    if scale.quick and place.protocol != "starts":
        settings |= line.quick
    parent = None
    if line.tuned_by is not None:
        parent = run_of(item, case, replace(place, line=line.tuned_by), scale, substitutes)
    elif case.tuned_as is not None and line.is_cross_validated:
        earlier = next(other for other in item.cases if other.name == case.tuned_as)
        parent = run_of(item, earlier, replace(place, case=earlier.name), scale, substitutes)
    table = str(settings.pop("table", item.table))
    sensitive = cast(tuple[str, ...], settings.get("sensitive", ()))
    settings |= _table_settings(substitutes.get(table, table), place.protocol, sensitive)
    return Run(settings, parent, keeps_path=place.protocol == "starts")


def _table_settings(table: str, protocol: Protocol, sensitive: tuple[str, ...]) -> Settings:
    """Return the table and its columns."""
    if table == "adult" and protocol == "resplits":
        columns = {"client": "client", "label": "income", "test_size": TEST_SIZE}
        return {"table": f"adult-pooled-{sensitive[0]}", **columns}
    if table.startswith("eicu"):
        _, source, label = table.split(":")
        client = "region" if source == "demo" else "hospital"
        return {"table": table, "client": client, "label": label, "test_size": TEST_SIZE}
    return {"table": table}
