r"""Bring a trained model's decisions inside the budgets by the least change of the model.

Training keeps smooth rates within their bounds; decisions may still exceed a budget, most of all in
small groups. From there this takes steps

.. math:: \min_d\; \tfrac12 d^T H d \quad\text{s.t.}\quad v_j + \nabla \tilde v_j \cdot d \le 0

with v the violations by decisions, :math:`\nabla \tilde v` the gradients of sharper smooth ones,
and H the curvature of the mean loss. A decision changes only where a logit changes its sign, so
each direction is tried at several lengths, and the shortest one that is inside is taken. Steps that
raise the mean loss beyond a limit are refused: a budget is not bought at any price.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcfl._checks import check_params
from fcfl._types import CurvatureWeights, Matrix, Point, Reports, Request, Vector
from fcfl.methods.method import RoundInfo, Status, describe_round
from fcfl.methods.sqp.curvature import Curvature, Exact, no_memory
from fcfl.methods.sqp.subproblem import Target, find_step
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point

KEPT = 1e-9  # decisions are counts: beyond rounding there is no tolerance

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
    """The model, what is asked next, and how far its decisions are outside.

    With a ``direction`` the request has points along it, one for each of the lengths; without one
    it asks how the rates answer at ``params``. ``excess`` is the sum of the violations there,
    ``first_loss`` the mean loss of the model at the beginning. ``decided`` are the hard rates at
    ``params``, ``confusion`` the counts of `confusion_of` for each client.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    rounds: tuple[int, ...]
    direction: Vector
    excess: float
    first_loss: float
    decided: Vector
    confusion: Matrix


@dataclass(frozen=True)
class RestoreDecisions:
    """Options of the restoration.

    Parameters
    ----------
    rounds
        The most exchanges; each step takes two.
    sharpness
        Of the smooth rates whose gradients stand in for those of decisions.
    most_rise
        How much the clients' mean loss may rise in all, as a share of what it was.
    exact
        Whether clients are asked for the curvature of their losses; else the shortest step in the
        parameters themselves is taken.
    """

    rounds: int = 24
    sharpness: float = 30.0
    most_rise: float = 0.05
    exact: bool = True
    name: str = "restore-decisions"
    state_class: ClassVar[type[DecisionState]] = DecisionState

    def init(self, params: Vector, problem: Problem) -> DecisionState:
        """Ask how decisions and rates are at ``params``."""
        params = check_params(params)
        state = DecisionState(
            problem, params, Request(()), "running", "", (0,), np.zeros(0), np.inf, np.nan,
            np.zeros(0), np.zeros((0, 4)),
        )  # fmt: skip
        return self._look(state)

    def step(self, state: DecisionState, reports: Reports) -> tuple[DecisionState, RoundInfo]:
        """Find the next direction, or move along the one that was tried."""
        points = [
            evaluate_point(state.problem, point.params, reports, index)
            for index, point in enumerate(state.request.points)
        ]
        state = replace(state, rounds=(state.rounds[0] + 1,))
        if state.direction.size:
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
        """Ask for the decisions, and for how the rates answer to the parameters."""
        clients, n_rates = state.problem.clients, state.problem.n_rates
        share = CurvatureWeights(1.0 / len(clients), np.zeros(n_rates))
        sharp = Point(
            state.params,
            "curvature" if self.exact else "gradients",
            dict.fromkeys(clients, share) if self.exact else None,
            sharpness=self.sharpness,
        )
        request = Request((Point(state.params, "decisions"), sharp))
        return replace(state, request=request, direction=np.zeros(0))

    def _turned(self, state: DecisionState, hard: Evaluation, sharp: Evaluation) -> DecisionState:
        """The state with a direction that leads inside, to first order."""
        excess = _excess(hard)
        first = float(hard.losses.mean()) if np.isnan(state.first_loss) else state.first_loss
        state = replace(
            state,
            excess=excess,
            first_loss=first,
            decided=hard.rates,
            confusion=confusions(hard),
        )
        if excess <= 0:
            return _ended(state)
        mixed = tuple(
            replace(slopes, rates=decided.rates)
            for slopes, decided in zip(sharp.reports, hard.reports, strict=True)
        )
        aim = np.where(hard.violations > KEPT, _AIM, 0.0)
        at = replace(sharp, problem=_lowered(state.problem, aim), reports=mixed)
        found = find_step(
            at,
            Target(np.inf, np.zeros(0)),
            self._metric(at).scaled(_STIFFNESS),
            _STIFFNESS * _PENALTY,
            np.full(len(mixed), _STIFFNESS / len(mixed)),
        )
        if not found.step.direction.any():
            return _ended(state)
        tried = tuple(
            Point(state.params + length * found.step.direction, "decisions") for length in _LENGTHS
        )
        return replace(state, direction=found.step.direction, request=Request(tried))

    def _metric(self, at: Evaluation) -> Curvature:
        if not self.exact:
            return no_memory(at.params.size)
        return Exact.from_hessian(at.problem.l2 * np.eye(at.params.size) + at.curvature)

    def _moved(
        self, state: DecisionState, points: list[Evaluation]
    ) -> tuple[DecisionState, Evaluation, float]:
        """The state at the shortest length that is inside, else at the one that is nearest."""
        limit = state.first_loss + self.most_rise * abs(state.first_loss)
        outcomes = [
            (_excess(at), length, at)
            for length, at in zip(_LENGTHS, points, strict=True)
            if at.losses.mean() <= limit
        ]
        if not outcomes:
            return _ended(state), points[0], 0.0
        excess, length, at = min(outcomes, key=lambda outcome: outcome[:2])
        if excess >= state.excess:
            return _ended(state), at, 0.0
        moved = replace(
            state, params=at.params, excess=excess, decided=at.rates, confusion=confusions(at)
        )
        return (_ended(moved) if excess <= 0 else self._look(moved)), at, length


def confusions(at: Evaluation) -> Matrix:
    """Counts of labels and decisions, a line for each client; nan where a client gives none."""
    unknown = np.full(4, np.nan)
    return np.array([unknown if r.confusion is None else r.confusion for r in at.reports])


def _lowered(problem: Problem, by: Vector) -> Problem:
    constraints = problem.constraints
    return replace(problem, constraints=replace(constraints, bounds=constraints.bounds - by))


def _excess(at: Evaluation) -> float:
    """The sum of what decisions exceed their bounds by."""
    violations = at.violations
    return float(violations[violations > KEPT].sum())


def _ended(state: DecisionState) -> DecisionState:
    rounds = state.rounds[0]
    if state.excess <= 0:
        message = f"Decisions are within all budgets after {rounds} rounds."
        return replace(state, status="converged", message=message)
    message = f"Decisions exceed budgets by {state.excess:.4f} in all after {rounds} rounds."
    return replace(state, status="stopped", message=message)
