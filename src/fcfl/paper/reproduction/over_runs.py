"""An item's records added up: one row for each case, protocol and line, as plain data."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fcfl.data.synthetic import constrained_optimum
from fcfl.runs.method_comparison import over_seeds

from .items import PROTOCOLS, Case, Item, Protocol
from .lines import LINES
from .plan import Place, Run, Scale

Record = Mapping[str, Any]
LARGE = 100  # held-out rows of each group from which a client's disparity says something
TOLERANCE = 1e-3  # a smooth disparity above its budget by less counts as met on training rows


def summarise(
    item: Item,
    plan: Mapping[Place, Run],
    records: Mapping[str, Record],
    scale: Scale,
    tables: Mapping[str, str],
) -> dict[str, Any]:
    """Everything an item's result file says; tables and figures read only that."""
    cases = {case.name: case for case in item.cases}
    is_synthetic = item.table == "synthetic"
    rows = []
    for (case, protocol, line), places in _grouped(plan).items():
        found = [(place.seed, records[plan[place].key]) for place in places]
        rows.append(row_of(cases[case], protocol, line, found))
    return {
        "schema": 1,
        "name": item.name,
        "title": item.title,
        "of": item.of,
        "paper": item.paper,
        "chosen": item.chosen,
        "figure": item.figure,
        "limits": dict(item.limits),
        "scale": asdict(scale),
        "tables": sorted({tables.get(t, t) for t in _tables(item)}),
        "protocols": {name: PROTOCOLS[name] for name in item.protocols},
        "cases": [
            {"name": case.name, "budget": _plain(case.budget), "given": list(case.given)}
            | ({"optimum": constrained_optimum(case.options["budget"])} if is_synthetic else {})
            for case in item.cases
        ],
        "rows": rows,
        **({"front": pareto_front()} if is_synthetic else {}),
    }


def pareto_front(n_points: int = 60) -> list[list[float]]:
    """The synthetic problem's front: both objectives between the two minimisers."""
    most = 1 - math.exp(-4.0)  # the second objective where the first is zero
    bounds = [most * i / n_points for i in range(n_points + 1)]
    return [[round(constrained_optimum(bound), 4), round(bound, 4)] for bound in bounds]


def _tables(item: Item) -> Iterator[str]:
    for case in item.cases:
        yield case.options.get("table", item.table)


def _grouped(plan: Mapping[Place, Run]) -> dict[tuple[str, Protocol, str], list[Place]]:
    groups: dict[tuple[str, Protocol, str], list[Place]] = {}
    for place in plan:
        groups.setdefault((place.case, place.protocol, place.line), []).append(place)
    return groups


def row_of(
    case: Case, protocol: str, line: str, found: Sequence[tuple[int, Record]]
) -> dict[str, Any]:
    """One line of a table: means over runs with intervals, and how often budgets held."""
    what = LINES[line]
    done = [(seed, record) for seed, record in found if record["status"] != "failed"]
    runs = [run_figures(case, seed, record) for seed, record in done]
    failures = [record["message"] for _, record in found if record["status"] == "failed"]
    clients = list(dict.fromkeys(c for run in runs for c in run["clients"]))
    return {
        "case": case.name,
        "protocol": protocol,
        "line": line,
        "label": what.label,
        "kind": what.kind,
        "n_runs": len(runs),
        "failures": failures,
        "rounds": over_seeds([run["rounds"] for run in runs]).mean,
        "seconds": over_seeds([run["seconds"] for run in runs]).mean,
        **{
            key: asdict(over_seeds([run[key] for run in runs]))
            for key in (
                "accuracy", "worst_accuracy", "worst_loss", "largest_disparity",
                "global_disparity", "largest_large_disparity",
            )
        },
        "clients": {
            c: {
                key: asdict(
                    over_seeds([run["clients"][c][key] for run in runs if c in run["clients"]])
                )
                for key in ("accuracy", "disparity", "train_smooth", "budget")
            }
            for c in clients
        },
        "share_within": {
            **{c: _share(run["within"].get(c) for run in runs) for c in clients},
            "all": _share(run["within_all"] for run in runs),
        },
        "share_met_in_training": _share(run["met_in_training"] for run in runs),
        "runs": runs,
    }  # fmt: skip


def run_figures(case: Case, seed: int, record: Record) -> dict[str, Any]:
    """One run: its held-out figures, and whether it kept the budgets it is held to."""
    clients = {}
    within: dict[str, bool | None] = {}
    met: list[bool] = []
    for name, who in record["clients"].items():
        train, test = who["train"], who["test"]
        budget = budget_of(case, name, test)
        clients[name] = {
            "rows": who["rows"]["test"],
            "accuracy": test["accuracy"],
            "loss": test["loss"],
            "disparity": test["disparity"],
            "train_smooth": train["smooth"],
            "budget": budget,
            "smallest_group": min((rows for rows, _ in test["groups"]), default=None),
        }
        if budget is not None and test["disparity"] is not None:
            within[name] = test["disparity"] <= budget
        if budget is not None and train["smooth"] is not None:
            met.append(train["smooth"] <= budget + TOLERANCE)
    everyone = list(clients.values())
    large = [c for c in everyone if (c["smallest_group"] or 0) >= LARGE]
    return {
        "seed": seed,
        "status": record["status"],
        "rounds": record["rounds"],
        "seconds": record["seconds"],
        "l2": record["l2"],
        "objective": record["objective"],
        "accuracy": record["global"]["test"]["accuracy"],
        "global_disparity": record["global"]["test"]["disparity"],
        "worst_accuracy": _extreme(min, everyone, "accuracy"),
        "worst_loss": _extreme(max, everyone, "loss"),
        "largest_disparity": _extreme(max, everyone, "disparity"),
        "largest_large_disparity": _extreme(max, large, "disparity"),
        "clients": clients,
        "within": within,
        "within_all": all(within.values()) if within else None,
        "met_in_training": all(met) if met else None,
        "train_loss": _extreme(max, [w["train"] for w in record["clients"].values()], "loss"),
        **({"path": record["path"]} if "path" in record else {}),
    }


def budget_of(case: Case, client: str, part: Mapping[str, Any]) -> float | None:
    """The case's budget, else the one the run was given, where budgets are relative."""
    budget = case.budget
    if isinstance(budget, Mapping):
        return budget.get(client)
    found: float | None = part["budget"] if budget is None else budget
    return found


def _extreme(of: Any, clients: Sequence[Mapping[str, Any]], key: str) -> float | None:
    known = [client[key] for client in clients if client[key] is not None]
    return float(of(known)) if known else None


def _share(found: Any) -> float | None:
    known = [bool(value) for value in found if value is not None]
    return sum(known) / len(known) if known else None


def _plain(budget: float | Mapping[str, float] | None) -> Any:
    return dict(budget) if isinstance(budget, Mapping) else budget
