"""Several starts: the problem has local optima, so the best of a few is kept.

All starts are trained to a loose tolerance in lock step, their points in one request a round; the
one that ends lowest within the budgets is trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fcfl._types import Point, Vector
from fcfl.federation.federation import Bound
from fcfl.methods.sqp import SQPState
from fcfl.methods.sqp.sqp import target_of
from fcfl.problem.evaluation import evaluate_point
from fcfl.results.result import Start
from fcfl.training.progress_share import OnRound
from fcfl.training.together import Lane, ask_together, run_together

TOLERANCE = 1e-3  # KKT residual at which starts are compared
ROUNDS = 60  # a start that has not converged by then is compared where it is
BETTER = 1e-3  # share by which a later start must be lower to be preferred
OPTIMUM = "unconstrained optimum"
_WHAT = "comparing starts"


@dataclass(frozen=True)
class Screened:
    """Where a start led to, how large what is minimised is there, and by how much budgets are."""

    entry: Start
    state: SQPState
    objective: float
    violation: float


def best_start(
    method: Any,
    state: SQPState,
    others: Mapping[str, Vector],
    clients: Bound,
    on_round: OnRound | None = None,
) -> tuple[SQPState, tuple[Start, ...]]:
    """Continue from the best of ``state`` and ``others``; and what became of each of them."""
    quick = replace(method, rounds=(ROUNDS, 0), tolerance=TOLERANCE, feasibility=TOLERANCE)
    problem = state.problem
    lanes = {OPTIMUM: Lane(quick, quick.restart(state, problem))}
    lanes |= {name: Lane(quick, quick.init(start, problem)) for name, start in others.items()}
    ended = run_together(lanes, clients, _WHAT, on_round)
    asked = [[Point(lane.state.params)] for lane in ended.values()]
    screened = []
    for (name, lane), reports in zip(
        ended.items(), ask_together(asked, clients, _WHAT), strict=True
    ):
        at = evaluate_point(problem, lane.state.params, reports)
        target = target_of(lane.method.resolved(at.params.size), lane.state)
        value = float(target.objectives(at.losses).max())
        entry = Start(name, float(at.losses.max()), float(at.losses.mean()))
        screened.append(Screened(entry, lane.state, value, at.largest_violation))
    return method.restart(best_of(screened).state, problem), tuple(s.entry for s in screened)


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
