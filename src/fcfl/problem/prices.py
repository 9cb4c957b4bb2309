r"""Shadow prices of budgets, and which budgets to relax where they cannot be met together.

.. math:: \text{price} = -\frac{\partial f^*}{\partial \epsilon}
          = \sum_j \mu_j \frac{\partial b_j}{\partial \epsilon}

with :math:`f^*` the optimum, :math:`\epsilon` the budget, and :math:`\mu_j` and :math:`b_j` the
multipliers and bounds of the rows it occurs in (both signs, all pairs of groups). This holds where
the optimum is differentiable in the budget, and to first order: a budget relaxed by more may stop
being active.
"""

from dataclasses import dataclass

import numpy as np

from fcfl._types import ClientId, Vector
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE, SHIFT, Row, name_of
from fcfl.problem.evaluation import Evaluation

_NOTHING = 1e-9  # a multiplier below this is rounding: the dual solver's own residual


@dataclass(frozen=True)
class Price:
    """How much the objective falls per unit by which one budget is relaxed.

    For a difference rule relaxing means a larger budget, for a ratio rule a smaller one. ``client``
    is ``None`` for a budget over all clients' rows together.
    """

    client: ClientId | None
    rule: str
    metric: str
    attribute: str
    value: float


def budget_prices(at: Evaluation, row_weights: Vector) -> list[Price]:
    """Return the prices of all budgets, the most expensive first; those without a price have 0.

    ``row_weights`` are the multipliers of all rows at the optimum ``at``, of shape (rows,).
    """
    totals: dict[tuple[ClientId | None, str, str, str], float] = {}
    for index, row in enumerate(at.problem.constraints.rows):
        if row.rule == SHIFT:
            continue
        key = (row.client, row.rule, row.metric, row.attribute)
        weight = float(row_weights[index]) if row_weights[index] > _NOTHING else 0.0
        totals[key] = totals.get(key, 0.0) + weight * _bound_slope(at, index, row)
    listed = [Price(*key, value) for key, value in totals.items()]
    return sorted(listed, key=lambda price: -price.value)


def _bound_slope(at: Evaluation, index: int, row: Row) -> float:
    """Return how fast a row is loosened as its budget is relaxed: 1, or the multiplied rate."""
    if row.rule != "ratio" or row.budget == 0:
        return 1.0
    constraints = at.problem.constraints
    entries = constraints.entry_row == index
    multiplied = entries & (constraints.entry_value > 0)
    weights = constraints.entry_value[multiplied]
    return float(np.average(at.rates[constraints.entry_column[multiplied]], weights=weights))


def to_relax(at: Evaluation) -> list[tuple[Row, float]]:
    """Return the exceeded rows at a point of least total violation, and by how much.

    The total is a sum of absolute violations, not of squares: like an L1 penalty it concentrates
    on few rows, so that few budgets need to be relaxed.
    """
    rows = at.problem.constraints.rows
    over = np.flatnonzero(at.violations > FEASIBILITY_TOLERANCE)
    listed = [(rows[i], float(at.violations[i])) for i in over]
    return sorted(listed, key=lambda item: -item[1])


def holding_against(at: Evaluation, row_weights: Vector) -> list[Row]:
    """Return rows that are met but have a positive weight: they conflict with exceeded ones."""
    rows = at.problem.constraints.rows
    met = at.violations <= FEASIBILITY_TOLERANCE
    return [rows[i] for i in np.flatnonzero(met & (row_weights > FEASIBILITY_TOLERANCE))]


def conflict_sentence(at: Evaluation, row_weights: Vector) -> str:
    """Return a sentence on the budgets to relax, by how much, and those they conflict with.

    At most five of each; ``row_weights`` are the multipliers at the point.
    """
    relax = ", ".join(f"{name_of(row)} by {amount:.3g}" for row, amount in to_relax(at)[:5])
    against = list(dict.fromkeys(name_of(row) for row in holding_against(at, row_weights)))[:5]
    why = f", which conflicts with {', '.join(against)}" if against else ""
    return f"The budgets cannot be met together near this model. Relax {relax}{why}."
