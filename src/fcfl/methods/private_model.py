r"""What noisy sums give the private method: estimates, margins that cover the noise, and a step.

The step solves a quadratic programme

.. math:: \min_s\; \tfrac12 s^T B s + g^T s + \rho \sum_j t_j \quad\text{s.t.}\quad
          v_j + G_j s \le m_j + t_j,\; t \ge 0,\; |s| \le 3

with v the violations by decisions, as far as noise lets them be estimated, and m the negative
margins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import LABEL_OF, Matrix, RateId, Vector
from fcfl.methods.sqp.qp import solve_dual_qp
from fcfl.problem.constraints import Constraints
from fcfl.releases import Cell, Kind, attributes_of, cells_of

DRIFT = 0.5  # share of a predicted change that is not believed
MOST_ANSWER = 4.0  # times the smooth slopes; at least its inverse
PENALTY = 2.0  # nats of mean loss that a unit of disparity may cost
LONGEST = 3.0  # step
DEVIATIONS = 2.326  # of what new rows may differ by: 99 of 100 tables differ by less
NEW_ROWS = 1 / 3  # as many as there are rows of training: a quarter held out
MOST_MARGIN = 0.62  # share of a budget up to which it is kept free


def row_estimate(rates: Sequence[RateId], cells: Vector, kind: Kind = "counts") -> float:
    """All rows of a client, at least one: each attribute's cells have them all."""
    return max(float(cells.sum()) / len(attributes_of(rates)), 1.0)


def group_estimates(
    rates: Sequence[RateId], cells: Vector, kind: Kind = "counts", *, selected: bool = False
) -> Vector:
    """Rows behind each rate, or those of them that are selected."""
    known = cells_of(rates, kind)
    return np.array(
        [
            sum(
                count
                for cell, count in zip(known, cells, strict=True)
                if _is_behind(cell, rate) and (cell.selected or not selected)
            )
            for rate in rates
        ]
    )


def cells_behind(rates: Sequence[RateId]) -> Vector:
    """How many noisy cells the rows behind each rate are the sum of."""
    return group_estimates(rates, np.ones(len(cells_of(rates))))


def _is_behind(cell: Cell, rate: RateId) -> bool:
    label = LABEL_OF[rate.kind]
    same = (cell.attribute, cell.group) == (rate.attribute, rate.group)
    return same and (label is None or cell.label == label)


def curvature_estimate(moments: Vector, n_rows: float, noise: float, l2: float) -> Matrix:
    r"""Curvature of the mean loss, at most: a quarter of the second moments, and L2.

    Eigenvalues below what ``noise``, the standard deviation of all clients' noise together, can
    make are not known: they count as that, and so do not let a step follow the noise.
    """
    n = int((np.sqrt(8 * moments.size + 1) - 1) / 2)
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n)] = moments / n_rows
    matrix += np.triu(matrix, 1).T
    values, vectors = np.linalg.eigh(matrix)
    floor = noise * np.sqrt(n) / n_rows
    known = (np.maximum(values, floor) + floor) / 4.0 + l2
    return np.asarray((vectors * known) @ vectors.T)


def shrunk(slopes: Matrix, group_counts: Matrix, noise: Vector) -> Matrix:
    r"""Slopes of rates, each drawn towards those of the same group at all clients.

    Positive-part Stein estimates. ``slopes`` has shape (clients, rates, parameters), ``noise`` the
    variance of each of its numbers, by client and rate.
    """
    n_params = slopes.shape[2]
    if len(slopes) == 1:
        return slopes
    weights = group_counts / group_counts.sum(axis=0)
    pooled = np.einsum("kr,krn->rn", weights, slopes)
    off = slopes - pooled
    squares = np.maximum(np.square(off).sum(axis=2), 1e-300)
    kept = np.maximum(1.0 - (n_params - 2) * noise / squares, 0.0)
    return np.asarray(pooled + kept[:, :, None] * off)


@dataclass(frozen=True)
class Answer:
    r"""How much more decisions answer to a step than smooth rates do: one factor for all rows.

    Smooth rates bend with all rows, decisions with those on the line alone, which may be twice as
    many as the smooth slopes say, or half. Seen changes c of violations, with noise of variance n,
    are those that slopes predict, p, times the factor f. Of p a share `DRIFT` is not believed, nor
    is f = 1 beforehand, so that f has the mean of a normal law:

    .. math:: f = \frac{1/D^2 + \sum pc/(n + D^2p^2)}{1/D^2 + \sum p^2/(n + D^2p^2)}
    """

    seen: float = 1.0 / DRIFT**2
    predicted: float = 1.0 / DRIFT**2

    @property
    def factor(self) -> float:
        """What slopes are multiplied by."""
        return float(np.clip(self.seen / self.predicted, 1.0 / MOST_ANSWER, MOST_ANSWER))

    def learnt(self, predicted: Vector, seen: Vector, noise: Vector) -> "Answer":
        """After one more step; rows of which nothing was known before say nothing."""
        known = np.isfinite(noise)
        p, c = predicted[known], seen[known]
        weights = 1.0 / np.maximum(noise[known] + (DRIFT * p) ** 2, 1e-12)
        return Answer(
            self.seen + float(weights @ (p * c)), self.predicted + float(weights @ (p * p))
        )


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
