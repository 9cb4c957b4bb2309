"""Which runs an item needs: one for each case, line, protocol and seed, named by its settings."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fcfl import __version__
from fcfl.runs.settings import Experiment

from .items import Case, Item, Protocol
from .lines import LINES, Line

RESPLITS = 20
TEST_SIZE = 0.33  # of a re-split, as in the paper
_NOT_TOLD = ("budget", "relative_budget", "scope")  # to a line that keeps no budgets


@dataclass(frozen=True)
class Scale:
    """How much is run: seeds of the paper's protocol, re-splits, and whether it is only a trial."""

    seeds: int = 5
    splits: int = RESPLITS
    quick: bool = False

    def seeds_of(self, protocol: Protocol, line: Line) -> range:
        """The original rows need one run where nothing is random."""
        if protocol == "resplits":
            return range(self.splits)
        if protocol == "original" and not line.is_random:
            return range(1)
        return range(1) if protocol == "starts" else range(self.seeds)


QUICK = Scale(seeds=1, splits=1, quick=True)


@dataclass(frozen=True)
class Run:
    """One training run; ``settled_by`` is the run whose l2 and objective it takes.

    ``table`` in the settings is the name of a set, not yet a file, so that ``key`` is the same on
    every machine.
    """

    settings: Mapping[str, Any]
    settled_by: "Run | None" = None
    keeps_path: bool = False

    @property
    def key(self) -> str:
        """Names the run: the same settings and the same version have the same key."""
        parent = self.settled_by.key if self.settled_by else None
        told = [__version__, sorted(self.settings.items()), parent, self.keeps_path]
        return hashlib.sha256(json.dumps(told, default=dict).encode()).hexdigest()[:16]

    def experiment(self, table: str) -> Experiment:
        """The settings of the run on a table that is there."""
        return Experiment(**{**self.settings, "table": table})


@dataclass(frozen=True)
class Place:
    """Where a run belongs in its item."""

    case: str
    line: str
    protocol: Protocol
    seed: int


def plan_runs(item: Item, scale: Scale, tables: Mapping[str, str]) -> dict[Place, Run]:
    """Every place of the item and its run; several places may share one.

    ``tables`` names sets that stand in for others, such as a demo for data that are not here.
    """
    plan = {}
    for case, line, protocol, seed in _places(item, scale):
        place = Place(case.name, line, protocol, seed)
        plan[place] = run_of(item, case, place, scale, tables)
    return plan


def _places(item: Item, scale: Scale) -> Iterator[tuple[Case, str, Protocol, int]]:
    for case in item.cases:
        for protocol in item.protocols:
            for line in case.lines:
                for seed in scale.seeds_of(protocol, LINES[line]):
                    yield case, line, protocol, seed


def run_of(item: Item, case: Case, place: Place, scale: Scale, tables: Mapping[str, str]) -> Run:
    """The run at one place."""
    line = LINES[place.line]
    told = {k: v for k, v in case.options.items() if line.keeps_budgets or k not in _NOT_TOLD}
    settings = {**told, **line.options, **case.of_line.get(place.line, {}), "seed": place.seed}
    if line.budget_times != 1.0:
        settings["budget"] = round(line.budget_times * float(settings["budget"]), 6)
    if scale.quick and place.protocol != "starts":
        settings |= line.quick
    parent = None
    if line.settled_by is not None:
        parent = run_of(item, case, replace(place, line=line.settled_by), scale, tables)
    elif case.settled_as is not None and line.is_cross_validated:
        earlier = next(other for other in item.cases if other.name == case.settled_as)
        parent = run_of(item, earlier, replace(place, case=earlier.name), scale, tables)
    table = settings.pop("table", item.table)
    settings |= _rows(tables.get(table, table), place.protocol, settings.get("sensitive", ()))
    return Run(settings, parent, keeps_path=place.protocol == "starts")


def _rows(table: str, protocol: Protocol, sensitive: tuple[str, ...]) -> dict[str, Any]:
    """The table and its columns."""
    if table == "adult" and protocol == "resplits":
        columns = {"client": "client", "label": "income", "test_size": TEST_SIZE}
        return {"table": f"adult-pooled-{sensitive[0]}", **columns}
    if table.startswith("eicu"):
        _, where, label = table.split(":")
        client = "region" if where == "demo" else "hospital"
        return {"table": table, "client": client, "label": label, "test_size": TEST_SIZE}
    return {"table": table}


def settled(run: Run, l2: float, objective: Any) -> Run:
    """The run with its parent's choice; a choice has no run of its own to wait for."""
    return replace(run, settings={**run.settings, "l2": l2, "objective": objective})
