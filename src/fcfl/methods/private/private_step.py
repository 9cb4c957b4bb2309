r"""One step of the private method: a quadratic programme under bounds that know the noise.

.. math:: \min_s\; \tfrac12 s^T B s + g^T s + \rho \sum_j t_j \quad\text{s.t.}\quad
          v_j + G_j s \le m_j + t_j,\; t \ge 0,\; |s| \le 3

with v the violations of decisions, as far as noise lets them be known, and m the (negative)
margins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Matrix, Vector
from fcfl.methods.sqp.qp import solve_dual_qp
from fcfl.problem.constraints import Constraints

PENALTY = 2.0  # nats of mean loss that a unit of disparity may cost
LONGEST = 3.0  # step
DEVIATIONS = 2.326  # of what new rows may differ by: 99 of 100 tables differ by less
NEW_ROWS = 1 / 3  # as many as there are rows of training: a quarter held out
MOST_MARGIN = 0.62  # share of a budget up to which it is kept free


@dataclass(frozen=True)
class Known:
    """Rates as far as they are known, stacked client by client.

    ``noise`` has the standard deviations that the noise of their own release gives the rates,
    ``counts`` the rows behind them, ``count_noise`` the standard deviations of these, which were
    released once and are the same in every round.
    """

    rates: Vector
    noise: Vector
    counts: Vector
    count_noise: Vector

    @property
    def by_counts(self) -> Vector:
        """What the noise of counts gives the rates: it scales what they are off one half."""
        return np.asarray(np.abs(self.rates - 0.5) * self.count_noise / self.counts)


def allowances(constraints: Constraints) -> Vector:
    """How much each row allows rates near one to differ: its budget, or one minus its ratio."""
    return np.array(
        [row.budget if row.rule == "difference" else 1.0 - row.budget for row in constraints.rows]
    )


def noise_of_rows(constraints: Constraints, noise: Vector) -> Vector:
    """Standard deviations that noise in the rates gives the violations."""
    spread = np.zeros(len(constraints.rows))
    terms = (constraints.entry_value * noise[constraints.entry_column]) ** 2
    np.add.at(spread, constraints.entry_row, terms)
    return np.sqrt(spread)


def usable_rows(constraints: Constraints, known: Known, least: float) -> NDArray[np.bool_]:
    """Rows whose groups are large enough, and whose noise leaves something of the budget."""
    enough = np.ones(len(constraints.rows), dtype=bool)
    small = known.counts[constraints.entry_column] < least
    enough[constraints.entry_row[small]] = False
    noise = np.hypot(known.noise, known.by_counts)
    return enough & (noise_of_rows(constraints, noise) < allowances(constraints))


def deviations(constraints: Constraints, known: Known, spread: Vector) -> Vector:
    """Standard deviations of what violations of new rows differ by from those that are known.

    ``spread`` is what the noise of all rounds gives violations; that of counts, the same in every
    round, comes on top. So does chance, twice: which rows are trained on, and which are new.
    """
    chance = known.rates * (1.0 - known.rates) / np.maximum(known.counts, 1.0)
    both = known.by_counts**2 + chance * (1.0 + 1.0 / NEW_ROWS)
    return np.hypot(spread, noise_of_rows(constraints, np.sqrt(both)))


def margins(constraints: Constraints, known: Known, spread: Vector) -> Vector:
    """What is kept free of each budget, for 99 of 100 tables of new rows to keep it.

    Where this would be more than a share of the budget, no margin makes the budget sure, and each
    costs accuracy: the more it would take, the less is kept free.
    """
    wanted = DEVIATIONS * deviations(constraints, known, spread)
    most = np.maximum(MOST_MARGIN * allowances(constraints), 1e-12)
    return np.asarray(np.minimum(wanted, most**2 / np.maximum(wanted, 1e-12)))


def private_step(curvature: Matrix, gradient: Vector, slopes: Matrix, violations: Vector) -> Vector:
    """The step, with as much damping as keeps it from being too long."""
    rows = np.vstack([gradient[None], slopes])
    upper = np.full(len(violations), PENALTY)
    damping = 0.0
    while True:
        factor = np.linalg.cholesky(curvature + damping * np.eye(gradient.size))
        whitened = np.linalg.solve(factor, rows.T).T
        weights = solve_dual_qp(whitened, np.append(0.0, violations), 1, upper)
        step: Vector = -np.linalg.solve(factor.T, whitened.T @ weights)
        if np.linalg.norm(step) <= LONGEST:
            return step
        damping = max(2.0 * damping, 1e-3)
