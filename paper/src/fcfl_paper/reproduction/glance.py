"""All items at a glance: beside the authors' figures, and over random splits."""

import math
from collections.abc import Iterator, Sequence

from .item_result import CaseResult, ItemResult, Published, Row
from .result_tables import NOTHING, TextTable, number, sampling_deviation, share, spread

OURS = ("sqp", "sqp-mean")
_ROUNDING = 1e-9


def glance(items: Sequence[ItemResult]) -> list[TextTable]:
    """The worst client beside the authors' figures, then shares within budget over splits."""
    beside = tuple(_beside(items))
    splits = tuple(_splits(items))
    tables = []
    if beside:
        headings: tuple[str, ...] = (
            "item", "theirs, worst client", "authors' options here", "sqp", "sqp no worse, ± 1 sd",
            "theirs on test rows", "sqp on training rows",
        )  # fmt: skip
        caption = "original split: the worst client's test accuracy, and whose budgets are met"
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


def _beside(items: Sequence[ItemResult]) -> Iterator[tuple[str, ...]]:
    for item in items:
        for case in item.cases:
            given = next((given for given in case.given if given.accuracy), None)
            rows = {row.line: row for row in item.rows_of(case.name, "original")}
            ours = next((rows[name] for name in OURS if name in rows), None)
            if given is not None and ours is not None:
                name = f"{item.name}, {case.name}"
                yield name, *_beside_cells(case, given, ours, rows.get("two-stage"))


def _beside_cells(
    case: CaseResult, given: Published, ours: Row, two_stage: Row | None
) -> tuple[str, ...]:
    worst = given.worst_client
    theirs, people = given.accuracy[worst], ours.runs[0].clients[worst].rows
    found = ours.clients[worst].accuracy
    least = theirs - sampling_deviation(theirs, people) - _ROUNDING
    met = ours.share_met_in_training
    return (
        number(theirs),
        NOTHING if two_stage is None else spread(two_stage.clients[worst].accuracy, "original"),
        spread(found, "original"),
        "yes" if found.mean is not None and found.mean >= least else "no",
        _describe_published(case, given),
        "no budget" if met is None else f"met in {share(met, ours.n_runs)}",
    )


def _describe_published(case: CaseResult, given: Published) -> str:
    exceeded = case.exceeded_by(given)
    if exceeded is None:
        return "no budget"
    return f"exceeded: {', '.join(exceeded)}" if exceeded else "within"


def _splits(items: Sequence[ItemResult]) -> Iterator[tuple[str, ...]]:
    for item in items:
        for case in item.cases:
            rows = {row.line: row for row in item.rows_of(case.name, "resplits")}
            baselines = [row for row in rows.values() if row.kind == "baseline"]
            if case.budget is None or "sqp" not in rows or not baselines:
                continue
            best = max(baselines, key=_rank)
            shown = [rows["sqp"], rows.get("sqp-tenth"), rows.get("two-stage"), best]
            shares = [_within(row) for row in shown]
            yield (
                f"{item.name}, {case.name}",
                *shares[:-1],
                f"{best.label} {shares[-1]}",
                *(_worst(row) for row in shown),
            )


def _rank(row: Row) -> tuple[float, float]:
    within, accuracy = row.share_within["all"], row.worst_accuracy.mean
    return (-math.inf if within is None else within, -math.inf if accuracy is None else accuracy)


def _within(row: Row | None) -> str:
    return NOTHING if row is None else share(row.share_within["all"], row.n_runs)


def _worst(row: Row | None) -> str:
    return NOTHING if row is None else spread(row.worst_accuracy, "resplits")
