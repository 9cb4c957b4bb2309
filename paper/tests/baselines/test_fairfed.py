from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_rows import different_clients, odd_clients, pose_for

from fcfl._types import Point, Request
from fcfl.models.model import rate_members
from fcfl.problem import evaluate_point
from fcfl.rules import Difference
from fcfl_paper.baselines.fairfed import (
    FairFed,
    disparity_distances,
    next_trust,
    pooled,
    reweighing,
)
from fcfl_paper.baselines.questions import cells
from helpers import RACE, simulated_clients, simulated_data, train, zeros_for


def test_the_weights_move_and_stay_on_the_simplex():
    method = FairFed(rounds=30, beta=0.3)
    problem, runtime = pose_for(method, different_clients(0))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    weights = np.array([state.weights for state in states])
    assert (weights >= 0).all() and np.abs(weights.sum(axis=1) - 1).max() < 1e-12
    np.testing.assert_allclose(weights[0], problem.n_rows / problem.n_rows.sum())
    assert np.abs(weights[-1] - weights[0]).max() > 0.01


def test_the_model_is_averaged_by_the_weights_that_moved():
    """A public version moves weights that only a printed number uses."""
    method = FairFed(rounds=6, beta=0.3)
    problem, runtime = pose_for(method, different_clients(1))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    for before, after in pairwise(states[1:-1]):
        reports = runtime.evaluate(before.request)
        models = np.array([reports[c][0].extras["local_params"] for c in problem.clients])
        onward = after.request.points[0].params
        np.testing.assert_allclose(onward, after.weights @ models, rtol=1e-12)
    assert np.abs(states[-1].weights - states[0].weights).max() > 1e-3


def test_without_beta_the_weights_are_the_row_shares():
    method = FairFed(rounds=10, beta=0.0)
    problem, runtime = pose_for(method, different_clients(0))
    state = train(method, problem, runtime, zeros_for(runtime))[-1][0].state
    np.testing.assert_allclose(state.weights, problem.n_rows / problem.n_rows.sum(), rtol=1e-12)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).flatmap(
        lambda d: st.tuples(st.just(d), st.integers(0, 2 ** len(d) - 1))
    ),
    st.floats(0.0, 50.0),
)
def test_a_client_far_from_the_global_disparity_loses_weight(case, beta):
    distances = np.array(case[0])
    distances[[bool(case[1] >> k & 1) for k in range(distances.size)]] = np.nan
    weights = np.random.default_rng(0).dirichlet(np.ones(distances.size))
    moved = next_trust(weights, distances, beta)
    assert (moved >= 0).all() and abs(moved.sum() - 1) < 1e-9
    known = np.isfinite(distances)
    if beta and (moved > 0).all() and known.sum() > 1:
        shift = moved - weights
        order = np.argsort(distances[known])
        assert (np.diff(shift[known][order]) <= 1e-12).all()


def test_local_weights_make_label_and_group_independent():
    """Kamiran and Calders: under them every group has the client's share of label 1."""
    method = FairFed()
    datas = simulated_clients(0, levels=RACE)
    problem, runtime = pose_for(method, datas)
    negative, positive = cells(problem)
    reports = runtime.evaluate(Request((Point(zeros_for(runtime)),)))
    for client, data in datas.items():
        added = reweighing(reports[client][0], negative, positive)
        members = rate_members(data, problem.rates)
        labels = data.y.astype(int)
        weights = 1.0 + (members * added[labels]).sum(axis=1)
        known = data.groups["race"] >= 0
        np.testing.assert_allclose(weights[known].sum(), known.sum())
        assert (weights[~known] == 1.0).all()
        shares = [
            weights[(data.groups["race"] == g) & (labels == 1)].sum()
            / weights[data.groups["race"] == g].sum()
            for g in (0, 1)
        ]
        np.testing.assert_allclose(shares, data.y[known].mean())


@pytest.mark.parametrize("metric", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_the_global_disparity_is_that_of_all_rows_together(metric):
    datas = simulated_clients(1, levels=RACE)
    method = FairFed()
    problem, runtime = pose_for(method, datas, [Difference(metric, "race")])
    params = np.random.default_rng(0).standard_normal(5)
    at = evaluate_point(problem, params, runtime.evaluate(Request((Point(params),))))
    together = pooled(at.reports)
    rows = {"all": simulated_data(0)}
    data = rows["all"]
    joined = type(data)(
        np.concatenate([d.X for d in datas.values()]),
        np.concatenate([d.y for d in datas.values()]),
        {"race": np.concatenate([d.groups["race"] for d in datas.values()])},
        RACE,
    )
    _, one = pose_for(method, {"all": joined}, [Difference(metric, "race")])
    expected = one.evaluate(Request((Point(params),)))["all"][0]
    np.testing.assert_allclose(together.rates, expected.rates, rtol=1e-12)
    np.testing.assert_allclose(together.group_counts, expected.group_counts)
    gaps = [r.rates[list(problem.comparisons[0])] @ [1, -1] for r in (*at.reports, together)]
    if len(problem.comparisons) == 1:
        expected_distances = np.abs(np.array(gaps[:-1]) - gaps[-1])
        np.testing.assert_allclose(disparity_distances(at), expected_distances, rtol=1e-9)


def test_a_client_with_one_group_keeps_its_weight():
    method = FairFed(rounds=2, beta=0.05)
    problem, runtime = pose_for(method, odd_clients("one group"))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    odd = problem.clients.index("odd")
    before, after = states[1].weights, states[2].weights
    assert after[odd] == pytest.approx(before[odd], rel=1e-9)
    assert np.abs(after - before).max() >= 0
