"""Prices against finite differences of the re-solved optimum."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import Point, Request
from fcfl.methods.sqp.sqp import SQP
from fcfl.problem import SHIFT, budget_prices, evaluate_point
from fcfl.rules import Difference, Ratio
from helpers import pose, simulated_clients, train, zeros_for

DP = "demographic_parity"


def end_of(method, problem, runtime, start=None):
    """The last state of a run, and the evaluation there."""
    start = zeros_for(runtime) if start is None else start
    state = train(method, problem, runtime, start)[-1][0].state
    reports = runtime.evaluate(Request((Point(state.params),)))
    return state, evaluate_point(problem, state.params, reports)


@pytest.mark.parametrize(("kind", "budget"), [(Difference, 0.02), (Ratio, 0.95)])
@pytest.mark.parametrize("seed", [0, 3])
def test_prices_are_slopes_of_the_optimum_in_each_budget(kind, budget, seed):
    datas = simulated_clients(seed, n_rows=150)
    method = SQP(rounds=(300, 0), tolerance=1e-9)

    def solve(budgets, start=None):
        problem, runtime = pose(datas, [kind(DP, "race", budgets)], l2=1e-2)
        return end_of(method, problem, runtime, start)

    base = dict.fromkeys(datas, budget)
    state, end = solve(base)
    prices = {price.client: price.value for price in budget_prices(end, state.prices)}
    assert max(prices.values()) > 0
    step = 1e-5 if kind is Difference else -1e-5  # towards a looser budget
    for client in datas:
        looser = solve(base | {client: budget + step}, state.params)[1].losses.max()
        tighter = solve(base | {client: budget - step}, state.params)[1].losses.max()
        slope = (tighter - looser) / (2 * abs(step))
        assert prices[client] == pytest.approx(slope, rel=0.02, abs=2e-4)


def test_prices_are_listed_with_the_most_expensive_budget_first():
    problem, runtime = pose(simulated_clients(0), [Difference(DP, "race", 0.01)], l2=1e-2)
    state, end = end_of(SQP(), problem, runtime)
    prices = budget_prices(end, state.prices)
    assert [price.value for price in prices] == sorted((p.value for p in prices), reverse=True)
    assert {price.client for price in prices} == set(problem.clients)
    assert np.isfinite([price.value for price in prices]).all()


def test_a_limit_on_rate_shifts_is_no_budget_and_has_no_price():
    problem, runtime = pose(simulated_clients(0), [Difference(DP, "race", 0.01)], l2=1e-2)
    end, n = end_of(SQP(), problem, runtime)[1], len(problem.constraints)
    limit = replace(problem.constraints.rows[0], client=None, rule=SHIFT, metric=SHIFT)
    limits = replace(problem.constraints.take(np.arange(1)), rows=(limit,))
    limited = replace(end, problem=replace(problem, constraints=problem.constraints.plus(limits)))
    weights = np.arange(1.0, n + 2.0)
    assert budget_prices(limited, weights) == budget_prices(end, weights[:n])
