import numpy as np
import pytest
from on_rows import finish, lowest_sum, pose_for

from fcfl._types import Point, Request
from fcfl.methods.baselines import FairReg, penalised_loss
from fcfl.problem import evaluate_point
from fcfl.rules import Difference
from helpers import RACE, TWO_ATTRIBUTES, assert_derivative, simulated_clients

RULES = [
    Difference("demographic_parity", "race", 0.01),
    Difference("equalized_odds", "sex"),
]


def evaluate(problem, runtime, params):
    reports = runtime.evaluate(Request((Point(params, "gradients"),)))
    return evaluate_point(problem, params, reports)


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_that_of_losses_plus_disparities(seed):
    datas = simulated_clients(seed, levels=TWO_ATTRIBUTES)
    problem, runtime = pose_for(FairReg(), datas, RULES)
    at = 0.2 * np.random.default_rng(seed).standard_normal(5)

    def value(params):
        return penalised_loss(evaluate(problem, runtime, params), 0.7)[0]

    assert_derivative(penalised_loss(evaluate(problem, runtime, at), 0.7)[1], value, at, step=1e-5)


def test_the_penalty_is_the_sum_of_all_clients_disparities_each_once():
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose_for(FairReg(), datas, [Difference("demographic_parity", "race")])
    at = evaluate(problem, runtime, np.array([1.0, -0.5, 0.3, 0.8, 0.1]))
    gaps = sum(abs(report.rates[0] - report.rates[1]) for report in at.reports)
    np.testing.assert_allclose(penalised_loss(at, 2.0)[0], at.losses.sum() + 2.0 * gaps)


def test_without_a_penalty_it_minimises_the_sum_of_the_losses():
    datas = simulated_clients(1, levels=RACE)
    method = FairReg(weight=0.0, step_size=1.0, rounds=20000, tolerance=1e-8)
    state, runtime = finish(method, datas)
    assert state.status == "converged"
    np.testing.assert_allclose(state.params, lowest_sum(runtime, 1e-2, np.ones(3)), atol=1e-5)


@pytest.mark.thorough
def test_a_heavier_penalty_buys_less_disparity_for_more_loss():
    datas = simulated_clients(2, levels=RACE)
    losses, gaps = [], []
    for weight in (0.0, 0.1, 1.0, 10.0):
        state, runtime = finish(FairReg(weight=weight, rounds=2000), datas)
        at = evaluate(state.problem, runtime, state.params)
        losses.append(at.losses.sum())
        gaps.append(penalised_loss(at, 1.0)[0] - at.losses.sum())
    assert losses == sorted(losses) and gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.1 > gaps[-1]


def test_the_result_is_the_best_point_it_saw():
    state, runtime = finish(FairReg(step_size=3.0, rounds=60), simulated_clients(3, levels=RACE))
    at = evaluate(state.problem, runtime, state.params)
    np.testing.assert_allclose(penalised_loss(at, 1.0)[0], state.lowest, rtol=1e-12)
