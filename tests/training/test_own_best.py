"""Losses counted from each client's own best: what is lost by sharing a model."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fcfl import SQP, Difference
from fcfl._types import Point, Request
from fcfl.client.questions import Setup
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.problem.evaluation import build_problem, evaluate_point
from fcfl.rules import rates_needed
from fcfl.training.own_best import with_own_best
from helpers import RACE, simulated_clients, train

PARITY = (Difference("demographic_parity", "race", 0.05),)
SETUP = Setup(Linear(4), rates_needed(PARITY, RACE), PARITY)
ZERO = np.zeros(5)


def posed(datas, l2):
    """The problem, and the clients that state it."""
    federation = Federation.from_rows(datas)
    counts = federation.report(SETUP, Request((Point(ZERO),)))
    problem, _ = build_problem(PARITY, SETUP.rates, counts, l2=l2)
    return problem, federation


def losses_at(problem, federation, params):
    reports = federation.report(SETUP, Request((Point(params),)))
    return evaluate_point(problem, params, reports).losses


@pytest.mark.parametrize("seed", range(3))
def test_own_best_is_the_minimum_that_an_independent_solver_finds(seed):
    problem, federation = posed(simulated_clients(seed), 1e-2)
    found = with_own_best(problem, federation, SETUP, ZERO).own_best_losses
    for k in range(len(problem.clients)):
        best = minimize(lambda p, k=k: losses_at(problem, federation, p)[k], ZERO)
        assert found[k] == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_shared_model_has_a_negative_excess(seed):
    problem, federation = posed(simulated_clients(seed), 1e-2)
    excess = with_own_best(problem, federation, SETUP, ZERO)
    rng = np.random.default_rng(seed)
    for params in rng.standard_normal((50, ZERO.size)):
        losses = losses_at(problem, federation, params)
        assert (losses_at(excess, federation, params) >= -1e-6).all()
        np.testing.assert_allclose(
            losses_at(excess, federation, params), losses - excess.own_best_losses, atol=1e-15
        )


def test_the_largest_excess_is_lower_than_under_plain_min_max():
    """A client of coin flips is the worst under any model; its excess is not."""
    problem, federation = posed(with_coin_flips(simulated_clients(1)), 1e-3)
    excess = with_own_best(problem, federation, SETUP, ZERO)
    largest = {}
    for name, stated in (("plain", problem), ("excess", excess)):
        end = train(SQP(), stated, federation.bind(SETUP), ZERO)[-1][0].state
        assert end.status == "converged"
        largest[name] = losses_at(excess, federation, end.params).max()
    assert largest["excess"] < 0.8 * largest["plain"]


def with_coin_flips(datas):
    """The same clients; the labels of the first are coin flips."""
    hard = next(iter(datas))
    coin = np.random.default_rng(0).integers(0, 2, datas[hard].n_rows).astype(float)
    flipped = type(datas[hard])(datas[hard].X, coin, datas[hard].groups, datas[hard].levels)
    return datas | {hard: flipped}
