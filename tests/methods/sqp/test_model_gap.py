"""When a stage ends: nothing to gain by the undamped model, which damping cannot feign."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import Point, Request
from fcfl.methods.sqp.damping import first_damping
from fcfl.methods.sqp.elastic import find_step
from fcfl.methods.sqp.lagrangian import lagrangian_hessian
from fcfl.methods.sqp.model_gap import model_gap, nothing_to_gain
from fcfl.methods.sqp.quasi_newton import Exact
from fcfl.methods.sqp.sqp import SQP
from fcfl.methods.sqp.sqp_state import target_of
from fcfl.problem.evaluation import evaluate_point
from fcfl.rules import Difference
from helpers import pose, simulated_clients, zeros_for

PARITY = [Difference("demographic_parity", "race", 0.02)]


def drive(method, problem, runtime):
    state = method.init(zeros_for(runtime), problem)
    while state.status == "running":
        state, _ = method.step(state, runtime.evaluate(state.request))
    return state


def losses_of(problem, runtime, params):
    reports = runtime.evaluate(Request((Point(params, "gradients"),)))
    return evaluate_point(problem, params, reports)


@pytest.mark.parametrize("seed", range(6))
def test_the_default_ends_within_1e_4_of_the_sharp_end_and_no_later(seed):
    problem, runtime = pose(simulated_clients(seed), PARITY, l2=1e-2)
    sharp = drive(SQP(curvature="exact", tolerance=1e-6), problem, runtime)
    default = drive(SQP(curvature="exact"), problem, runtime)
    assert sharp.status == default.status == "converged"
    assert sum(default.rounds) <= sum(sharp.rounds)
    ends = [losses_of(problem, runtime, state.params) for state in (sharp, default)]
    assert ends[1].largest_violation <= 1e-6
    assert ends[1].losses.max() == pytest.approx(ends[0].losses.max(), abs=1e-5)
    assert ends[1].losses.mean() == pytest.approx(ends[0].losses.mean(), abs=1e-4)


def test_only_two_stages_with_exact_curvature_and_no_tolerance_end_by_the_model():
    assert SQP().resolved(10).gap > 0
    others = (
        SQP(tolerance=1e-6),
        SQP("mean"),
        SQP(0.1),
        SQP(curvature="lbfgs"),
        SQP(rounds=(9, 0)),
        SQP(slack=0.0),
    )
    for method in others:
        assert method.resolved(10).gap == 0


def judged(method, state, runtime, stiffness):
    """The point that a state asks about, and the step from there under so stiff a metric."""
    options = method.resolved(state.params.size)
    target = target_of(options, state)
    at = evaluate_point(
        state.problem, state.request.points[0].params, runtime.evaluate(state.request)
    )
    damping = first_damping(lagrangian_hessian(state.multipliers, target, at))
    stiff = Exact(np.sqrt(stiffness) * np.linalg.cholesky(damping.metric))
    step, _, _ = find_step(at, target, stiff, state.penalty, state.loss_weights)
    return options, replace(state, damping=damping), target, at, step


def test_a_stiff_model_or_a_saddle_point_does_not_end_a_stage():
    problem, runtime = pose(simulated_clients(0), PARITY, l2=1e-2)
    method = SQP(curvature="exact")
    first = method.init(zeros_for(runtime), problem)
    options, state, target, at, step = judged(method, first, runtime, 1e8)
    assert model_gap(at, target, step) <= options.gap
    assert not nothing_to_gain(options, state, at, step, state.multipliers)
    bowl = replace(at, curvature_sum=1e8 * at.curvature)  # so curved that nothing is to be gained
    assert nothing_to_gain(options, state, bowl, step, state.multipliers)
    saddle = replace(at, curvature_sum=-1e8 * at.curvature)
    assert not nothing_to_gain(options, state, saddle, step, state.multipliers)
