r"""Project a trained model so that its decisions satisfy the budgets, by the smallest change.

Training keeps smooth rates within their bounds, but decisions may still exceed a budget, especially
in small groups. Each step of the projection solves

.. math:: \min_d\; \tfrac12 d^T H d \quad\text{s.t.}\quad v_j + \nabla \tilde v_j \cdot d \le 0

where v are the violations of the hard rates and H is the curvature of the mean loss. The gradients
:math:`\nabla \tilde v` are those of smooth rates that are sharper than in training. A decision
changes only if a logit changes its sign. Therefore each direction is tried at several lengths, and
the shortest feasible one is taken. Steps that raise the mean loss beyond a limit are rejected.
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

KEPT = 1e-9  # tolerance for rounding only, because hard rates are ratios of counts

# Sharpness of the smooth rates whose gradients approximate those of decisions.
_SHARPNESS = 30.0

# Largest multiplier, in nats of mean loss per unit of disparity. If no row is near the threshold, a
# group's rate hardly changes with the parameters, and an exact step would be arbitrarily long.
_PENALTY = 10.0

# Factor on curvature and penalty that makes the gradient of the losses negligible.
_STIFFNESS = 1e4

# Decisions change in jumps, so a step that is feasible to first order may change no decision.
# Directions therefore include a safety margin and are tried at several lengths.
_SAFETY = 5e-3
_LENGTHS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True)
class DecisionState:
    """The model, its decisions, and the next request.

    ``decided`` are the hard rates at ``params``, ``confusion`` the counts of `confusions`, and
    ``first_loss`` is the mean loss of the initial model. The request has either two points at
    ``params``, for decisions and for gradients, or one point per length of a direction.
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
        """Sum of the violations by decisions."""
        return _excess(self.problem, self.decided)


@dataclass(frozen=True)
class RestoreDecisions:
    """Options of the projection.

    Parameters
    ----------
    rounds
        Maximum number of exchanges; each step takes two.
    max_rise
        Largest total increase of the clients' mean loss, relative to its initial value.
    exact
        Whether to request the curvature of the losses. Otherwise steps are shortest in the
        Euclidean norm of the parameters.
    """

    rounds: int = 24
    max_rise: float = 0.05
    exact: bool = True
    name: str = "restore-decisions"
    state_class: ClassVar[type[DecisionState]] = DecisionState

    def init(self, params: Vector, problem: Problem) -> DecisionState:
        """Request decisions and gradients of rates at ``params``."""
        return self._look(DecisionState(problem, check_params(params), Request(())))

    def step(self, state: DecisionState, reports: Reports) -> tuple[DecisionState, RoundInfo]:
        """Compute the next direction, or take a step along the present one."""
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
        """Return the share of the rounds used, 1 at the end."""
        return 1.0 if state.status != "running" else state.rounds[0] / self.rounds

    def _look(self, state: DecisionState) -> DecisionState:
        """Request decisions, and gradients of losses and rates."""
        clients, n_rates = state.problem.clients, state.problem.n_rates
        slopes = Point(state.params, "gradients", sharpness=_SHARPNESS)
        if self.exact:
            share = CurvatureWeights(1.0 / len(clients), np.zeros(n_rates))
            weights = dict.fromkeys(clients, share)
            slopes = replace(slopes, want="curvature", curvature_weights=weights)
        return replace(state, request=Request((Point(state.params, "decisions"), slopes)))

    def _turned(self, state: DecisionState, hard: Evaluation, sharp: Evaluation) -> DecisionState:
        """Return the state with a request along a direction that is feasible to first order."""
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
        safety = np.where(hard.violations > KEPT, _SAFETY, 0.0)
        tightened = replace(state.problem, constraints=rows.with_bounds(rows.bounds - safety))
        metric = no_memory(n_params)
        if self.exact:
            hessian = state.problem.l2 * np.eye(n_params) + sharp.curvature
            metric = Exact.from_hessian(hessian)  # type: ignore[assignment]
        direction = find_step(
            replace(sharp, problem=tightened, reports=mixed),
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
        """Return the state at the shortest feasible length, or at the length of least violation."""
        limit = state.first_loss + self.max_rise * abs(state.first_loss)
        outcomes = [
            (_excess(state.problem, at.rates), length, at)
            for length, at in zip(_LENGTHS, points, strict=True)
            if at.losses.mean() <= limit
        ]
        excess, length, at = min(outcomes, key=lambda o: o[:2], default=(np.inf, 0, points[0]))
        if excess >= state.excess:
            return _ended(state), at, 0.0
        state = replace(state, params=at.params, decided=at.rates, confusion=confusions(at))
        return (_ended(state) if excess <= 0 else self._look(state)), at, length


def confusions(at: Evaluation) -> Matrix:
    """Return confusion counts, one row per client, NaN for a client that sends none."""
    unknown = np.full(4, np.nan)
    return np.array([unknown if r.confusion is None else r.confusion for r in at.reports])


def _excess(problem: Problem, rates: Vector) -> float:
    """Return the sum of violations that exceed rounding."""
    violations = problem.constraints.violations(rates)
    return float(violations[violations > KEPT].sum())


def _ended(state: DecisionState) -> DecisionState:
    """Return the state with its final status and message."""
    excess, after = state.excess, f"after {state.rounds[0]} rounds."
    if excess <= 0:
        message = f"Decisions are within all budgets {after}"
        return replace(state, status="converged", message=message)
    message = f"Decisions exceed budgets by {excess:.4f} in total {after}"
    return replace(state, status="stopped", message=message)
