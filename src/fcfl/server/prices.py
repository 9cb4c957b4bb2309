r"""Shadow prices: what a budget costs the worst-served client.

.. math:: \text{price} = -\frac{\partial f^*}{\partial \epsilon}
          = \sum_j \mu_j \frac{\partial b_j}{\partial \epsilon}

with :math:`f^*` the optimum, :math:`\epsilon` the budget, and :math:`\mu_j` and :math:`b_j` the
multipliers and bounds of the rows it occurs in (both signs, all pairs of groups). This holds where
the optimum is differentiable in the budget, and to first order: a budget relaxed by more may stop
being active.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcfl._types import ClientId, Vector
from fcfl.server.constraints import SHIFT, Row
from fcfl.server.problem import Evaluation

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
    """Prices of all budgets, the most expensive first; budgets that cost nothing have price 0.

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
    """How fast a row is loosened as its budget is relaxed: 1, or the rate the ratio multiplies."""
    if row.rule != "ratio" or row.budget == 0:
        return 1.0
    constraints = at.problem.constraints
    entries = constraints.entry_row == index
    multiplied = entries & (constraints.entry_value > 0)
    weights = constraints.entry_value[multiplied]
    return float(np.average(at.rates[constraints.entry_column[multiplied]], weights=weights))


def price_of(
    prices: Sequence[Price], client: ClientId | None, rule: str, metric: str, attribute: str
) -> float | None:
    """The price of one budget, ``None`` where there is no such budget."""
    for price in prices:
        if (price.client, price.rule, price.metric, price.attribute) == (
            client, rule, metric, attribute,
        ):  # fmt: skip
            return price.value
    return None
