"""Several trainings in lock step, with one exchange a round, and the best of several starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fcfl._types import Point, Reports, Request, Vector, reports_on
from fcfl.federation.federation import Bound
from fcfl.methods.method import RoundInfo, next_state
from fcfl.methods.sqp import SQPState
from fcfl.methods.sqp.sqp import target_of
from fcfl.problem.evaluation import evaluate_point
from fcfl.results.result import Start
from fcfl.training.session import OnRound

K = TypeVar("K")

TOLERANCE = 1e-3  # KKT residual at which starts are compared
ROUNDS = 60  # a start that has not converged by then is compared where it is
BETTER = 1e-3  # share by which a later start must be lower to be preferred
OPTIMUM = "unconstrained optimum"


@dataclass(frozen=True)
class Lane:
    """One of the trainings: its method and state, and the reports on its last request."""

    method: Any
    state: Any
    reports: Reports | None = None


def run_together(
    lanes: Mapping[K, Lane], clients: Bound, what: str, on_round: OnRound | None = None
) -> dict[K, Lane]:
    """Train all lanes to their ends; ``what`` they are for is reported with every exchange."""
    reached, n_exchanges, done = dict(lanes), 0, 0.0
    while running := {k: lane for k, lane in reached.items() if lane.state.status == "running"}:
        points = [lane.state.request.points for lane in running.values()]
        answers = ask_together(points, clients, what)
        for (key, lane), reports in zip(running.items(), answers, strict=True):
            state, _ = next_state(lane.method, lane.state, reports)
            reached[key] = replace(lane, state=state, reports=reports)
        n_exchanges += 1
        if on_round is not None:
            least = min(lane.method.fraction_done(lane.state) for lane in reached.values())
            done = max(done, least)  # residuals rise at times
            on_round(RoundInfo(n_exchanges, 0, "", np.nan, np.nan, np.nan, 0.0, what), done)
    return reached


def ask_together(questions: Sequence[Sequence[Point]], clients: Bound, what: str) -> list[Reports]:
    """Evaluate several lists of points in one exchange; return the reports on each list."""
    points = tuple(point for asked in questions for point in asked)
    if not points:
        return [{} for _ in questions]
    reports = clients.evaluate(Request(points))
    clients.federation.check_all_answered(f"how models do, for {what}")
    ends = np.cumsum([len(asked) for asked in questions])
    places = [slice(end - len(asked), end) for end, asked in zip(ends, questions, strict=True)]
    return [reports_on(reports, place) for place in places]


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
    """Continue from the best of ``state`` and ``others``: the problem has local optima.

    All are trained to a loose tolerance; the one that ends lowest within the budgets is kept.
    """
    quick = replace(method, rounds=(ROUNDS, 0), tolerance=TOLERANCE, feasibility=TOLERANCE)
    problem, what = state.problem, "comparing starts"
    lanes = {OPTIMUM: Lane(quick, quick.restart(state, problem))}
    lanes |= {name: Lane(quick, quick.init(start, problem)) for name, start in others.items()}
    ended = run_together(lanes, clients, what, on_round)
    asked = [[Point(lane.state.params)] for lane in ended.values()]
    answers, screened = ask_together(asked, clients, what), []
    for (name, lane), reports in zip(ended.items(), answers, strict=True):
        at = evaluate_point(problem, lane.state.params, reports)
        target = target_of(lane.method.resolved(at.params.size), lane.state)
        value = float(target.objectives(at.losses).max())
        entry = Start(name, float(at.losses.max()), float(at.losses.mean()))
        screened.append(Screened(entry, lane.state, value, at.largest_violation))
    return method.restart(best_of(screened).state, problem), tuple(s.entry for s in screened)


def best_of(screened: list[Screened]) -> Screened:
    """Return the lowest within the budgets, the earliest of those that are about the same.

    Where none is within them, return the one that exceeds them least.
    """
    inside = [one for one in screened if one.violation <= TOLERANCE]
    if not inside:
        return min(screened, key=lambda one: one.violation)
    lowest = min(one.objective for one in inside)
    allowed = lowest + BETTER * abs(lowest)
    return next(one for one in inside if one.objective <= allowed)
