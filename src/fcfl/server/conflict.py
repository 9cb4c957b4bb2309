"""Budgets that cannot be met together: which to relax, by how much, and what they conflict with."""

import numpy as np

from fcfl._types import Vector
from fcfl.server.constraints import Row, name_of
from fcfl.server.method import FEASIBILITY_TOLERANCE
from fcfl.server.problem import Evaluation


def to_relax(at: Evaluation) -> list[tuple[Row, float]]:
    """Rows exceeded at a point of least total violation, and by how much, the largest first.

    The total is a sum of absolute violations, not of squares: like an L1 penalty it concentrates
    on few rows, so that few budgets need to be relaxed.
    """
    rows = at.problem.constraints.rows
    over = np.flatnonzero(at.violations > FEASIBILITY_TOLERANCE)
    listed = [(rows[i], float(at.violations[i])) for i in over]
    return sorted(listed, key=lambda item: -item[1])


def holding_against(at: Evaluation, row_weights: Vector) -> list[Row]:
    """Rows that are met, but have a positive weight: without them the others could be lower."""
    rows = at.problem.constraints.rows
    met = at.violations <= FEASIBILITY_TOLERANCE
    return [rows[i] for i in np.flatnonzero(met & (row_weights > FEASIBILITY_TOLERANCE))]


def conflict_sentence(at: Evaluation, row_weights: Vector) -> str:
    """A sentence for people: the budgets to relax, by how much, and those they conflict with.

    At most five of each; ``row_weights`` are the multipliers at the point.
    """
    relax = ", ".join(f"{name_of(row)} by {amount:.3g}" for row, amount in to_relax(at)[:5])
    against = list(dict.fromkeys(name_of(row) for row in holding_against(at, row_weights)))[:5]
    why = f", which conflicts with {', '.join(against)}" if against else ""
    return f"The budgets cannot be met together near this model. Relax {relax}{why}."
