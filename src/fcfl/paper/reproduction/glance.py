"""All items at a glance: beside the authors' figures, and over random splits."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .page_tables import (
    NOTHING,
    Item,
    Row,
    TextTable,
    number,
    rows_of,
    sampling_deviation,
    share,
    spread,
)

OURS = ("sqp", "sqp-mean")
_NEARLY = 1e-9


def glance(items: Sequence[Item]) -> list[TextTable]:
    """The worst client beside the authors' figures, then shares within budget over splits."""
    beside = tuple(_beside(items))
    splits = tuple(_splits(items))
    tables = []
    if beside:
        headings: tuple[str, ...] = (
            "item", "theirs, worst client", "authors' options here", "sqp", "sqp no worse, ± 1 sd",
            "theirs on test rows", "sqp on training rows",
        )  # fmt: skip
        caption = "original split: the worst client's test accuracy, and whose budgets hold"
        tables.append(TextTable(caption, headings, beside))
    if splits:
        headings = (
            "item", "sqp within", "sqp, a tenth", "two-stage", "best baseline",
            "worst client: sqp", "a tenth", "two-stage", "best baseline",
        )  # fmt: skip
        caption = (
            "random re-splits: how often all held-out disparities are within budget, and the "
            "worst client's accuracy"
        )
        tables.append(TextTable(caption, headings, splits))
    return tables


def _beside(items: Sequence[Item]) -> Iterator[tuple[str, ...]]:
    for item in items:
        for case in item["cases"]:
            given = next((g for g in case["given"] if g.get("accuracy")), None)
            rows = {row["line"]: row for row in rows_of(item, case["name"], "original")}
            ours = next((rows[name] for name in OURS if name in rows), None)
            if given is None or ours is None:
                continue
            worst = min(given["accuracy"], key=given["accuracy"].__getitem__)
            theirs, people = given["accuracy"][worst], ours["runs"][0]["clients"][worst]["rows"]
            found = ours["clients"][worst]["accuracy"]
            least = theirs - sampling_deviation(theirs, people)
            here = rows.get("two-stage")
            yield (
                f"{item['name']}, {case['name']}",
                number(theirs),
                NOTHING if here is None else spread(here["clients"][worst]["accuracy"], "original"),
                spread(found, "original"),
                "yes" if found["mean"] >= least - _NEARLY else "no",
                _kept(case, given),
                f"met in {share(ours['share_met_in_training'], ours['n_runs'])}"
                if ours["share_met_in_training"] is not None
                else "no budget",
            )


def _kept(case: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    budget, disparity = case["budget"], given.get("disparity")
    if budget is None or not disparity:
        return "no budget"
    bounds = budget if isinstance(budget, Mapping) else dict.fromkeys(disparity, budget)
    broken = [c for c in disparity if disparity[c] > bounds[c]]
    return f"exceeded: {', '.join(broken)}" if broken else "within"


def _splits(items: Sequence[Item]) -> Iterator[tuple[str, ...]]:
    for item in items:
        for case in item["cases"]:
            rows = {row["line"]: row for row in rows_of(item, case["name"], "resplits")}
            baselines = [row for row in rows.values() if row["kind"] == "baseline"]
            if case["budget"] is None or "sqp" not in rows or not baselines:
                continue
            best = max(baselines, key=_rank)
            shown = [rows["sqp"], rows.get("sqp-tenth"), rows.get("two-stage"), best]
            shares = [_within(row) for row in shown]
            yield (
                f"{item['name']}, {case['name']}",
                *shares[:-1],
                f"{best['label']} {shares[-1]}",
                *(_worst(row) for row in shown),
            )


def _rank(row: Row) -> tuple[float, float]:
    within = row["share_within"]["all"]
    return (math.nan if within is None else within, row["worst_accuracy"]["mean"])


def _within(row: Row | None) -> str:
    return NOTHING if row is None else share(row["share_within"]["all"], row["n_runs"])


def _worst(row: Row | None) -> str:
    return NOTHING if row is None else spread(row["worst_accuracy"], "resplits")
