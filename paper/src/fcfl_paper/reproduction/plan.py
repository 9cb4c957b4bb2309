"""Which runs an item needs: one for each case, line, protocol and seed, named by its settings."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from fcfl import __version__

from .item_result import Scale
from .items import Case, Item, Protocol
from .lines import LINES, Line, Settings

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
        """The run with what cross-validation chose in another one."""
        return replace(self, settings={**self.settings, "l2": l2, "objective": objective})


@dataclass(frozen=True)
class Place:
    """Where a run belongs in its item."""

    case: str
    line: str
    protocol: Protocol
    seed: int


def plan_runs(item: Item, scale: Scale, substitutes: Mapping[str, str]) -> dict[Place, Run]:
    """Every place of the item and its run; several places may share one.

    ``substitutes`` names the sets used instead of others, such as a demo for credentialed data.
    """
    plan = {}
    for case, line, protocol, seed in _places(item, scale):
        place = Place(case.name, line, protocol, seed)
        plan[place] = run_of(item, case, place, scale, substitutes)
    return plan


def _places(item: Item, scale: Scale) -> Iterator[tuple[Case, str, Protocol, int]]:
    for case in item.cases:
        for protocol in item.protocols:
            for line in case.lines:
                for seed in _seeds(scale, protocol, LINES[line]):
                    yield case, line, protocol, seed


def _seeds(scale: Scale, protocol: Protocol, line: Line) -> range:
    """One run is enough where nothing is random."""
    if protocol == "resplits":
        return range(scale.splits)
    if protocol == "starts" or (protocol == "original" and not line.is_random):
        return range(1)
    return range(scale.seeds)


def run_of(
    item: Item, case: Case, place: Place, scale: Scale, substitutes: Mapping[str, str]
) -> Run:
    """The run at one place."""
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
    """The table and its columns."""
    if table == "adult" and protocol == "resplits":
        columns = {"client": "client", "label": "income", "test_size": TEST_SIZE}
        return {"table": f"adult-pooled-{sensitive[0]}", **columns}
    if table.startswith("eicu"):
        _, source, label = table.split(":")
        client = "region" if source == "demo" else "hospital"
        return {"table": table, "client": client, "label": label, "test_size": TEST_SIZE}
    return {"table": table}
