"""What of a result can be judged: all rows together, and clients with enough people.

At a client with 18 people one decision moves a rate by a tenth: it says nothing of a model. Such a
client keeps its budget and its verdict, but does not decide how models compare.
"""

from statistics import median

from fcfl.rules import LEAST_ROWS

from .client_result import ClientResult, Disparity, PartName
from .judged import Judged
from .result import Result

ENOUGH = int(LEAST_ROWS[0])  # people in every group that is compared


def judge(result: Result) -> Judged:
    """What can be said of a result beside others; without any client of enough people, of all."""
    part = result.judged_part
    enough = [name for name, who in result.clients.items() if has_enough(who, part)]
    clients = enough or list(result.clients)
    parts = [result.clients[name].part(part) for name in clients]
    found = [largest_difference(result.clients[name], part) for name in clients]
    values = [entry.value for entry in found if entry is not None and entry.value is not None]
    accuracies = [one.accuracy for one in parts if one.accuracy is not None]
    together = largest_difference(result.all_rows, part)
    entries = [entry for one in parts for entry in one.disparities if entry.value is not None]
    limited = [entry for entry in entries if entry.budget is not None]
    return Judged(
        all_rows=None if together is None else together.value,
        low=None if together is None else together.low,
        high=None if together is None else together.high,
        accuracy=result.all_rows.part(part).accuracy,
        selected=_share_selected(result.all_rows, part),
        median=median(values) if values else None,
        largest=max(values, default=None),
        lowest_accuracy=min(accuracies, default=None),
        kept=sum(_is_kept(entry) for entry in limited),
        n_budgets=len(limited),
        clients=tuple(clients),
        too_small=tuple(name for name in result.clients if name not in clients),
    )


def _share_selected(client: ClientResult, part: PartName) -> float | None:
    selected, rows = client.part(part).selected, client.rows.of(part)
    return None if selected is None or not rows else selected / rows


def has_enough(client: ClientResult, part: PartName) -> bool:
    """Whether two groups or more are compared, each with enough people."""
    entries = client.part(part).disparities
    sizes = [group.rows for entry in entries for group in entry.groups if group.is_compared]
    measured = all(entry.value is not None for entry in entries)
    return bool(sizes) and measured and min(sizes) >= ENOUGH


def largest_difference(client: ClientResult, part: PartName) -> Disparity | None:
    """The largest difference of group rates among a client's rules; ratios are not comparable."""
    found = [e for e in client.part(part).disparities if e.rule != "ratio" and e.value is not None]
    return max(found, key=lambda entry: entry.value or 0.0, default=None)


def _is_kept(entry: Disparity) -> bool:
    gap = (entry.value or 0.0) - (entry.budget or 0.0)
    return (-gap if entry.rule == "ratio" else gap) <= 0
