r"""The loosest budget that keeps an item's limits, by the training rows alone.

A limit counts as kept when the hard disparity on training rows plus one standard deviation of a
held-out one, :math:`\sum_g p_g (1 - p_g) (2/n_g + 1/m_g)` squared, is within it; :math:`n_g` and
:math:`m_g` are numbers of training and held-out rows, which are known before any is looked at.
Clients that hold out few rows of a group could show nothing either way and are left out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .items import Item
from .over_runs import LARGE, row_of
from .plan import Place, Run

CHOSEN = "sqp-chosen"
LINE = "sqp-mean"  # the line whose budgets are chosen between


def add_chosen(
    item: Item, plan: Mapping[Place, Run], records: Mapping[str, Any], content: dict[str, Any]
) -> None:
    """Add the line that takes, for every seed, the budget its training rows allow."""
    if not item.limits:
        return
    protocol = item.protocols[0]
    seeds = sorted({place.seed for place in plan if place.line == LINE})
    found = []
    for seed in seeds:
        places = [Place(case.name, LINE, protocol, seed) for case in item.cases]
        runs = [records[plan[place].key] for place in places if place in plan]
        done = [record for record in runs if record["status"] != "failed"]
        if done:
            found.append((seed, choose(done, item.limits)))
    row = row_of(item.cases[0], protocol, LINE, found)
    row |= {"line": CHOSEN, "label": "FCFL, sqp, budget chosen"}
    content["rows"].append(row)


def choose(records: Sequence[Mapping[str, Any]], limits: Mapping[str, float]) -> Mapping[str, Any]:
    """The first of the records, the loosest budget first, that keeps the limits; else the last."""
    return next((record for record in records if keeps(record, limits)), records[-1])


def keeps(record: Mapping[str, Any], limits: Mapping[str, float]) -> bool:
    """Whether training rows promise local and global disparities within the limits."""
    clients = [who for who in record["clients"].values() if _is_large(who)]
    local = all(promised(who) <= limits["local"] for who in clients)
    return local and promised(record["global"]) <= limits["global"]


def promised(who: Mapping[str, Any]) -> float:
    """Hard disparity on training rows and one standard deviation of a held-out one."""
    held_out = [rows for rows, _ in who["test"]["groups"]]
    variance = 0.0
    for (rows, selected), rows_out in zip(who["train"]["groups"], held_out, strict=True):
        rate = selected / rows
        variance += rate * (1 - rate) * (2 / rows + 1 / rows_out)
    return float(who["train"]["disparity"]) + math.sqrt(variance)


def _is_large(who: Mapping[str, Any]) -> bool:
    return bool(min(rows for rows, _ in who["test"]["groups"]) >= LARGE)
