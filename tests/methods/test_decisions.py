"""Decisions are brought inside the budgets by the least change of the model, at a limited cost."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl import SQP, Difference, Ratio
from fcfl._types import CurvatureWeights, Point, Request
from fcfl.data.client_data import ClientData
from fcfl.methods.decisions import _LENGTHS, RestoreDecisions
from fcfl.problem import evaluate_point
from helpers import RACE, identical, pose, train, zeros_for

PARITY = Difference("demographic_parity", "race", 0.03)
FAR = np.array([0.6, 0.8, -0.4, -0.5])  # a model that no budget was thought of for
ODDS = Difference("equalized_odds", "race", 0.08)


def clients(seed=0, n_rows=240):
    """Features without repeats, so that decisions change row by row; the first tells the group."""
    found = {}
    for place in range(2):
        rng = np.random.default_rng([seed, place])
        group = (rng.random(n_rows) < 0.4).astype(np.int32)
        X = rng.standard_normal((n_rows, 3))
        X[:, 0] += group
        y = (X @ [1.0, 1.0, -0.5] + rng.logistic(size=n_rows) > 0.6) * 1.0
        found[f"client-{place}"] = ClientData(X, y, {"race": group}, RACE)
    return found


def fitted(rules, seed):
    """A model whose smooth rates keep the budgets, the problem and who answers."""
    problem, runtime = pose(clients(seed), rules, l2=0.01)
    state = train(SQP(objective=1.0), problem, runtime, zeros_for(runtime))[-1][0].state
    assert state.status == "converged"
    return state.params, problem, runtime


def restored(start, problem, runtime, **options):
    """The last state."""
    return train(RestoreDecisions(**options), problem, runtime, np.asarray(start))[-1][0].state


def direction_of(state):
    return state.request.points[_LENGTHS.index(1.0)].params - state.params


def decided_at(problem, runtime, params):
    reports = runtime.evaluate(Request((Point(np.asarray(params), "decisions"),)))
    return evaluate_point(problem, np.asarray(params), reports)


def excess_by_hand(rules, params, seed):
    """By how much shares of rows with a logit of at least zero differ beyond the budgets."""
    over = 0.0
    for data in clients(seed).values():
        selected = data.X @ params[:-1] + params[-1] >= 0
        for rule in rules:
            for kind in rule.kinds:
                label = {"selection": None, "true_positive": 1, "false_positive": 0}[kind]
                there = np.ones(data.n_rows, bool) if label is None else data.y == label
                a, b = (selected[there & (data.groups["race"] == g)].mean() for g in (0, 1))
                wa, wb, bound = rule.pair_row(rule.budget)
                for one, other in ((a, b), (b, a)):
                    over += max(wa * one + wb * other - bound, 0.0)
    return over


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("rules", "seeds"),
    [
        ((PARITY,), (1, 2, 3, 5)),
        ((Ratio("demographic_parity", "race", 0.9),), (1, 3, 5)),
        ((ODDS,), (3, 5)),
    ],
)
def test_decisions_of_a_model_that_keeps_smooth_budgets_end_inside(rules, seeds, exact):
    for seed in seeds:
        start, problem, runtime = fitted(rules, seed)
        assert excess_by_hand(rules, start, seed) > 1e-3
        state = restored(start, problem, runtime, exact=exact)
        assert state.status == "converged" and state.excess == 0
        assert excess_by_hand(rules, state.params, seed) <= 1e-9
        before, after = (decided_at(problem, runtime, p) for p in (start, state.params))
        assert after.losses.mean() <= 1.05 * before.losses.mean()
        assert state.message.startswith("Decisions are within all budgets")


@pytest.mark.parametrize("seed", range(3))
def test_far_from_inside_it_comes_as_near_as_it_may_cost_and_says_what_is_left(seed):
    _, problem, runtime = fitted((PARITY,), seed)
    state = restored(FAR, problem, runtime)
    before, after = (decided_at(problem, runtime, p) for p in (FAR, state.params))
    assert after.losses.mean() <= 1.05 * before.losses.mean()
    left = excess_by_hand((PARITY,), state.params, seed)
    assert state.status == "stopped" and state.excess == pytest.approx(left)
    assert f"exceed budgets by {left:.4f}" in state.message
    assert left < excess_by_hand((PARITY,), FAR, seed)


def test_a_model_whose_decisions_are_inside_is_left_as_it_is():
    start, problem, runtime = fitted((PARITY,), 4)
    assert excess_by_hand((PARITY,), start, 4) == 0
    state = restored(start, problem, runtime)
    assert state.status == "converged" and state.rounds == (1,)
    assert identical(state.params, start)


def test_of_the_lengths_tried_the_shortest_one_inside_is_taken():
    problem, runtime = pose(clients(1), (PARITY,))
    start, method = FAR, RestoreDecisions(max_rise=0.2)
    state = method.init(start, problem)
    state, _ = method.step(state, runtime.evaluate(state.request))
    tried = [point.params for point in state.request.points]
    for length, params in zip(_LENGTHS, tried, strict=True):
        np.testing.assert_allclose(params, start + length * direction_of(state))
    after, info = method.step(state, runtime.evaluate(state.request))
    at = [decided_at(problem, runtime, params) for params in tried]
    limit = 1.2 * decided_at(problem, runtime, start).losses.mean()
    allowed = [i for i, one in enumerate(at) if one.losses.mean() <= limit]
    excess = [np.maximum(at[i].violations, 0).sum() for i in allowed]
    best = allowed[int(np.argmin(excess))]  # the first, which is the shortest, of equals
    assert identical(after.params, tried[best]) and info.step == _LENGTHS[best]


def test_the_direction_is_the_shortest_way_inside_in_the_metric_of_the_losses():
    """Of a single binding row: ``d = -H^-1 g v / (g . H^-1 g)``, here for one budget exceeded."""
    rules = (replace(PARITY, budget={"client-0": 0.03}),)
    problem, runtime = pose(clients(1), rules)
    start, method = FAR, RestoreDecisions()
    first = method.init(start, problem)
    reports = runtime.evaluate(first.request)
    state, _ = method.step(first, reports)
    hard, sharp = (evaluate_point(problem, start, reports, index) for index in (0, 1))
    (row,) = np.flatnonzero(hard.violations > 0)
    grad = sharp.violation_grads(np.array([row]))[0]
    hessian = sum(report.curvature for report in sharp.reports)
    far = np.linalg.solve(hessian, grad)
    expected = -far * (hard.violations[row] + 5e-3) / (grad @ far)
    np.testing.assert_allclose(direction_of(state), expected, rtol=1e-2, atol=1e-4)


def test_no_step_is_taken_that_costs_more_than_allowed():
    """At the optimum of the mean loss every step costs something: with no allowance, none is."""
    problem, runtime = pose(clients(0), (PARITY,), l2=0.0)
    params = zeros_for(runtime)
    for _ in range(30):  # Newton on the mean loss
        weights = dict.fromkeys(problem.clients, CurvatureWeights(0.5, np.zeros(problem.n_rates)))
        asked = Request((Point(params, "curvature", weights),))
        at = evaluate_point(problem, params, runtime.evaluate(asked))
        hessian = sum(report.curvature for report in at.reports)
        params = params - np.linalg.solve(hessian, at.loss_grads.mean(axis=0))
    first = train(RestoreDecisions(max_rise=0.0), problem, runtime, params)[-1][0].state
    assert first.status == "stopped" and identical(first.params, params) and first.excess > 0
    allowed = train(RestoreDecisions(max_rise=0.2), problem, runtime, params)[-1][0].state
    assert allowed.excess < first.excess


def test_it_stops_after_as_many_rounds_as_it_may_take():
    _, problem, runtime = fitted((PARITY,), 0)
    state = restored(FAR, problem, runtime, rounds=3, max_rise=1.0)
    assert state.rounds[0] <= 3 and state.status in ("stopped", "converged")
