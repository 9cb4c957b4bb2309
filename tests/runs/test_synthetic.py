"""The paper's synthetic problem has a closed-form optimum; the method must find it."""

import numpy as np
import pytest
from benchmarks.in_process import InProcess
from scipy.optimize import minimize

from fcfl._types import CurvatureWeights, Point
from fcfl.methods.two_stage import TwoStage
from fcfl.problem import Problem
from fcfl.runs.settings import SYNTHETIC
from fcfl.runs.synthetic import SyntheticClient, constrained_optimum, start
from helpers import SYNTHETIC_RATE, assert_derivative, bound_rate, train

BUDGETS = [0.2, 0.4, 0.6, 0.8]
client = SyntheticClient()


def ask(params, want="values", weights=None):
    return client.report(Point(params, want, None if weights is None else {SYNTHETIC: weights}))


def objectives(params):
    """Both objectives as the paper writes them."""
    center = np.ones(params.size) / np.sqrt(params.size)
    return [1 - np.exp(-(np.linalg.norm(params + sign * center) ** 2)) for sign in (-1, 1)]


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_rate_are_the_papers_objectives(seed):
    params = np.random.default_rng(seed).standard_normal(20) / 4
    report = ask(params)
    assert [report.loss, *report.rates] == pytest.approx(objectives(params), rel=1e-13)
    assert report.loss_grad is report.rate_grads is report.curvature is None


@pytest.mark.parametrize("seed", range(3))
def test_gradients_and_curvature_are_the_derivatives(seed):
    rng = np.random.default_rng(seed)
    params = rng.standard_normal(20) / 4
    weights = CurvatureWeights(rng.random(), rng.standard_normal(1))
    report = ask(params, "curvature", weights)
    assert_derivative(report.loss_grad, lambda p: ask(p).loss, params)
    assert_derivative(report.rate_grads, lambda p: ask(p).rates, params)

    def lagrangian_grad(p):
        at = ask(p, "gradients")
        return weights.loss * at.loss_grad + weights.rates @ at.rate_grads

    assert_derivative(report.curvature, lagrangian_grad, params)


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_constrained_optimum_is_that_of_slsqp(budget):
    answer = minimize(
        lambda p: ask(p).loss,
        -0.5 * client.center,
        jac=lambda p: ask(p, "gradients").loss_grad,
        constraints={
            "type": "ineq",
            "fun": lambda p: budget - ask(p).rates,
            "jac": lambda p: -ask(p, "gradients").rate_grads,
        },
        method="SLSQP",
        options={"ftol": 1e-9},
    )
    assert answer.success
    assert constrained_optimum(budget) == pytest.approx(answer.fun, abs=1e-7)


def test_the_optimum_falls_with_the_budget_to_zero_where_it_binds_no_more():
    optima = [constrained_optimum(budget) for budget in np.linspace(0, 0.999, 50)]
    assert np.all(np.diff(optima) <= 0)
    assert optima[0] == pytest.approx(1 - np.exp(-4)) and optima[-1] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_starts_are_where_they_say(seed):
    inside, outside = (ask(start(feasible=feasible, seed=seed)) for feasible in (True, False))
    assert inside.rates[0] < min(BUDGETS) and outside.rates[0] > max(BUDGETS)
    assert inside.loss > 0.9 and outside.loss > 0.9


@pytest.mark.parametrize("feasible", [True, False])
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_two_stage_method_finds_the_constrained_optimum(budget, feasible):
    problem = Problem((SYNTHETIC,), np.ones(1), 1, bound_rate(SYNTHETIC, SYNTHETIC_RATE, budget))
    method = TwoStage(step_size=1.0, rounds=(300, 100))
    for seed in range(2):
        params = start(feasible=feasible, seed=seed)
        rounds = train(method, problem, InProcess({SYNTHETIC: client}), params)
        loss, rate = objectives(rounds[-1][0].state.params)
        assert rate <= budget + 1e-9
        assert loss == pytest.approx(constrained_optimum(budget), abs=1e-6)
        rates = [p.state.violations[0] + budget for p, _ in rounds[1:]]
        if feasible:
            assert max(rates) <= budget  # it never left


@pytest.mark.parametrize("weights", [None, {"other": CurvatureWeights(1.0, np.ones(1))}])
def test_curvature_without_weights_is_refused(weights):
    with pytest.raises(ValueError, match=rf"`curvature_weights` must name client '{SYNTHETIC}'"):
        client.report(Point(np.zeros(20), "curvature", weights))
