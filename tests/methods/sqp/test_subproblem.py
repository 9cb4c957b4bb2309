"""One step's programme: its rows against finite differences, its solution against duality."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.in_process import InProcess
from scipy.optimize import minimize

from fcfl._types import Point, Report, Request
from fcfl.methods.sqp import subproblem
from fcfl.methods.sqp.curvature import Exact, no_memory
from fcfl.methods.sqp.subproblem import (
    Multipliers,
    Target,
    curvature_weights,
    kkt_residual,
    lagrangian_grad,
    lagrangian_hessian,
    merit_of_rows,
    solve_step,
)
from fcfl.problem import Problem, build_problem, evaluate_point
from fcfl.rules import Difference, rates_needed
from fcfl.runs.settings import SYNTHETIC
from fcfl.runs.synthetic import SyntheticClient
from helpers import RACE, SYNTHETIC_RATE, assert_derivative, bound_rate, pose, simulated_clients

RULES = [Difference("demographic_parity", "race", 0.05)]
NONE = np.zeros(0)
TARGETS = {
    "largest": lambda at: Target(None, NONE),
    "smooth": lambda at: Target(0.1, NONE),
    "mean": lambda at: Target(np.inf, NONE),
    "mean under caps": lambda at: Target(np.inf, at.losses + 1e-3),
    "largest under caps": lambda at: Target(None, at.losses - 1e-2),
}
targets = pytest.mark.parametrize("make_target", TARGETS.values(), ids=TARGETS)


def simulated_point(seed, n_clients=40, n_params=12, flat=0.0, l2=0.0):
    """Reports that no client sent: about half of the clients exceed their budget."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(n_params)
    reports = {}
    for k in range(n_clients):
        loss_grad = shared + rng.standard_normal(n_params)
        rate_grads = rng.standard_normal((2, n_params))
        if rng.random() < flat:
            loss_grad, rate_grads = 0 * loss_grad, 0 * rate_grads
        rates = np.clip(0.5 + rng.normal(0, 0.05, 2), 0, 1)
        loss = float(rng.normal(0.5, 0.05))
        group_counts = np.array([50.0, 50.0])
        reports[f"c{k:03d}"] = (Report(100.0, loss, group_counts, rates, loss_grad, rate_grads),)
    problem, _ = build_problem(RULES, rates_needed(RULES, RACE), reports, l2=l2)
    return evaluate_point(problem, np.ones(n_params), reports)


def curvature_of(seed, n_params=12):
    rng = np.random.default_rng(seed)
    if seed % 2:
        memory = no_memory(n_params, 0.5)
        for s in rng.standard_normal((4, n_params)):
            memory = memory.updated(s, s + 0.3 * rng.standard_normal(n_params), s, 10)
        return memory
    root = rng.standard_normal((n_params, n_params))
    return Exact.from_hessian(root @ root.T + 0.1 * np.eye(n_params))


def evaluate(problem, runtime, params):
    reports = runtime.evaluate(Request((Point(params, "gradients"),)))
    return evaluate_point(problem, params, reports)


@pytest.fixture
def real():
    """A function from parameters to what real clients say there."""
    problem, runtime = pose(simulated_clients(0), RULES, l2=0.3)
    return lambda params: evaluate(problem, runtime, params)


# --- rows ---


@targets
def test_rows_and_their_gradients_agree_with_finite_differences(real, make_target):
    params = 0.4 * np.random.default_rng(1).standard_normal(5)
    at = real(params)
    target = make_target(at)

    def rows(theta):
        there = real(theta)
        return np.concatenate(
            [
                target.objectives(there.losses),
                target.constraints(there.losses, there.violations),
            ]
        )

    n_objectives = target.objectives(at.losses).size
    objectives, kept = target.gradients(
        at, np.arange(n_objectives), np.arange(rows(params).size - n_objectives)
    )
    assert_derivative(np.vstack([objectives, kept]), rows, params)


@targets
def test_linearised_rows_are_values_plus_gradients_times_the_direction(real, make_target):
    params = 0.4 * np.random.default_rng(2).standard_normal(5)
    direction = np.random.default_rng(3).standard_normal(5)
    at = real(params)
    target = make_target(at)
    after_a, after_b = target.linearised(at, direction)
    a, b = target.objectives(at.losses), target.constraints(at.losses, at.violations)
    objectives, kept = target.gradients(at, np.arange(a.size), np.arange(b.size))
    np.testing.assert_allclose(after_a, a + objectives @ direction, atol=1e-12)
    np.testing.assert_allclose(after_b, b + kept @ direction, atol=1e-12)


@targets
def test_the_lagrangians_hessian_is_the_derivative_of_its_gradient(make_target):
    problem, runtime = pose(simulated_clients(0), RULES, l2=0.3)
    params = 0.4 * np.random.default_rng(4).standard_normal(5)
    plain = evaluate(problem, runtime, params)
    target, n_rows = make_target(plain), len(problem.constraints)
    smooth = target.temperature is not None
    weights = target.loss_weights(plain.losses) if smooth else np.array([0.5, 0.2, 0.3])
    if target.caps.size:
        weights = weights + np.array([0.4, 0.0, 1.1])
    multipliers = Multipliers(weights, np.random.default_rng(5).random(n_rows))
    point = Point(params, "curvature", curvature_weights(problem, multipliers))
    at = evaluate_point(problem, params, runtime.evaluate(Request((point,))))

    def gradient(theta):
        return lagrangian_grad(multipliers, target, evaluate(problem, runtime, theta))

    assert_derivative(lagrangian_hessian(multipliers, target, at), gradient, params)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 100.0])
def test_a_temperature_lies_between_mean_and_maximum_and_its_weights_are_its_gradient(temperature):
    losses = np.array([0.2, 0.5, 0.45])
    target = Target(temperature, NONE)
    (value,) = target.objectives(losses)
    assert losses.mean() <= value <= losses.max()
    assert_derivative(
        target.loss_weights(losses), lambda x: target.objectives(x)[0], losses, step=1e-4
    )
    assert target.loss_weights(losses).sum() == pytest.approx(1.0)


def test_a_smooth_objective_of_equal_losses_is_that_loss_at_any_temperature():
    for temperature in (1e-3, 1.0, 1e3, np.inf):
        assert Target(temperature, NONE).objectives(np.full(5, 0.4))[0] == pytest.approx(0.4)


def test_an_infinite_temperature_is_the_mean():
    losses = np.array([0.1, 0.5, 0.9])
    assert Target(np.inf, NONE).objectives(losses)[0] == losses.mean()
    near = Target(1e6, NONE).objectives(losses)[0]
    assert near == pytest.approx(losses.mean(), abs=1e-6)


def test_the_merit_is_the_largest_objective_and_the_violations():
    at = simulated_point(0)
    broken = np.maximum(at.violations, 0)
    assert broken.any()
    objective, violations = merit_of_rows(Target(None, NONE).rows(at))
    assert objective == at.losses.max()
    np.testing.assert_array_equal(violations, broken)
    objective, violations = merit_of_rows(Target(np.inf, at.losses - 0.1).rows(at))
    assert objective == pytest.approx(at.losses.mean())
    np.testing.assert_allclose(violations, [*np.full(at.losses.size, 0.1), *broken])


# --- the solution ---


def assert_solves(step, at, target, curvature, penalty):
    """Weights are feasible, the direction is theirs, and primal and dual cost the same."""
    a, b = target.objectives(at.losses), target.constraints(at.losses, at.violations)
    objectives, kept = target.gradients(at, np.arange(a.size), np.arange(b.size))
    x, mu = step.objective_weights, step.constraint_weights
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1.0)
    assert np.all((mu >= 0) & (mu <= penalty))
    gradient = x @ objectives + mu @ kept
    np.testing.assert_allclose(step.lagrangian_grad, gradient, atol=1e-9 * (1 + penalty))
    np.testing.assert_allclose(step.direction, -curvature.solve(gradient), atol=1e-8)
    after_a, after_b = a + objectives @ step.direction, b + kept @ step.direction
    bend = -step.direction @ gradient
    primal = after_a.max() + bend / 2 + penalty * np.maximum(after_b, 0).sum()
    dual = x @ a + mu @ b - bend / 2
    assert primal == pytest.approx(dual, abs=1e-8 * (1 + penalty))
    assert step.objective_decrease == pytest.approx(a.max() - after_a.max(), abs=1e-10)
    assert step.infeasibility == pytest.approx(np.maximum(after_b, 0).sum(), abs=1e-9)
    assert step.violation_decreases.sum() == pytest.approx(
        np.maximum(b, 0).sum() - step.infeasibility, abs=1e-9
    )


@targets
@pytest.mark.parametrize("penalty", [0.01, 10.0, 1e4])
def test_a_step_solves_its_programme(make_target, penalty):
    for seed in range(6):
        at = simulated_point(seed, n_clients=8 + 10 * seed, flat=0.2, l2=0.1)
        target, curvature = make_target(at), curvature_of(seed)
        step = solve_step(at, target, curvature, penalty)
        assert_solves(step, at, target, curvature, penalty)
        assert step.is_sound(penalty)
        assert step.merit_decrease(penalty) >= -1e-9 * (1 + penalty)


def test_a_step_is_what_scipy_finds_for_the_primal():
    at = simulated_point(3, n_clients=3, n_params=4)
    target = Target(None, NONE)
    step = solve_step(at, target, no_memory(4), 10.0)
    grads, rows = at.loss_grads, at.violation_grads(np.arange(len(at.violations)))
    n_rows = len(rows)

    def cost(x):
        return x[4] + x[:4] @ x[:4] / 2 + 10.0 * x[5:].sum()

    def slacks(x):
        a, b = at.losses + grads @ x[:4], at.violations + rows @ x[:4]
        return np.concatenate([x[4] - a, x[5:] - b, x[5:]])

    answer = minimize(
        cost,
        np.concatenate([np.zeros(4), [at.losses.max()], np.maximum(at.violations, 0)]),
        constraints={"type": "ineq", "fun": slacks},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-14},
    )
    assert answer.x.size == 5 + n_rows
    np.testing.assert_allclose(step.direction, answer.x[:4], atol=1e-5)


@targets
@pytest.mark.parametrize("first_rows", [1, 3, 10])
@pytest.mark.parametrize("flat", [0.0, 0.3])
def test_screening_never_changes_the_step(monkeypatch, make_target, first_rows, flat):
    """A few rows first, more as they are violated: the same as all rows at once."""
    for seed in range(6):
        at = simulated_point(seed, n_clients=50, flat=flat)
        target, curvature = make_target(at), curvature_of(seed)
        penalty = 10.0 ** (seed % 3)
        steps = []
        for size in (first_rows, 10_000):
            monkeypatch.setattr(subproblem, "_FIRST_ROWS", size)
            steps.append(solve_step(at, target, curvature, penalty))
        few, everything = steps
        size = np.linalg.norm(everything.direction)
        assert np.linalg.norm(few.direction - everything.direction) <= 1e-7 * size
        np.testing.assert_allclose(
            few.lagrangian_grad, everything.lagrangian_grad, atol=1e-7 * (1 + penalty)
        )
        for part in ("objective_decrease", "infeasibility"):
            assert getattr(few, part) == pytest.approx(getattr(everything, part), abs=1e-8)
        assert_solves(few, at, target, curvature, penalty)


def test_screening_gathers_few_of_many_rows(monkeypatch):
    """Of three hundred clients with two budget rows each, the gradients of most are not read."""
    at = simulated_point(1, n_clients=300)
    asked = []
    gradients = Target.gradients

    def counted(self, here, objective, constraint):
        asked.append(objective.size + constraint.size)
        return gradients(self, here, objective, constraint)

    monkeypatch.setattr(Target, "gradients", counted)
    step = solve_step(at, Target(None, NONE), no_memory(12), 10.0)
    assert sum(asked) < 900 / 2
    assert step.objective_weights.size == 300
    assert step.constraint_weights.size == 600


def test_no_constraints_leave_a_plain_descent_step():
    problem, runtime = pose(simulated_clients(0, 1), [], l2=0.1)
    at = evaluate(problem, runtime, np.ones(5))
    step = solve_step(at, Target(None, NONE), no_memory(5), 10.0)
    np.testing.assert_allclose(step.direction, -at.loss_grads[0])
    assert (step.violation_decreases.size, step.infeasibility) == (0, 0.0)
    assert step.objective_decrease == pytest.approx(at.loss_grads[0] @ at.loss_grads[0])


def test_a_step_that_raises_the_merit_is_unsound():
    at = simulated_point(0)
    step = solve_step(at, Target(None, NONE), no_memory(12), 10.0)
    assert step.is_sound(10.0)
    higher = step.here[0] + 1.0, step.here[1]
    assert not replace(step, predicted=higher).is_sound(10.0)
    exceeded = step.here[0], np.maximum(step.here[1], 0.0) + 1.0
    assert not replace(step, predicted=exceeded).is_sound(10.0)


# --- the KKT residual ---


def bounded_bump(budget, offset=0.0):
    """The synthetic problem at its constrained optimum, which lies between the two minimisers."""
    client = SyntheticClient()
    problem = Problem((SYNTHETIC,), np.ones(1), 1, bound_rate(SYNTHETIC, SYNTHETIC_RATE, budget))
    distance = np.sqrt(-np.log1p(-budget))
    params = (distance - 1.0 + offset) * client.center
    return evaluate(problem, InProcess({SYNTHETIC: client}), params)


@pytest.mark.parametrize("budget", [0.2, 0.4, 0.6, 0.8])
def test_the_residual_is_zero_at_a_known_optimum(budget):
    at = bounded_bump(budget)
    target = Target(None, NONE)
    step = solve_step(at, target, no_memory(20), 100.0)
    assert kkt_residual(at, target, step) <= 1e-12
    gradient, row = at.loss_grads[0], at.violation_grads(np.arange(1))[0]
    assert step.constraint_weights[0] == pytest.approx(-(gradient @ row) / (row @ row))


@pytest.mark.parametrize("offset", [-0.1, 0.1])
def test_the_residual_sees_slack_as_well_as_violation(offset):
    at = bounded_bump(0.5, offset)
    target = Target(None, NONE)
    step = solve_step(at, target, no_memory(20, 1e-3), 100.0)
    assert kkt_residual(at, target, step) > 1e-2


def test_each_part_of_the_residual_counts():
    at = simulated_point(0, n_clients=3)
    target = Target(None, NONE)
    step = solve_step(at, target, no_memory(12), 10.0)
    n_rows = at.violations.size
    quiet = replace(
        step,
        lagrangian_grad=np.zeros(12),
        objective_weights=np.eye(3)[np.argmax(at.losses)],
        constraint_weights=np.zeros(n_rows),
    )

    def residual(step, violation=-0.1):
        rows = at.losses, np.full(n_rows, violation)
        return kkt_residual(at, target, replace(step, here=rows))

    assert residual(quiet) == 0.0
    assert residual(replace(quiet, lagrangian_grad=np.full(12, -0.2))) == pytest.approx(0.2)
    loose = replace(quiet, constraint_weights=np.eye(n_rows)[0] * 3.0)
    assert residual(loose) == pytest.approx(0.3)
    lowest = replace(quiet, objective_weights=np.eye(3)[np.argmin(at.losses)])
    assert residual(lowest) == pytest.approx(np.ptp(at.losses))
    assert residual(quiet, 0.4) == pytest.approx(0.4)
