from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_rows import different_clients, finish, losses_at, lowest_maximum, pose_for

from fcfl.methods.baselines import AFL, project_to_simplex
from helpers import train, zeros_for

numbers = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8)


@pytest.mark.parametrize("seed", range(3))
def test_its_average_reaches_the_smallest_worst_loss(seed):
    datas = different_clients(seed)
    state, runtime = finish(AFL(step_size=0.3, weight_step=0.3, rounds=6000), datas)
    best = lowest_maximum(runtime, 1e-2)
    worst = losses_at(runtime, state.params, 1e-2).max()
    start = losses_at(runtime, zeros_for(runtime), 1e-2).max()
    assert -1e-8 <= worst - best < 2e-3 < start - best


def test_the_mixture_is_applied_and_follows_the_losses():
    """A public version weighs every client alike whatever the mixture says."""
    datas = different_clients(0)
    method = AFL(step_size=0.1, weight_step=0.5, rounds=200)
    problem, runtime = pose_for(method, datas)
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    for before, after in pairwise(states):
        assert (after.weights >= 0).all() and abs(after.weights.sum() - 1) < 1e-12
        if after.status != "running":
            continue
        here, onward = before.request.points[0].params, after.request.points[0].params
        reports = runtime.evaluate(before.request)
        grads = np.array([reports[c][0].loss_grad for c in problem.clients]) + 1e-2 * here
        np.testing.assert_allclose(onward, here - 0.1 * before.weights @ grads, rtol=1e-12)
    assert np.ptp(states[-1].weights) > 0.1


def test_the_result_is_the_average_of_the_iterates():
    method = AFL(rounds=20)
    problem, runtime = pose_for(method, different_clients(1))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    iterates = [state.request.points[0].params for state in states[:-1]]
    np.testing.assert_allclose(states[-1].params, np.mean(iterates, axis=0), rtol=1e-12)


def test_a_saddle_point_ends_it():
    data = different_clients(0)["client-1"]
    state, runtime = finish(AFL(step_size=1.0, rounds=5000), {"a": data, "b": data})
    assert state.status == "converged"
    assert state.message.startswith("No mixture of clients has a higher loss after")
    assert losses_at(runtime, state.params, 1e-2).max() - lowest_maximum(runtime, 1e-2) < 1e-6


@given(numbers)
def test_the_projection_is_on_the_simplex_and_the_nearest_point(values):
    point = np.array(values)
    found = project_to_simplex(point)
    assert (found >= 0).all() and abs(found.sum() - 1) < 1e-9
    others = np.random.default_rng(0).dirichlet(np.ones(point.size), 50)
    corners = np.eye(point.size)
    distance = np.linalg.norm(found - point)
    for other in np.vstack([others, corners]):
        assert distance <= np.linalg.norm(other - point) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("point", "nearest"),
    [
        ([1.3, 0.2], [1.0, 0.0]),
        ([0.2, 1.3], [0.0, 1.0]),
        ([0.9, 0.5, -0.25], [0.7, 0.3, 0.0]),
        ([0.75, 0.75, 0.2], [0.5, 0.5, 0.0]),
    ],
)
def test_the_projection_of_small_cases(point, nearest):
    """Leaving an entry out of its own running sum keeps .2 of the first, and the sum is 1.05."""
    np.testing.assert_allclose(project_to_simplex(np.array(point)), nearest, atol=1e-12)
