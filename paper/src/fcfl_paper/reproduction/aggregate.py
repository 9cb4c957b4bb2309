"""An item's records over all runs: one row for each case, protocol and line."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from fcfl.results import OverSeeds
from fcfl.runs.many_runs import over_seeds
from fcfl.runs.synthetic import constrained_optimum

from .items import LINES, PROTOCOLS, Case, Item, Place, Run
from .records import (
    SCHEMA,
    CaseResult,
    ClientFigures,
    ClientRecord,
    ClientSpread,
    FailedRun,
    ItemResult,
    PartRecord,
    Path2D,
    Record,
    Row,
    RunFigures,
    RunRecord,
    Scale,
)

_OF_ITEM = ("name", "title", "of", "paper", "chosen", "figure", "limits")
_OF_RECORD = ("status", "rounds", "seconds", "l2", "objective", "path")
_OF_RUNS = (
    "accuracy", "worst_accuracy", "worst_loss", "largest_disparity", "global_disparity",
    "largest_large_disparity",
)  # fmt: skip
LARGE = 100  # held-out rows of each group from which a client's disparity is more than chance
TOLERANCE = 1e-3  # a smooth disparity above its budget by less counts as met on training rows


def aggregate(
    item: Item,
    plan: Mapping[Place, Run],
    records: Mapping[str, Record],
    scale: Scale,
    substitutes: Mapping[str, str],
) -> ItemResult:
    """Return everything an item's result file holds; tables and figures read only that."""
    cases = {case.name: case for case in item.cases}
    grouped: dict[tuple[str, str, str], list[tuple[int, Record]]] = {}
    for place, run in plan.items():
        found = grouped.setdefault((place.case, place.protocol, place.line), [])
        found.append((place.seed, records[run.key]))
    names = {str(case.options.get("table", item.table)) for case in item.cases}
    is_synthetic = item.table == "synthetic"
    same: dict[str, Any] = {name: getattr(item, name) for name in _OF_ITEM}
    return ItemResult(
        schema=SCHEMA,
        scale=scale,
        tables=tuple(sorted({substitutes.get(name, name) for name in names})),
        protocols={name: PROTOCOLS[name] for name in item.protocols},
        cases=tuple(_case_result(case, is_synthetic) for case in item.cases),
        rows=tuple(row_of(cases[at[0]], *at[1:], found) for at, found in grouped.items()),
        front=pareto_front() if is_synthetic else None,
        **same,
    )


def _case_result(case: Case, is_synthetic: bool) -> CaseResult:
    known = is_synthetic and isinstance(case.budget, float)
    optimum = constrained_optimum(cast(float, case.budget)) if known else None
    return CaseResult(case.name, case.budget, case.given, optimum)


def pareto_front(n_points: int = 60) -> Path2D:
    """Return the synthetic problem's front: both objectives between the two minimisers."""
    largest = 1 - math.exp(-4.0)  # the second objective where the first is zero
    bounds = [largest * i / n_points for i in range(n_points + 1)]
    return tuple((round(constrained_optimum(bound), 4), round(bound, 4)) for bound in bounds)


def row_of(case: Case, protocol: str, line: str, found: Sequence[tuple[int, Record]]) -> Row:
    """Return one line of a table: means over runs, intervals, how often budgets were met."""
    what = LINES[line]
    runs = [run_figures(case, s, record) for s, record in found if isinstance(record, RunRecord)]
    clients = list(dict.fromkeys(client for run in runs for client in run.clients))
    shares = {client: _share(run.within.get(client) for run in runs) for client in clients}
    spreads: dict[str, Any] = {name: _spread(runs, name) for name in _OF_RUNS}
    return Row(
        case=case.name,
        protocol=protocol,
        line=line,
        label=what.label,
        kind=what.kind,
        n_runs=len(runs),
        failures=tuple(record.message for _, record in found if isinstance(record, FailedRun)),
        rounds=_spread(runs, "rounds").mean,
        seconds=_spread(runs, "seconds").mean,
        clients={name: _client_spread(name, runs) for name in clients},
        share_within={**shares, "all": _share(run.within_all for run in runs)},
        share_met_in_training=_share(run.met_in_training for run in runs),
        runs=tuple(runs),
        **spreads,
    )


def _spread(found: Sequence[object], name: str) -> OverSeeds:
    return over_seeds([getattr(one, name) for one in found])


def _client_spread(client: str, runs: Sequence[RunFigures]) -> ClientSpread:
    found = [run.clients[client] for run in runs if client in run.clients]
    return ClientSpread(*(_spread(found, field.name) for field in fields(ClientSpread)))


def run_figures(case: Case, seed: int, record: RunRecord) -> RunFigures:
    """Return a run's held-out figures, and whether it is within the budgets it is judged by."""
    clients = {name: _client_figures(case, name, who) for name, who in record.clients.items()}
    everyone = list(clients.values())
    large = [client for client in everyone if (client.smallest_group or 0) >= LARGE]
    budgets = {name: who.budget for name, who in clients.items() if who.budget is not None}
    held_out = {name: clients[name].disparity for name in budgets}
    within = {n: found <= budgets[n] for n, found in held_out.items() if found is not None}
    trained = {name: clients[name].train_smooth for name in budgets}
    met = [v <= budgets[n] + TOLERANCE for n, v in trained.items() if v is not None]
    same: dict[str, Any] = {name: getattr(record, name) for name in _OF_RECORD}
    return RunFigures(
        seed=seed,
        accuracy=record.overall.test.accuracy,
        global_disparity=record.overall.test.disparity,
        worst_accuracy=_extreme(min, (client.accuracy for client in everyone)),
        worst_loss=_extreme(max, (client.loss for client in everyone)),
        largest_disparity=_extreme(max, (client.disparity for client in everyone)),
        largest_large_disparity=_extreme(max, (client.disparity for client in large)),
        clients=clients,
        within=within,
        within_all=all(within.values()) if within else None,
        met_in_training=all(met) if met else None,
        train_loss=_extreme(max, (who.train.loss for who in record.clients.values())),
        **same,
    )


def _client_figures(case: Case, name: str, who: ClientRecord) -> ClientFigures:
    test, budget = who.test, budget_of(case, name, who)
    known = (who.rows.test, test.accuracy, test.loss, test.disparity)
    return ClientFigures(*known, who.train.smooth, budget, test.smallest_group)


def budget_of(case: Case, client: str, who: ClientRecord) -> float | None:
    """Return the case's budget, else the one the run was given, where budgets are relative."""
    budget = case.budget
    if isinstance(budget, Mapping):
        return budget.get(client)
    return who.test.budget if budget is None else budget


def _extreme(of: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(of(known)) if known else None


def _share(found: Iterable[bool | None]) -> float | None:
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


CHOSEN = "sqp-chosen"
LINE = "sqp-mean"  # the line whose budgets are compared


def with_chosen_budget(
    item: Item, plan: Mapping[Place, Run], records: Mapping[str, Record], result: ItemResult
) -> ItemResult:
    """Add the line that uses, for every seed, the budget its training rows allow."""
    if not item.limits:
        return result
    protocol, found = item.protocols[0], []
    for seed in sorted({place.seed for place in plan if place.line == LINE}):
        places = [Place(case.name, LINE, protocol, seed) for case in item.cases]
        runs = [records[plan[place].key] for place in places if place in plan]
        if finished := [record for record in runs if isinstance(record, RunRecord)]:
            found.append((seed, choose(finished, item.limits)))
    row = row_of(item.cases[0], protocol, LINE, found)
    chosen = replace(row, line=CHOSEN, label="FCFL, sqp, budget chosen")
    return replace(result, rows=(*result.rows, chosen))


def choose(records: Sequence[RunRecord], limits: Mapping[str, float]) -> RunRecord:
    """Return the first of the records, loosest budget first, within the limits; else the last."""
    return next((record for record in records if is_within(record, limits)), records[-1])


def is_within(record: RunRecord, limits: Mapping[str, float]) -> bool:
    """Return whether disparities predicted from training rows are within the limits."""
    large = [who for who in record.clients.values() if (who.test.smallest_group or 0) >= LARGE]
    local = all(predicted_disparity(who.train, who.test) <= limits["local"] for who in large)
    overall = predicted_disparity(record.overall.train, record.overall.test)
    return local and overall <= limits["global"]


def predicted_disparity(train: PartRecord, test: PartRecord) -> float:
    """Return hard disparity on training rows plus one standard deviation of a held-out one."""
    variance = 0.0
    for (rows, selected), (rows_out, _) in zip(train.groups, test.groups, strict=True):
        rate = selected / rows
        variance += rate * (1 - rate) * (2 / rows + 1 / rows_out)
    return (train.disparity or 0.0) + math.sqrt(variance)
