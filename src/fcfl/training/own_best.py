"""The lowest loss each client could have if the model were its own, without any budget."""

from dataclasses import replace

import numpy as np

from fcfl._types import Point, Request, Vector
from fcfl.federation.in_process import InProcess
from fcfl.federation.loop import Progress, run
from fcfl.server.problem import Problem, build_problem, evaluate_point
from fcfl.server.sqp.sqp import SQP

ALONE = SQP(rounds=(300, 0))  # for networks; a linear model takes about ten


def with_own_best(
    problem: Problem, runtime: InProcess, params: Vector, method: SQP = ALONE
) -> Problem:
    """The problem in excess losses: every client is first trained alone, from ``params``."""
    bests = [_own_best(problem, runtime, client, params, method) for client in problem.clients]
    return replace(problem, own_best_losses=np.array(bests))


def _own_best(
    problem: Problem, runtime: InProcess, client: str, params: Vector, method: SQP
) -> float:
    alone = InProcess({client: runtime.clients[client]})
    counted = alone.evaluate(Request((Point(params),)))
    free, _ = build_problem((), problem.rates, counted, l2=problem.l2)
    state = method.init(params, free)
    for progress, _ in run(method, Progress(state), alone):
        state = progress.state
    reports = alone.evaluate(Request((Point(state.params),)))
    return float(evaluate_point(free, state.params, reports).losses[0])
