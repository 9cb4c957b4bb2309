"""Several starts: the problem has local optima, so the best of a few is kept.

All starts are trained to a loose tolerance in lock step, their points in one request a round; who
ends lowest within the budgets is trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fcfl._types import Point, Vector
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


def screen(
    method: Any,
    problem: Problem,
    starts: Mapping[str, Vector],
    clients: Bound,
    on_round: OnRound | None = None,
) -> list[Screened]:
    """Train from all starts at once, and see where each ends."""
    fast = replace(method, rounds=(ROUNDS, 0), tolerance=TOLERANCE, feasibility=TOLERANCE)
    lanes = {name: Lane(fast, fast.init(first, problem)) for name, first in starts.items()}
    ended = run_together(lanes, clients, _WHAT, on_round)
    points = [[Point(lane.state.params)] for lane in ended.values()]
    found = []
    for (name, lane), reports in zip(
        ended.items(), ask_together(points, clients, _WHAT), strict=True
    ):
        state = lane.state
        at = evaluate_point(problem, state.params, reports)
        target = target_of(fast.resolved(state.params.size), state)
        value = float(target.objectives(at.losses).max())
        found.append(Screened(name, state.params, value, at.largest_violation, at.losses))
    return found


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
