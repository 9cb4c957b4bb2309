"""Which setting cross-validation chooses, from what clients say about rows they held out.

1. The L2 weight is the one with the lowest row-weighted mean held-out loss under the objective
   nearest the mean. The weight to try last is where a parabola in its logarithm, through that
   objective's losses near their lowest, has its minimum.
2. The objective nearest the mean is chosen unless one nearer the maximum lowers the worst client's
   held-out loss by more than the standard error of the difference, on the same rows. A step
   further towards the maximum needs the same again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fcfl._types import ClientId
from fcfl.client.counts import Counts
from fcfl.client.questions import HeldOut
from fcfl.results import Selection, SelectionLine
from fcfl.results.result import Objective, objective_name

N_FOLDS = 5
REACH = 2  # steps of the L2 grid to either side of the lowest loss that the parabola goes through

Candidate = tuple[float, float | Literal["max", "mean"]]


def decide(
    candidates: Sequence[Candidate],
    totals: Mapping[ClientId, HeldOut],
    *,
    between: bool = True,
) -> Selection:
    """Choose the L2 weight under the objective nearest the mean, then the objective.

    The weight may lie ``between`` those tried, or is the best of them.
    """
    table = _table(candidates, totals)
    best = min(table, key=lambda line: line.worst_loss)
    mean = max(table, key=lambda line: _temperature(line.objective)).objective
    curve = sorted((line for line in table if line.objective == mean), key=lambda line: -line.l2)
    weights, losses = [line.l2 for line in curve], [line.mean_loss for line in curve]
    l2 = lowest_between(weights, losses) if between else weights[int(np.argmin(losses))]
    nearest = chosen = _line_at(table, mean, l2)
    drop, error = 0.0, 0.0
    for objective in sorted({line.objective for line in table} - {mean}, key=_temperature)[::-1]:
        other = _line_at(table, objective, l2)
        error_there = _paired_error(table, totals, chosen, other)
        if chosen.worst_loss - other.worst_loss > error_there:
            drop, error = chosen.worst_loss - other.worst_loss, error_there
            chosen = other
    l2 = l2 if chosen is nearest else chosen.l2
    return Selection(
        l2=l2,
        objective=chosen.objective,
        folds=N_FOLDS,
        best=best,
        chosen=chosen,
        near_best=sum(line.near_best for line in table),
        spread=max(line.worst_loss for line in table) - best.worst_loss,
        table=tuple(table),
        sentence=_sentence(l2, chosen, len({line.objective for line in table}), drop, error),
    )


def _line_at(table: Sequence[SelectionLine], objective: Objective, l2: float) -> SelectionLine:
    """Return the objective's line with the L2 weight nearest to this one."""
    lines = [line for line in table if line.objective == objective]
    return min(lines, key=lambda line: abs(np.log(max(line.l2, 1e-12) / max(l2, 1e-12))))


def _paired_error(
    table: Sequence[SelectionLine],
    totals: Mapping[ClientId, HeldOut],
    one: SelectionLine,
    other: SelectionLine,
) -> float:
    """Standard error of the difference of their worst clients' losses, on the same rows.

    Where the worst client is not the same one, the larger of both clients' errors counts.
    """
    i, j = table.index(one), table.index(other)
    return max(totals[who].standard_error(i, j) for who in (one.worst_client, other.worst_client))


def _table(
    candidates: Sequence[Candidate], totals: Mapping[ClientId, HeldOut]
) -> list[SelectionLine]:
    """A line for each candidate: how the worst-served client does, and all rows."""
    means = np.array([sums.means for sums in totals.values()])
    rows = np.array([sums.n_rows for sums in totals.values()])
    mean_losses = rows @ means / rows.sum()
    names, worst = list(totals), np.argmax(means, axis=0)
    worst_losses = means.max(axis=0)
    best = int(np.argmin(worst_losses))
    table = []
    for i, (l2, objective) in enumerate(candidates):
        who = names[worst[i]]
        error = totals[who].standard_error(i, best)
        table.append(
            SelectionLine(
                l2=l2,
                objective=named(objective),
                worst_client=who,
                worst_loss=float(worst_losses[i]),
                worst_loss_standard_error=totals[who].standard_error(i),
                mean_loss=float(mean_losses[i]),
                standard_error_of_difference=error,
                near_best=bool(worst_losses[i] - worst_losses[best] <= error),
            )
        )
    return table


def named(objective: float | str) -> Any:
    """An objective as a result says it."""
    return objective_name(objective)


def lowest_between(weights: list[float], losses: list[float]) -> float:
    """The L2 weight, to two digits, where a parabola in its logarithm is lowest.

    It is drawn through the losses near the lowest one, and never left; where it does not open
    upwards, the lowest loss's own weight is taken.
    """
    lowest = int(np.argmin(losses))
    near = slice(max(lowest - REACH, 0), lowest + REACH + 1)
    if len(losses[near]) < 3:
        return weights[lowest]
    logs = np.log(weights[near])
    bend, slope, _ = np.polyfit(logs, losses[near], 2)
    if bend <= 0:
        return weights[lowest]
    return float(f"{np.exp(np.clip(-slope / (2 * bend), logs.min(), logs.max())):.2g}")


def _sentence(
    l2: float, chosen: SelectionLine, n_objectives: int, drop: float, error: float
) -> str:
    """What was chosen, and whether a more min-max objective lowers the worst client's loss."""
    nearby = "" if l2 == chosen.l2 else f" at l2 {chosen.l2:g}"
    said = (
        f"Chose l2 {l2:g} and objective {_shown(chosen.objective)} by {N_FOLDS}-fold "
        f"cross-validation: held-out loss {chosen.mean_loss:.4f} over all rows, "
        f"{chosen.worst_loss:.4f} ± {chosen.worst_loss_standard_error:.4f} for the worst client "
        f"({chosen.worst_client}){nearby}."
    )
    if drop > 0:
        return f"{said} This objective lowers the worst client's loss by {drop:.4f} ± {error:.4f}."
    if n_objectives > 1:
        said += (
            " No objective nearer the maximum lowers the worst client's loss by more than its "
            "standard error."
        )
    return said


def checked_forecast(
    selection: Selection | None, train: Mapping[ClientId, Counts], test: Mapping[ClientId, Counts]
) -> tuple[str, ...]:
    """A sentence where the loss that was expected of the worst client did not come true.

    The standard error is that of both samples: the rows it was expected from, and held-out ones.
    """
    expected = None if selection is None else selection.chosen
    if expected is None or not test[expected.worst_client].n_rows:
        return ()
    who, counts = expected.worst_client, test[expected.worst_client]
    found = counts.loss_sum / counts.n_rows
    more = float(np.sqrt(1.0 + train[who].n_rows / counts.n_rows))
    error = more * expected.worst_loss_standard_error
    if abs(found - expected.worst_loss) <= 2.0 * error:
        return ()
    direction = "higher" if found > expected.worst_loss else "lower"
    return (
        f"Cross-validation had expected a loss of {expected.worst_loss:.4f} ± {error:.4f} for "
        f"{who} on as many new rows; on its held-out rows it is {found:.4f}, {direction} than "
        "chance explains.",
    )


def _temperature(objective: float | str) -> float:
    """Of a smooth maximum: 0 is the maximum itself."""
    return {"max": 0.0, "mean": np.inf}[objective] if isinstance(objective, str) else objective


def _shown(objective: float | str) -> str:
    return objective if isinstance(objective, str) else f"{objective:g}"
