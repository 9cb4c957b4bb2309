"""Steps do not become ten times as long from one round to the next."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import Report
from fcfl.methods.sqp.damping import Damping
from fcfl.methods.sqp.exact_step import QuadraticModel, damped_step
from fcfl.methods.sqp.sqp import SQP
from fcfl.methods.sqp.sqp_state import target_of
from fcfl.methods.sqp.subproblem import Target
from fcfl.problem.constraints import Constraints
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point
from fcfl.rules import Difference
from helpers import pose, simulated_clients, zeros_for

NOTHING = np.zeros((0, 2))


def at_slope(slope):
    """One client at zero whose loss falls along the first parameter, without budgets."""
    none = np.zeros(0)
    report = Report(1.0, 1.0, none, none, np.array([-slope, 0.0]), np.zeros((0, 2)))
    whole = np.zeros(0, dtype=np.int64)
    problem = Problem(("a",), np.ones(1), 0, Constraints((), whole, none, whole, whole, none, 0))
    return Evaluation(problem, np.zeros(2), (report,))


def step_from(damping, slope=1.0):
    """Newton's step is ``slope`` long, for the Hessian is the metric."""
    model = QuadraticModel(np.eye(2), NOTHING, 1.0, is_near=False)
    target = Target(None, np.zeros(0))
    (step, _, _), after = damped_step(at_slope(slope), target, model, damping, (10.0, np.ones(1)))
    return step.direction[0], after


def test_the_first_step_is_newton_s():
    length, after = step_from(Damping(np.eye(2)), slope=50.0)
    assert length == pytest.approx(50.0)
    assert after.level == 0


def test_a_step_within_reach_is_left_alone():
    length, after = step_from(Damping(np.eye(2), lengths=(0.4, 0.1)), slope=1.0)
    assert length == pytest.approx(1.0)
    assert after.level == 0


def test_a_step_beyond_reach_is_damped_until_it_is_not_and_the_damping_stays():
    """Under damping ν it is 1 / (1 + ν) long: .3 is reached with ν at least 2.34."""
    length, after = step_from(Damping(np.eye(2), lengths=(0.1, 0.05)), slope=1.0)
    assert after.level == pytest.approx(0.01 * 4.0**4)
    assert length == pytest.approx(1 / (1 + after.level)) and length <= 0.3
    assert after.lengths == (0.1, 0.05)


@pytest.mark.parametrize("level", [0.0, 11.0])
def test_a_step_that_damping_does_not_shorten_enough_is_left_alone(level):
    length, after = step_from(Damping(np.eye(2), level, lengths=(1e-9,)), slope=1.0)
    assert length == pytest.approx(1 / (1 + level))
    assert after.level == level


def rounds_of(seed):
    """The state before each round of a run, the state after it, and what was told."""
    rules = [Difference("demographic_parity", "race", 0.01)]
    problem, runtime = pose(simulated_clients(seed), rules, l2=1e-3)
    method = SQP(curvature="exact")
    state = method.init(zeros_for(runtime), problem)
    while state.status == "running":
        reports = runtime.evaluate(state.request)
        after, info = method.step(state, reports)
        yield state, after, info, reports
        state = after
    assert state.status == "converged"


@pytest.mark.parametrize("seed", [6, 7])  # without the limit both have a longer step
def test_in_a_run_no_full_step_is_more_than_three_times_as_long_as_the_last_two(seed):
    full = []
    for before, after, info, _ in rounds_of(seed):
        step = after.params - before.params
        if info.step == 1 and step.any():
            full.append(float(np.sqrt(step @ after.damping.metric @ step)))
    assert len(full) >= 4
    for *last, length in zip(full, full[1:], full[2:], strict=False):
        assert length <= 3.0 * max(last) * (1 + 1e-9)


@pytest.mark.parametrize("seed", [0, 8])
def test_a_run_takes_steps_that_the_merit_alone_refuses(seed):
    saved = 0
    for before, _, info, reports in rounds_of(seed):
        if info.step != 1 or before.search.settled:
            continue
        options = SQP(curvature="exact").resolved(before.params.size)
        at = evaluate_point(before.problem, before.request.points[0].params, reports)
        rows = target_of(options, before).rows(at)
        saved += not replace(before.search, augmented=None).accepts(0, rows)
    assert saved >= 1


def test_far_from_an_optimum_the_lengths_of_past_steps_are_forgotten():
    """Features of every second client in other units, and a start far away."""
    datas = simulated_clients(0, n_clients=5, n_rows=30)
    units = {c: replace(d, X=d.X * 30 ** (i % 2)) for i, (c, d) in enumerate(datas.items())}
    rules = [Difference("demographic_parity", "race", 0.02)]
    problem, runtime = pose(units, rules, l2=1e-4)
    method = SQP(curvature="exact")
    start = 2.0 * np.random.default_rng(0).normal(size=zeros_for(runtime).size)
    state, n_far = method.init(start, problem), 0
    while state.status == "running":
        before = state
        state, info = method.step(state, runtime.evaluate(state.request))
        if before.damping.metric.size and info.step and before.kkt > 1:
            n_far += 1
            assert state.damping.lengths == ()
    assert n_far >= 2
    assert state.status == "converged"
