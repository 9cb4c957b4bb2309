r"""Bring a trained model's decisions inside the budgets by the least change of the model.

Training keeps smooth rates within their bounds; decisions may still exceed a budget, most of all in
small groups. From there this takes steps

.. math:: \min_d\; \tfrac12 d^T H d \quad\text{s.t.}\quad v_j + \nabla \tilde v_j \cdot d \le 0

with v the violations by decisions, :math:`\nabla \tilde v` the gradients of sharper smooth ones,
and H the curvature of the mean loss. A decision changes only where a logit changes its sign, so
each direction is tried at several lengths, and the shortest one that is inside is taken. Steps that
raise the mean loss beyond a limit are rejected: a budget is not bought at any price.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_params
from fcfl._types import CurvatureWeights, Matrix, Point, Reports, Request, Vector
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.methods.sqp.curvature import Exact, no_memory
from fcfl.methods.sqp.subproblem import Target, find_step
from fcfl.problem import Evaluation, Problem, evaluate_point

KEPT = 1e-9  # decisions are counts: beyond rounding there is no tolerance

# Sharpness of the smooth rates whose gradients stand in for those of decisions.
_SHARPNESS = 30.0

# The largest multiplier: nats of mean loss that a unit of disparity may cost. Where no row is near
# the threshold a group's rate hardly answers, and an exact step would be arbitrarily long.
_PENALTY = 10.0

# Factor on curvature and penalty, so that the slope of the losses does not matter.
_STIFFNESS = 1e4

# Decisions answer in jumps, so a step that slopes find long enough may change none: directions aim
# at least this far inside, and several lengths of them are tried.
_AIM = 5e-3
_LENGTHS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True)
class DecisionState:
    """The model, its decisions, and what is requested next.

    ``decided`` are the hard rates at ``params``, ``confusion`` the counts of `confusions`,
    ``first_loss`` is the mean loss of the model at the beginning. The request has two points at
    ``params``, decisions and slopes, or one for each of the lengths of a direction.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status = "running"
    message: str = ""
    rounds: tuple[int, ...] = (0,)
    first_loss: float = np.nan
    decided: Vector = field(default_factory=lambda: np.zeros(0))
    confusion: Matrix = field(default_factory=lambda: np.zeros((0, 4)))

    @property
    def excess(self) -> float:
        """The sum of what decisions exceed their bounds by."""
        return _excess(self.problem, self.decided)


@dataclass(frozen=True)
class RestoreDecisions:
    """Options of the restoration.

    Parameters
    ----------
    rounds
        The most exchanges; each step takes two.
    most_rise
        How much the clients' mean loss may rise in all, as a share of what it was.
    exact
        Whether clients are asked for the curvature of their losses; else the shortest step in the
        parameters themselves is taken.
    """

    rounds: int = 24
    most_rise: float = 0.05
    exact: bool = True
    name: str = "restore-decisions"
    state_class: ClassVar[type[DecisionState]] = DecisionState

    def init(self, params: Vector, problem: Problem) -> DecisionState:
        """Ask for decisions and the slopes of rates at ``params``."""
        return self._look(DecisionState(problem, check_params(params), Request(())))

    def step(self, state: DecisionState, reports: Reports) -> tuple[DecisionState, RoundInfo]:
        """Find the next direction, or move along the one that was tried."""
        points = [
            evaluate_point(state.problem, point.params, reports, index)
            for index, point in enumerate(state.request.points)
        ]
        state = replace(state, rounds=(state.rounds[0] + 1,))
        if len(points) == len(_LENGTHS):
            after, shown, length = self._moved(state, points)
        else:
            after, shown, length = self._turned(state, *points), points[0], 0.0
        if after.status == "running" and after.rounds[0] >= self.rounds:
            after = _ended(after)
        info = describe_round(shown, round=state.rounds[0], stage=1, step=length, note="decisions")
        return after, info

    def fraction_done(self, state: DecisionState) -> float:
        """The share of the rounds that were taken."""
        return 1.0 if state.status != "running" else state.rounds[0] / self.rounds

    def _look(self, state: DecisionState) -> DecisionState:
        """Request the decisions, and slopes of losses and rates."""
        clients, n_rates = state.problem.clients, state.problem.n_rates
        slopes = Point(state.params, "gradients", sharpness=_SHARPNESS)
        if self.exact:
            share = CurvatureWeights(1.0 / len(clients), np.zeros(n_rates))
            weights = dict.fromkeys(clients, share)
            slopes = replace(slopes, want="curvature", curvature_weights=weights)
        return replace(state, request=Request((Point(state.params, "decisions"), slopes)))

    def _turned(self, state: DecisionState, hard: Evaluation, sharp: Evaluation) -> DecisionState:
        """Return the state with a direction that leads inside, to first order."""
        state = replace(state, decided=hard.rates, confusion=confusions(hard))
        if np.isnan(state.first_loss):
            state = replace(state, first_loss=float(hard.losses.mean()))
        if state.excess <= 0:
            return _ended(state)
        mixed = tuple(
            replace(slopes, rates=decided.rates)
            for slopes, decided in zip(sharp.reports, hard.reports, strict=True)
        )
        rows, n_params = state.problem.constraints, state.params.size
        aims = np.where(hard.violations > KEPT, _AIM, 0.0)
        aimed = replace(state.problem, constraints=rows.with_bounds(rows.bounds - aims))
        metric = no_memory(n_params)
        if self.exact:
            hessian = state.problem.l2 * np.eye(n_params) + sharp.curvature
            metric = Exact.from_hessian(hessian)  # type: ignore[assignment]
        direction = find_step(
            replace(sharp, problem=aimed, reports=mixed),
            Target(np.inf, np.zeros(0)),
            metric.scaled(_STIFFNESS),
            _STIFFNESS * _PENALTY,
            np.full(len(mixed), _STIFFNESS / len(mixed)),
        ).step.direction
        if not direction.any():
            return _ended(state)
        tried = (Point(state.params + length * direction, "decisions") for length in _LENGTHS)
        return replace(state, request=Request(tuple(tried)))

    def _moved(
        self, state: DecisionState, points: list[Evaluation]
    ) -> tuple[DecisionState, Evaluation, float]:
        """Return the state at the shortest length that is inside, else at the nearest one."""
        limit = state.first_loss + self.most_rise * abs(state.first_loss)
        outcomes = [
            (_excess(state.problem, at.rates), length, at)
            for length, at in zip(_LENGTHS, points, strict=True)
            if at.losses.mean() <= limit
        ]
        excess, length, at = min(outcomes, key=lambda one: one[:2], default=(np.inf, 0, points[0]))
        if excess >= state.excess:
            return _ended(state), at, 0.0
        state = replace(state, params=at.params, decided=at.rates, confusion=confusions(at))
        return (_ended(state) if excess <= 0 else self._look(state)), at, length


def confusions(at: Evaluation) -> Matrix:
    """Return counts of labels and decisions, a line for each client; nan where it sends none."""
    unknown = np.full(4, np.nan)
    return np.array([unknown if r.confusion is None else r.confusion for r in at.reports])


def _excess(problem: Problem, rates: Vector) -> float:
    violations = problem.constraints.violations(rates)
    return float(violations[violations > KEPT].sum())


def _ended(state: DecisionState) -> DecisionState:
    excess, after = state.excess, f"after {state.rounds[0]} rounds."
    if excess <= 0:
        message = f"Decisions are within all budgets {after}"
        return replace(state, status="converged", message=message)
    message = f"Decisions exceed budgets by {excess:.4f} in all {after}"
    return replace(state, status="stopped", message=message)
