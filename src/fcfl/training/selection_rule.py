"""Which setting cross-validation chooses, from what clients say about rows they held out.

A setting is judged by the worst-served client's held-out loss. Each objective is taken at its best
L2 weight; of those not worse than the best by more than 0.4 standard errors of the difference, on
the same rows, those are left out whose decisions exceed the budgets on held-out rows by clearly
more than those of others; of the rest the one with the lowest mean loss is chosen. The L2 weight
to try last is where a parabola in its logarithm, through that objective's losses near their lowest,
has its minimum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Vector
from fcfl.client.counts import Counts
from fcfl.client.questions import HeldOut
from fcfl.results import Selection, SelectionLine
from fcfl.results.result import objective_name
from fcfl.server.constraints import Constraints

N_FOLDS = 5
REACH = 2  # steps of the L2 grid to either side of the lowest loss that the parabola goes through
SLACK = 0.4  # standard errors that the worst client may be behind the best candidate
CLEARLY = 1.0  # in squared standard errors: by how much more others may exceed budgets

Candidate = tuple[float, float | Literal["max", "mean"]]


def budget_excess(
    constraints: Constraints, clients: Sequence[ClientId], totals: Mapping[ClientId, HeldOut]
) -> Vector:
    r"""How far each candidate's decisions exceed the budgets on held-out rows.

    .. math:: \sum_b \max_{j \in b} \left(\frac{(a_j \cdot r - b_j)_+}{s_j}\right)^2, \qquad
              s_j^2 = \sum_g a_{jg}^2 \, r_g (1 - r_g) / n_g

    over blocks b of rows: like a deviance, a difference of one is one standard error.
    """
    n_candidates = len(next(iter(totals.values())).loss_sums)
    if not len(constraints):
        return np.zeros(n_candidates)
    n_rates = constraints.n_columns // len(clients)
    counts = np.zeros((len(clients), n_rates))
    selected = np.zeros((n_candidates, len(clients), n_rates))
    for place, client in enumerate(clients):
        if client in totals:
            counts[place] = totals[client].group_counts
            selected[:, place] = totals[client].selected
    rows = counts.ravel()
    present, has_rows = _of_those_present(constraints, rows, n_rates)
    excess = np.empty(n_candidates)
    for index in range(n_candidates):
        rates = selected[index].ravel() / np.maximum(rows, 1.0)
        shrunk = (selected[index].ravel() + 1.0) / (rows + 2.0)
        noise = shrunk * (1.0 - shrunk) / np.maximum(rows, 1.0)
        variance = np.bincount(
            present.entry_row,
            present.entry_value**2 * noise[present.entry_column],
            minlength=len(present),
        )
        over = np.zeros(len(present))
        over[has_rows] = np.maximum(present.violations(rates)[has_rows], 0.0) ** 2
        over[has_rows] /= variance[has_rows]
        excess[index] = np.maximum.reduceat(over, present.block_starts).sum()
    return excess


def _of_those_present(
    constraints: Constraints, rows: Vector, n_rates: int
) -> tuple[Constraints, NDArray[np.bool_]]:
    """The same rows without rates of no held-out row, and which have both groups then.

    In a rule over all clients the others stand in for a client that held nothing of a group out.
    """
    group = constraints.entry_row * n_rates + constraints.entry_column % n_rates
    share = np.abs(constraints.entry_value)
    n_groups = len(constraints) * n_rates
    whole = np.bincount(group, share, minlength=n_groups)
    there = np.bincount(group, share * (rows[constraints.entry_column] > 0), minlength=n_groups)
    stretch = np.divide(whole, there, out=np.zeros(n_groups), where=there > 0)
    is_there = rows[constraints.entry_column] > 0
    values = constraints.entry_value * is_there * stretch[group]
    is_missing = ((whole > 0) & (there == 0)).reshape(len(constraints), n_rates).any(axis=1)
    return replace(constraints, entry_value=values), ~is_missing


def decide(
    candidates: Sequence[Candidate],
    totals: Mapping[ClientId, HeldOut],
    excess: Vector | None = None,
    *,
    between: bool = True,
) -> Selection:
    """The objective with the lowest mean loss of those near the best; then the L2 weight.

    ``excess`` is that of the budgets on held-out rows, by default the same for all. The weight may
    lie ``between`` those tried, or is the best of them.
    """
    table = _table(candidates, totals, excess)
    best = min(table, key=lambda line: line.worst_loss)
    curve = sorted(_chosen_curve(table), key=lambda line: -line.l2)
    weights, losses = [line.l2 for line in curve], [line.worst_loss for line in curve]
    l2 = lowest_between(weights, losses) if between else weights[int(np.argmin(losses))]
    chosen = min(curve, key=lambda line: abs(np.log(line.l2 / l2)) if l2 else 0.0)
    return Selection(
        l2=l2,
        objective=chosen.objective,
        folds=N_FOLDS,
        best=best,
        chosen=chosen,
        near_best=sum(line.near_best for line in table),
        spread=max(line.worst_loss for line in table) - best.worst_loss,
        table=tuple(table),
        sentence=_sentence(l2, chosen, best, table),
    )


def _table(
    candidates: Sequence[Candidate], totals: Mapping[ClientId, HeldOut], excess: Vector | None
) -> list[SelectionLine]:
    """A line for each candidate: how the worst-served client does, and all of them."""
    means = np.array([sums.means for sums in totals.values()])
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
                mean_loss=float(np.mean(means[:, i])),
                standard_error_of_difference=error,
                budget_excess=0.0 if excess is None else float(excess[i]),
                near_best=bool(worst_losses[i] - worst_losses[best] <= SLACK * error),
            )
        )
    return table


def _chosen_curve(table: Sequence[SelectionLine]) -> list[SelectionLine]:
    """The lines of the objective that is chosen, each objective at its best weight."""
    curves = [
        [line for line in table if line.objective == objective]
        for objective in dict.fromkeys(line.objective for line in table)
    ]
    bests = [min(curve, key=lambda line: line.worst_loss) for curve in curves]
    near = [i for i, line in enumerate(bests) if line.near_best]
    least = min(bests[i].budget_excess or 0.0 for i in near)
    near = [i for i in near if (bests[i].budget_excess or 0.0) <= least + CLEARLY]
    return curves[min(near, key=lambda i: bests[i].mean_loss)]


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
    l2: float, chosen: SelectionLine, best: SelectionLine, table: Sequence[SelectionLine]
) -> str:
    """What was chosen, how flat it was, and whether looking at the worst client bought anything."""
    near = sum(line.near_best for line in table)
    nearby = "" if l2 == chosen.l2 else f" at l2 {chosen.l2:g}"
    said = (
        f"Chose l2 {l2:g} and objective {_shown(chosen.objective)} by "
        f"{N_FOLDS}-fold cross-validation: held-out loss of the worst client "
        f"({chosen.worst_client}) {chosen.worst_loss:.4f} ± "
        f"{chosen.worst_loss_standard_error:.4f}{nearby}; the best is "
        f"{best.worst_loss:.4f}, and {near} of {len(table)} settings are within "
        f"{SLACK:g} standard errors of it."
    )
    nearest_mean = max((line.objective for line in table), key=_temperature)
    at_it = [line.worst_loss for line in table if line.objective == nearest_mean]
    nearer_max = [line.worst_loss for line in table if line.objective != nearest_mean]
    if nearer_max and min(nearer_max) >= min(at_it):
        said += " Weighing the worst client more buys it nothing on held-out rows."
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
