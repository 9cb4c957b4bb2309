"""An item's records over all runs: one row for each case, protocol and line."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fcfl.data.synthetic import constrained_optimum
from fcfl.runs.compared_runs import over_seeds

from .items import LINES, PROTOCOLS, Case, Item, Place, Protocol, Run
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

LARGE = 100  # held-out rows of each group from which a client's disparity is more than chance
TOLERANCE = 1e-3  # a smooth disparity above its budget by less counts as met on training rows


def aggregate(
    item: Item,
    plan: Mapping[Place, Run],
    records: Mapping[str, Record],
    scale: Scale,
    substitutes: Mapping[str, str],
) -> ItemResult:
    """Everything an item's result file holds; tables and figures read only that."""
    cases = {case.name: case for case in item.cases}
    is_synthetic = item.table == "synthetic"
    rows = []
    for (case, protocol, line), places in _grouped(plan).items():
        found = [(place.seed, records[plan[place].key]) for place in places]
        rows.append(row_of(cases[case], protocol, line, found))
    names = {str(case.options.get("table", item.table)) for case in item.cases}
    return ItemResult(
        schema=SCHEMA,
        name=item.name,
        title=item.title,
        of=item.of,
        paper=item.paper,
        chosen=item.chosen,
        figure=item.figure,
        limits=item.limits,
        scale=scale,
        tables=tuple(sorted({substitutes.get(name, name) for name in names})),
        protocols={name: PROTOCOLS[name] for name in item.protocols},
        cases=tuple(_case_result(case, is_synthetic) for case in item.cases),
        rows=tuple(rows),
        front=pareto_front() if is_synthetic else None,
    )


def _case_result(case: Case, is_synthetic: bool) -> CaseResult:
    budget, optimum = case.budget, None
    if is_synthetic and isinstance(budget, float):
        optimum = constrained_optimum(budget)
    return CaseResult(case.name, budget, case.given, optimum)


def pareto_front(n_points: int = 60) -> Path2D:
    """The synthetic problem's front: both objectives between the two minimisers."""
    largest = 1 - math.exp(-4.0)  # the second objective where the first is zero
    bounds = [largest * i / n_points for i in range(n_points + 1)]
    return tuple((round(constrained_optimum(bound), 4), round(bound, 4)) for bound in bounds)


def _grouped(plan: Mapping[Place, Run]) -> dict[tuple[str, Protocol, str], list[Place]]:
    groups: dict[tuple[str, Protocol, str], list[Place]] = {}
    for place in plan:
        groups.setdefault((place.case, place.protocol, place.line), []).append(place)
    return groups


def row_of(case: Case, protocol: str, line: str, found: Sequence[tuple[int, Record]]) -> Row:
    """One line of a table: means over runs with intervals, and how often budgets were met."""
    what = LINES[line]
    runs = [run_figures(case, s, record) for s, record in found if isinstance(record, RunRecord)]
    clients = list(dict.fromkeys(client for run in runs for client in run.clients))
    shares = {client: _share(run.within.get(client) for run in runs) for client in clients}
    return Row(
        case=case.name,
        protocol=protocol,
        line=line,
        label=what.label,
        kind=what.kind,
        n_runs=len(runs),
        failures=tuple(record.message for _, record in found if isinstance(record, FailedRun)),
        rounds=over_seeds([run.rounds for run in runs]).mean,
        seconds=over_seeds([run.seconds for run in runs]).mean,
        accuracy=over_seeds([run.accuracy for run in runs]),
        worst_accuracy=over_seeds([run.worst_accuracy for run in runs]),
        worst_loss=over_seeds([run.worst_loss for run in runs]),
        largest_disparity=over_seeds([run.largest_disparity for run in runs]),
        global_disparity=over_seeds([run.global_disparity for run in runs]),
        largest_large_disparity=over_seeds([run.largest_large_disparity for run in runs]),
        clients={
            name: _client_spread([run.clients[name] for run in runs if name in run.clients])
            for name in clients
        },
        share_within={**shares, "all": _share(run.within_all for run in runs)},
        share_met_in_training=_share(run.met_in_training for run in runs),
        runs=tuple(runs),
    )


def _client_spread(found: Sequence[ClientFigures]) -> ClientSpread:
    return ClientSpread(
        accuracy=over_seeds([client.accuracy for client in found]),
        disparity=over_seeds([client.disparity for client in found]),
        train_smooth=over_seeds([client.train_smooth for client in found]),
        budget=over_seeds([client.budget for client in found]),
    )


def run_figures(case: Case, seed: int, record: RunRecord) -> RunFigures:
    """One run: its held-out figures, and whether it is within the budgets it is judged by."""
    clients = {name: _client_figures(case, name, who) for name, who in record.clients.items()}
    everyone = list(clients.values())
    large = [client for client in everyone if (client.smallest_group or 0) >= LARGE]
    within = {
        name: client.disparity <= client.budget
        for name, client in clients.items()
        if client.budget is not None and client.disparity is not None
    }
    met = [
        client.train_smooth <= client.budget + TOLERANCE
        for client in everyone
        if client.budget is not None and client.train_smooth is not None
    ]
    return RunFigures(
        seed=seed,
        status=record.status,
        rounds=record.rounds,
        seconds=record.seconds,
        l2=record.l2,
        objective=record.objective,
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
        path=record.path,
    )


def _client_figures(case: Case, name: str, who: ClientRecord) -> ClientFigures:
    return ClientFigures(
        rows=who.rows.test,
        accuracy=who.test.accuracy,
        loss=who.test.loss,
        disparity=who.test.disparity,
        train_smooth=who.train.smooth,
        budget=budget_of(case, name, who),
        smallest_group=who.test.smallest_group,
    )


def budget_of(case: Case, client: str, who: ClientRecord) -> float | None:
    """The case's budget, else the one the run was given, where budgets are relative."""
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
    protocol = item.protocols[0]
    seeds = sorted({place.seed for place in plan if place.line == LINE})
    found: list[tuple[int, Record]] = []
    for seed in seeds:
        places = [Place(case.name, LINE, protocol, seed) for case in item.cases]
        runs = [records[plan[place].key] for place in places if place in plan]
        finished = [record for record in runs if isinstance(record, RunRecord)]
        if finished:
            found.append((seed, choose(finished, item.limits)))
    row = row_of(item.cases[0], protocol, LINE, found)
    chosen = replace(row, line=CHOSEN, label="FCFL, sqp, budget chosen")
    return replace(result, rows=(*result.rows, chosen))


def choose(records: Sequence[RunRecord], limits: Mapping[str, float]) -> RunRecord:
    """The first of the records, loosest budget first, within the limits; else the last."""
    return next((record for record in records if is_within(record, limits)), records[-1])


def is_within(record: RunRecord, limits: Mapping[str, float]) -> bool:
    """Whether local and global disparities predicted from training rows are within the limits."""
    large = [who for who in record.clients.values() if (who.test.smallest_group or 0) >= LARGE]
    local = all(predicted_disparity(who.train, who.test) <= limits["local"] for who in large)
    overall = predicted_disparity(record.overall.train, record.overall.test)
    return local and overall <= limits["global"]


def predicted_disparity(train: PartRecord, test: PartRecord) -> float:
    """Hard disparity on training rows plus one standard deviation of a held-out one."""
    variance = 0.0
    for (rows, selected), (rows_out, _) in zip(train.groups, test.groups, strict=True):
        rate = selected / rows
        variance += rate * (1 - rate) * (2 / rows + 1 / rows_out)
    return (train.disparity or 0.0) + math.sqrt(variance)
