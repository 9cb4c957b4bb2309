"""Several starts: the problem has local optima, so the best of a few is kept.

All starts are trained to a loose tolerance in lock step, their points in one request a round; who
ends lowest within the budgets is trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fcfl._types import Point, Reports, Vector
from fcfl.federation.federation import Bound
from fcfl.results import Start
from fcfl.server.problem import Problem, evaluate_point
from fcfl.server.sqp.sqp_state import target_of
from fcfl.training.progress_share import OnRound
from fcfl.training.together import Lane, ask_together, run_together

TOLERANCE = 1e-3  # KKT residual at which starts are compared
ROUNDS = 200
BETTER = 1e-3  # share by which a later start must be lower to be preferred
FIRST, OPTIMUM = "first", "unconstrained optimum"
_FREE = ""  # the training that finds it
_WHAT = "comparing starts"


@dataclass(frozen=True)
class Screened:
    """Where a start led to, how large what is minimised is there, and by how much budgets are."""

    name: str
    params: Vector
    objective: float
    violation: float
    losses: Vector

    @property
    def entry(self) -> Start:
        """What a result says of it."""
        return Start(self.name, float(self.losses.max()), float(self.losses.mean()))


@dataclass(frozen=True)
class Starts:
    """Trainings of one ``problem``, which is ``free`` without its budgets."""

    method: Any
    problem: Problem
    free: Problem

    def screen(
        self,
        first: Vector,
        others: Mapping[str, Vector],
        clients: Bound,
        on_round: OnRound | None = None,
    ) -> list[Screened]:
        """Train from all starts at once, one of them the optimum without budgets once it is known.

        It lists where each ends.
        """

        def after(name: str, lane: Lane) -> dict[str, Lane]:
            return {OPTIMUM: self._lane(lane.state.params)} if name == _FREE else {}

        lanes = {FIRST: self._lane(first), _FREE: self._lane(first, self.free)}
        lanes |= {name: self._lane(start) for name, start in others.items()}
        ended = run_together(lanes, clients, _WHAT, on_round, after)
        names = (FIRST, OPTIMUM, *others)
        points = [[Point(ended[name].state.params)] for name in names]
        answers = ask_together(points, clients, _WHAT)
        return [
            self._screened(name, ended[name], reports)
            for name, reports in zip(names, answers, strict=True)
        ]

    def _lane(self, start: Vector, problem: Problem | None = None) -> Lane:
        fast = replace(self.method, rounds=(ROUNDS, 0), tolerance=TOLERANCE, feasibility=TOLERANCE)
        return Lane(fast, fast.init(start, self.problem if problem is None else problem))

    def _screened(self, name: str, lane: Lane, reports: Reports) -> Screened:
        state = lane.state
        at = evaluate_point(self.problem, state.params, reports)
        target = target_of(lane.method.resolved(state.params.size), state)
        value = float(target.objectives(at.losses).max())
        return Screened(name, state.params, value, at.largest_violation, at.losses)


def best_of(screened: list[Screened]) -> Screened:
    """The lowest within the budgets, an earlier one where they are about the same.

    Where none is within them, the one that exceeds them least.
    """
    inside = [one for one in screened if one.violation <= TOLERANCE]
    if not inside:
        return min(screened, key=lambda one: one.violation)
    lowest = min(one.objective for one in inside)
    allowed = lowest + BETTER * abs(lowest)
    return next(one for one in inside if one.objective <= allowed)
