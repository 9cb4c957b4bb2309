"""Losses counted from each client's own best: what is lost by sharing a model."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fcfl import SQP, Difference
from fcfl._types import Point, Request
from fcfl.server.problem import evaluate_point
from fcfl.training.own_best import with_own_best
from helpers import pose, simulated_clients, train, zeros_for

PARITY = [Difference("demographic_parity", "race", 0.05)]


def losses_at(problem, runtime, params):
    return evaluate_point(problem, params, runtime.evaluate(Request((Point(params),)))).losses


@pytest.mark.parametrize("seed", range(3))
def test_own_best_is_the_minimum_that_an_independent_solver_finds(seed):
    problem, runtime = pose(simulated_clients(seed), PARITY, l2=1e-2)
    found = with_own_best(problem, runtime, zeros_for(runtime)).own_best_losses
    for k in range(len(problem.clients)):
        best = minimize(lambda p, k=k: losses_at(problem, runtime, p)[k], zeros_for(runtime))
        assert found[k] == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_shared_model_has_a_negative_excess(seed):
    problem, runtime = pose(simulated_clients(seed), PARITY, l2=1e-2)
    excess = with_own_best(problem, runtime, zeros_for(runtime))
    rng = np.random.default_rng(seed)
    for params in rng.standard_normal((50, zeros_for(runtime).size)):
        losses = losses_at(problem, runtime, params)
        assert (losses_at(excess, runtime, params) >= -1e-6).all()
        np.testing.assert_allclose(
            losses_at(excess, runtime, params), losses - excess.own_best_losses, atol=1e-15
        )


def test_the_largest_excess_is_lower_than_under_plain_min_max():
    """A client of coin flips is the worst under any model; its excess is not."""
    datas = simulated_clients(1)
    hard = next(iter(datas))
    coin = np.random.default_rng(0).integers(0, 2, datas[hard].n_rows).astype(float)
    datas[hard] = type(datas[hard])(datas[hard].X, coin, datas[hard].groups, datas[hard].levels)
    problem, runtime = pose(datas, PARITY, l2=1e-3)
    excess = with_own_best(problem, runtime, zeros_for(runtime))
    largest = {}
    for name, posed in (("plain", problem), ("excess", excess)):
        end = train(SQP(), posed, runtime, zeros_for(runtime))[-1][0].state
        assert end.status == "converged"
        largest[name] = losses_at(excess, runtime, end.params).max()
    assert largest["excess"] < 0.8 * largest["plain"]
