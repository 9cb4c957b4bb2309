"""An item of the paper as a TOML file: what it shows, its cases, and published figures."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast

import fcfl_paper
from fcfl._checks import check_choice, check_keys, did_you_mean
from fcfl.errors import DataError
from fcfl_paper.reproduction.json_fields import from_json

from .item_result import Budget, Published
from .lines import LINES, Settings

Protocol = Literal["original", "resplits", "partitions", "splits", "starts"]
Figure = Literal["dots", "series", "front", "plane", "clients"]

FIGURES = ("dots", "series", "front", "plane", "clients")
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
    """``experiments`` here, else that of the source tree or of the installed package."""
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
    """The named items, each once, in the order of their files; ``all`` is all of them."""
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
    check_choice("figure", table["figure"], FIGURES)
    for protocol in table["protocols"]:
        check_choice("protocols", protocol, PROTOCOLS)
    lines = _lines(path, table.get("lines", ()))
    return Item(
        path.stem,
        table["title"],
        table["of"],
        table["paper"],
        table["chosen"],
        table["figure"],
        table["table"],
        tuple(table["protocols"]),
        tuple(_case(path, case, lines) for case in table["case"]),
        table.get("limits", {}),
    )


def _case(path: Path, table: Mapping[str, Any], lines: tuple[str, ...]) -> Case:
    options = _settings(table.get("options", {}))
    of_line = {name: _settings(found) for name, found in table.get("of-line", {}).items()}
    own = _lines(path, table["lines"]) if "lines" in table else lines
    given = tuple(from_json(Published, each) for each in table.get("given", ()))
    return Case(table["name"], options, own, of_line, given, table.get("tuned-as"))


def _lines(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in LINES:
            raise DataError(
                f"There is no line {name!r} in {str(path)!r}. {did_you_mean(name, LINES)}"
            )
    return tuple(names)


def _settings(table: Settings) -> Settings:
    return {
        key.replace("-", "_"): tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
    }
