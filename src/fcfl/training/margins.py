r"""Bounds below the budgets, so that new rows keep the budgets too.

On new rows a disparity differs from the one trained on by chance. For a comparison that is a row
:math:`a \cdot r \le b` of group rates its standard deviation, at an even model, is

.. math:: s(p) = \sqrt{p (1 - p) \sum_g a_g^2 / n_g}

with p the rate of the groups compared, together, and :math:`n_g` their training rows. Training is
held to :math:`b - \lambda s(p_0)`, with :math:`p_0` the rate of the model that is trained with the
plain budgets and :math:`\lambda = \sqrt2 z_c`: the quantile of the confidence c for as many new
rows as there are training rows; and 0.3 more for what a fit gains on its own rows, where no drift
is known (below). Four tenths of the room that an even model has are always left: chance decides
about few rows, and lower bounds cost accuracy for nothing. So a small client is tightened more,
never less, and the bounds fall with the confidence and with the budget. Decisions about many rows
are held to these bounds, too.

A small client also drifts: on new rows its disparity is not centred where training left it
(`drift`). Where that is known, the rates that are to be expected there are held to these bounds: a
row that drifts is held lower, its opposite less, and no further than an even model with its rates
moved that way keeps the plain budgets. The first-order drift is taken from the model without
margins, so that it, too, only grows with the confidence.

Where the rows are too few even so, the rate p may be moved as well, to where s(p) is smaller. How
far a client's rate may move at all is limited: a budget is not kept by selecting everybody.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from fcfl._types import Vector
from fcfl.server.constraints import Constraints
from fcfl.server.problem import Evaluation, Problem
from fcfl.server.rate_changes import APART, RateChanges
from fcfl.training.drift import Drift

MOST_CHANGE = 0.05  # by how much margins may change a client's rate, by default
OPTIMISM = 0.3  # by how many standard deviations groups drift apart on new rows; measured
NEW_ROWS = float(np.sqrt(2.0))  # as many new rows as training rows
TRUSTED_ROWS = 300.0  # rows from which on decisions tell more of new rows than smooth rates
MOST_DRIFT = 0.6  # share of an even model's room by which rates are moved against their drift
LEFT = 0.4  # share of an even model's room that no margin takes: less keeps no more, and costs
_ENOUGH = 0.9  # rows are too few where a margin for them would be more of the room
STEP = 0.1  # margins come in tenths of a deviation, so that a larger confidence never has a smaller
_AIM = 0.9  # of the change allowed: a client's decisions come in whole people
_WORTH = 0.95  # a change that does not lower the deviation to this share of it is not made


def deviations_for(confidence: float, optimism: float = OPTIMISM) -> float:
    """How many standard deviations a bound is lowered by; none without confidence."""
    if confidence == 0:
        return 0.0
    exact = max(NormalDist().inv_cdf(confidence), 0.0) * NEW_ROWS + optimism
    return float(np.floor(max(exact, STEP) / STEP + 1e-9) * STEP)


@dataclass(frozen=True)
class Margins:
    r"""What may be taken off each bound, measured on a model that is trained with plain budgets.

    ``spreads`` are :math:`\sqrt{\sum_g a_g^2 / n_g}` of each row, ``sums`` their
    :math:`\sum_g a_g`, ``rates`` the rate of the groups compared, together.
    """

    problem: Problem
    changes: RateChanges
    spreads: Vector
    sums: Vector
    rates: Vector
    most_change: float
    drift: Drift | None = None

    @property
    def deviations(self) -> Vector:
        """The standard deviation of each row."""
        return _deviation(self.rates) * self.spreads

    @property
    def room(self) -> Vector:
        """How far an even model is inside each bound."""
        return self._room_at(self.rates)

    def _room_at(self, rates: Vector) -> Vector:
        return np.maximum(self.problem.constraints.bounds - rates * self.sums, 1e-300)

    def deviations_for(self, confidence: float) -> float:
        """How many standard deviations bounds are lowered by: fewer where the drift is known."""
        return deviations_for(confidence, OPTIMISM if self.drift is None else 0.0)

    def taken(self, deviations: float) -> Vector:
        """What is taken off each bound."""
        return np.minimum(deviations * self.deviations, (1.0 - LEFT) * self.room)

    def drifted(self, deviations: float) -> Vector:
        """By how much each row will be larger on new rows.

        No more than leaves an even model, with its rates moved the other way, inside the plain
        budgets: decisions on training rows are to keep these, too.
        """
        if self.drift is None:
            return np.zeros(len(self.spreads))
        constraints = self.problem.constraints
        bounds = constraints.bounds - self.taken(deviations)
        weights = constraints.weigh_rates(self.drift.multipliers_under(bounds))
        by = constraints.apply(weights * self.drift.spreads)
        times = np.maximum(-by, 0.0) / (MOST_DRIFT * self.room)
        return by / np.maximum(self._largest(times), 1.0)[self.changes.population_of_row]

    def short_of_rows(self, deviations: float) -> Vector:
        """For each row how many times the rows its margin needs to fit; at most 1: it does."""
        return self._crowding(deviations, np.zeros(len(self.spreads))) ** 2

    def _crowding(self, deviations: float, change: Vector) -> Vector:
        """The margin as a share of what it may take, when rates have changed by ``change``."""
        rates = np.clip(self.rates + change, 0.0, 1.0)
        allowed = _ENOUGH * self._room_at(rates)
        return np.asarray(deviations * _deviation(rates) * self.spreads / allowed)

    def aims(self, deviations: float) -> Vector:
        """By how much each population's rate is to change: no more than its rows make necessary."""
        members = self.changes.population_of_row
        most = _AIM * self.most_change
        tried = np.linspace(-most, most, 41)
        crowding = np.array(
            [
                self._largest(self._crowding(deviations, np.full(len(members), change)))
                for change in tried
            ]
        )
        unchanged = crowding[len(tried) // 2]
        fits = np.where(crowding <= 1.0, np.abs(tried)[:, None], np.inf)
        nearest, least = np.argmin(fits, axis=0), np.argmin(crowding, axis=0)
        found = np.where(np.isfinite(fits.min(axis=0)), tried[nearest], tried[least])
        is_worth_it = crowding.min(axis=0) <= _WORTH * unchanged
        return np.where((unchanged > 1.0) & is_worth_it, found, 0.0)

    def reached(self, deviations: float, decided: Vector) -> float:
        """Which share of its aim the rates of decisions have moved by, at the client of the least.

        ``decided`` are hard rates, stacked client by client.
        """
        aims = self.aims(deviations)
        rates = np.array([shares @ decided[columns] for columns, shares in self.changes.weights])
        moved = (rates - self.changes.decided)[aims != 0] / aims[aims != 0]
        return float(moved.min(initial=np.inf))

    def _largest(self, of_rows: Vector) -> Vector:
        largest = np.zeros(len(self.changes))
        np.maximum.at(largest, self.changes.population_of_row, of_rows)
        return largest

    def tightened(
        self, deviations: float, *, against_drift: float = 0.0, moved: float = 0.0
    ) -> Problem:
        """The problem with every bound lowered by its margin, and limits on the rates' changes.

        With ``against_drift``, a share, it is what rows will be on new rows that is held to them.
        With ``moved``, the rates of clients with too few rows are moved by so many times their
        aims: smooth rates, which may have to move further than the decisions that are limited.
        """
        asked = self.problem.constraints.bounds
        bounds = asked - self.taken(deviations)
        if against_drift:
            bounds = np.minimum(bounds - against_drift * self.drifted(deviations), asked)
        aims = moved * self.aims(deviations) if moved else np.zeros(len(self.changes))
        most = np.where(aims, np.maximum(self.most_change, np.abs(aims) + APART), self.most_change)
        limits = self.changes.bounds_around(self.changes.smooth, most)
        aimed = self.changes.bounds_from(self.changes.smooth, aims)
        return with_constraints(
            self.problem,
            self.changes.appended_to(
                replace(self.problem.constraints, bounds=bounds), np.minimum(limits, aimed)
            ),
        )

    def aimed(self, limits: "Limits", deviations: float, share: float) -> "Limits":
        """The same limits, with small clients' decided rates moved by a share of their aims."""
        aims = share * self.aims(deviations)
        bounds, n_budgets = limits.bounds.copy(), len(self.spreads)
        aimed = self.changes.bounds_from(self.changes.decided, aims)
        bounds[n_budgets:] = np.minimum(bounds[n_budgets:], aimed)
        constraints = replace(limits.problem.constraints, bounds=bounds)
        return replace(limits, problem=with_constraints(limits.problem, constraints))

    def limits(self, exceeded: Vector, deviations: float = 0.0) -> "Limits":
        """What decisions are to keep: the budgets, and the limits on the rates' changes.

        A budget that they exceed already is to be exceeded by no more than that. With
        ``deviations`` the margins are theirs, too, but for what 300 rows are worth: on new rows a
        large group is decided about as on training rows, whatever its smooth rate; in a small one
        training has bent single decisions, and the smooth rate tells more.
        """
        around = self.changes.bounds_around(self.changes.decided, self.most_change)
        asked = self.problem.constraints
        trust = np.maximum(1.0 - TRUSTED_ROWS * self.spreads**2, 0.0)
        off = np.where(exceeded > 0, -exceeded, trust * self.taken(deviations))
        constraints = self.changes.appended_to(replace(asked, bounds=asked.bounds - off), around)
        return Limits(with_constraints(self.problem, constraints), self.changes)


@dataclass(frozen=True)
class Limits:
    """What decisions are to keep; ``changes`` where the problem's last rows limit them."""

    problem: Problem
    changes: RateChanges | None = None

    @property
    def bounds(self) -> Vector:
        """The bound of each row."""
        return self.problem.constraints.bounds

    def under(self, bounds: Vector) -> Problem:
        """The same problem under lower bounds."""
        apart = bounds if self.changes is None else self.changes.apart(bounds)
        return with_constraints(self.problem, replace(self.problem.constraints, bounds=apart))


def _deviation(rates: Vector) -> Vector:
    return np.sqrt(rates * (1.0 - rates))


def margins_at(
    at: Evaluation,
    decided: Vector,
    most_change: float = MOST_CHANGE,
    drift: Drift | None = None,
) -> Margins:
    """The margins of a model that is trained with the plain budgets.

    ``decided`` are its hard rates on training rows, stacked client by client.
    """
    constraints = at.problem.constraints
    counts = np.concatenate([report.group_counts for report in at.reports])
    row, column = constraints.entry_row, constraints.entry_column
    value = constraints.entry_value

    def total(weights: Vector) -> Vector:
        return np.bincount(row, weights, minlength=len(constraints)).astype(np.float64)

    together = total(counts[column])
    rates = (total(counts[column] * at.rates[column]) + 1.0) / (together + 2.0)
    spreads = np.sqrt(total(value**2 / np.maximum(counts[column], 1e-300)))
    changes = RateChanges.of(constraints, counts, at.rates, decided)
    return Margins(at.problem, changes, spreads, total(value), rates, most_change, drift)


def with_constraints(problem: Problem, constraints: Constraints) -> Problem:
    """The same problem under other constraints."""
    return replace(problem, constraints=constraints)
