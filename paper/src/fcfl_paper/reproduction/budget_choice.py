r"""The loosest budget that respects an item's limits, judged by the training rows alone.

A limit counts as respected when the hard disparity on training rows plus one standard deviation of
a held-out one, :math:`\sqrt{\sum_g p_g (1 - p_g) (2/n_g + 1/m_g)}`, is within it; :math:`n_g` and
:math:`m_g` are numbers of training and held-out rows, known before any held-out row is used.
Clients that hold out few rows of a group cannot show a disparity either way and are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .aggregate import LARGE, row_of
from .item_result import ItemResult
from .items import Item
from .plan import Place, Run
from .run_record import PartRecord, Record, RunRecord

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
