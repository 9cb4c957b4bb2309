"""The lowest loss each client could have if the model were its own, without any budget."""

from dataclasses import replace
from typing import Any

import numpy as np

from fcfl._types import ClientId, Point, Request, Vector
from fcfl.client.questions import Setup
from fcfl.federation.federation import Federation
from fcfl.federation.loop import Progress, run
from fcfl.methods.sqp import SQP
from fcfl.problem.evaluation import Problem, build_problem, evaluate_point

ALONE = SQP(rounds=(300, 0))  # for networks; a linear model takes about ten


def with_own_best(
    problem: Problem, federation: Federation, setup: Setup, params: Vector
) -> Problem:
    """The problem in excess losses: every client is first trained alone, from ``params``.

    Where sums are masked nobody is asked for its own curvature, nor for its groups.
    """
    if federation.is_masked:
        setup = replace(setup, rates=())
    alone = replace(ALONE, curvature="lbfgs") if federation.is_masked else ALONE
    method = setup.model.adapt_method(alone)
    bests = [_own_best(problem, federation, setup, c, params, method) for c in problem.clients]
    return replace(problem, own_best_losses=np.array(bests))


def _own_best(
    problem: Problem,
    federation: Federation,
    setup: Setup,
    client: ClientId,
    params: Vector,
    method: Any,
) -> float:
    only = federation.only(client)
    alone = only.bind(setup)
    counted = alone.evaluate(Request((Point(params),)))
    only.check_all_answered("how a model of its own does")
    free, _ = build_problem((), setup.rates, counted, l2=problem.l2)
    state = method.init(params, free)
    for progress, _ in run(method, Progress(state), alone):
        state = progress.state
    reports = alone.evaluate(Request((Point(state.params),)))
    only.check_all_answered("how a model of its own does")
    return float(evaluate_point(free, state.params, reports).losses[0])
