"""An item of the paper as a TOML file: what it shows, its cases, and the figures it is held to."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import fcfl
from fcfl._checks import check_choice, did_you_mean
from fcfl.errors import DataError

from .lines import LINES

Protocol = Literal["original", "resplits", "partitions", "splits", "starts"]
Figure = Literal["dots", "series", "front", "plane", "clients"]

FIGURES = ("dots", "series", "front", "plane", "clients")
PROTOCOLS: dict[str, str] = {
    "original": "the original split of Adult; seeds are those of the start and of the folds",
    "resplits": "each client's rows pooled and split again at random, 67/33, one seed a split",
    "partitions": "rows dealt to clients and split at random, one seed a partition",
    "splits": "each client's rows split at random, 67/33, one seed a split",
    "starts": "no rows",
}


@dataclass(frozen=True)
class Case:
    """One setting: rows, budget and metric; and what others found there, on test rows.

    ``options`` are settings of every run, ``of_line`` those of the runs of one line. ``given`` has
    figures by source: ``label`` and, each optional, ``accuracy``, ``disparity`` by client and
    numbers by name. ``lines`` are those of the item unless the case has its own. ``settled_as``
    names an earlier case whose cross-validated l2 and objective are kept, as in a sweep.
    """

    name: str
    options: Mapping[str, Any]
    lines: tuple[str, ...]
    of_line: Mapping[str, Mapping[str, Any]]
    given: tuple[Mapping[str, Any], ...]
    settled_as: str | None = None

    @property
    def budget(self) -> float | Mapping[str, float] | None:
        """The budget all lines are held to; None where there is none, or it is relative."""
        found: float | Mapping[str, float] | None = self.options.get("budget")
        return found


@dataclass(frozen=True)
class Item:
    """A table or figure: its cases under one or several protocols.

    ``chosen`` says how settings were chosen, ``paper`` what the paper says, ``limits`` hold for the
    largest local and the global disparity where a later paper's figures are aimed at.
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
    package = Path(fcfl.__file__).parent
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
    for key in table:
        if key not in known:
            raise DataError(f"`{key}` in {str(path)!r} is no setting of an item.")
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
    options = {k.replace("-", "_"): _tuple(v) for k, v in table.get("options", {}).items()}
    of_line = {
        name: {k.replace("-", "_"): _tuple(v) for k, v in found.items()}
        for name, found in table.get("of-line", {}).items()
    }
    own = _lines(path, table["lines"]) if "lines" in table else lines
    return Case(
        table["name"], options, own, of_line, tuple(table.get("given", ())), table.get("settled-as")
    )


def _lines(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in LINES:
            raise DataError(
                f"There is no line {name!r} in {str(path)!r}. {did_you_mean(name, LINES)}"
            )
    return tuple(names)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
