"""What is said of clients whose rows do not support their budgets."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fcfl.rules import with_label
from fcfl.server.constraints import Row
from fcfl.training.margins import Margins

MOST_TOLD = 8  # sentences of one kind, or clients in one
MOST_SINGLY = 2  # clients with too few rows that have a sentence each


def too_few_rows(margins: Margins, confidence: float) -> tuple[str, ...]:
    """Sentences on rows that do not support a budget, the fewest first; one for many clients."""
    needed = margins.short_of_rows(margins.deviations_for(confidence))
    rows = margins.problem.constraints.rows
    found: dict[tuple[str | None, str], tuple[Row, float]] = {}
    order: NDArray[np.intp] = np.argsort(-needed, kind="stable")
    for index in order:
        row = rows[index]
        if needed[index] > 1.0:
            found.setdefault((row.client, row.attribute), (row, float(needed[index])))
    own = [entry for entry in found.values() if entry[0].client is not None]
    if len({row.client for row, _ in own}) <= MOST_SINGLY:
        return tuple(_sentence(row, times, confidence) for row, times in found.values())
    together = [entry for entry in found.values() if entry[0].client is None]
    return (
        _of_several(own, confidence),
        *(_sentence(row, times, confidence) for row, times in together),
    )


def _of_several(found: Sequence[tuple[Row, float]], confidence: float) -> str:
    """One sentence on all clients with too few rows, the fewest first."""
    first = found[0][0]
    is_one = len({_compared(row) for row, _ in found}) == 1
    clients = len({row.client for row, _ in found})
    listed = [
        f"{times:.2g}{' times as many' if row is first else ''} at {row.client!r}"
        f"{'' if is_one else f' ({row.attribute})'}"
        for row, times in found[:MOST_TOLD]
    ]
    more = f" and less at {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    what = f"{_rows_of(first)} for {confidence:g} confidence in a budget of {first.budget:g}"
    return (
        f"{clients} clients have too few rows"
        f"{what if is_one else f' for {confidence:g} confidence in their budgets'}: it would take "
        f"about {', '.join(listed)}{more}. They have the largest margin there is. More rows help, "
        "or larger budgets, or comparing all rows together (`--scope global`)."
    )


def _compared(row: Row) -> tuple[object, ...]:
    return row.kind, row.attribute, frozenset((row.group_a, row.group_b)), row.budget


def _rows_of(row: Row) -> str:
    kind = with_label(row.kind)  # type: ignore[arg-type]
    return f"{kind} of {row.attribute} {row.group_a!r} and {row.group_b!r}"


def briefly(sentences: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The sentences, or where they are many, how many there are of ``what`` and the first."""
    if len(sentences) <= MOST_TOLD:
        return sentences
    return (f"{len(sentences)} {what}. The first: {sentences[0]}",)


def _sentence(row: Row, times: float, confidence: float) -> str:
    who = "All clients together have" if row.client is None else f"Client {row.client!r} has"
    way_out = "" if row.client is None else ", or comparing all rows together (`--scope global`)"
    return (
        f"{who} too few rows{_rows_of(row)} for {confidence:g} confidence in a budget of "
        f"{row.budget:g}: it would take about {times:.2g} times as many. It has the largest margin "
        f"there is. More rows help, or a larger budget{way_out}."
    )
