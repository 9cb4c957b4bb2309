import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from on_rows import different_clients, finish, grads_at, losses_at, lowest_sum, pose_for
from scipy.optimize import Bounds, minimize

from fcfl_paper.baselines.fedmgda import FedMGDA, common_descent, shortest_mixture
from helpers import train, zeros_for


@pytest.mark.parametrize("freedom", [0.0, 0.1, 1.0])
def test_it_ends_at_a_pareto_stationary_point(freedom):
    method = FedMGDA(freedom=freedom, rounds=4000, tolerance=1e-3)
    state, runtime = finish(method, different_clients(0))
    assert state.status == "converged"
    assert state.message.startswith("No direction lowers all losses: Pareto-stationary after")
    shares = state.problem.n_rows / state.problem.n_rows.sum()
    grads = grads_at(runtime, state.params, 1e-2)
    units = grads / np.linalg.norm(grads, axis=1, keepdims=True)
    assert np.linalg.norm(common_descent(units, shares, freedom) @ units) <= 1e-3


def test_a_client_at_its_own_optimum_is_an_end_and_not_a_failure():
    """Its gradient has no direction; a zero divided by its length would be nan."""
    data = different_clients(1)["client-1"]
    datas = {"a": data, "b": data}
    _, runtime = pose_for(FedMGDA(), datas)
    best = lowest_sum(runtime, 1e-2, np.ones(2))
    state, _ = finish(FedMGDA(), datas, start=best)
    assert state.status == "converged" and state.rounds == (1,)
    np.testing.assert_array_equal(state.params, best)


def test_it_finds_the_optimum_of_clients_that_are_alike():
    data = different_clients(1)["client-1"]
    state, runtime = finish(FedMGDA(), {"a": data, "b": data})
    assert state.status == "converged"
    assert np.linalg.norm(grads_at(runtime, state.params, 1e-2)[0]) <= 1e-3


def test_with_full_freedom_no_step_raises_a_loss():
    method = FedMGDA(freedom=1.0, rounds=300, step_size=0.02)
    problem, runtime = pose_for(method, different_clients(2))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    losses = np.array([losses_at(runtime, state.params, 1e-2) for state in states])
    assert np.diff(losses, axis=0).max() <= 1e-3 * 0.02
    assert (losses[-1] <= losses[0]).all() and losses[0].sum() - losses[-1].sum() > 0.01


def test_a_huge_step_is_halved_until_it_helps():
    state, runtime = finish(FedMGDA(step_size=1e4, rounds=500), different_clients(3))
    assert state.size < 10 and np.isfinite(state.params).all()
    start = losses_at(runtime, zeros_for(runtime), 1e-2)
    assert losses_at(runtime, state.params, 1e-2).mean() < start.mean()


vectors = arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=st.floats(-1, 1)
)


@given(vectors, st.floats(0.0, 1.0))
def test_the_mixture_is_the_shortest_within_its_bounds(rows, freedom):
    n = rows.shape[0]
    shares = np.random.default_rng(n).dirichlet(np.ones(n))
    low, high = np.maximum(shares - freedom, 0), np.minimum(shares + freedom, 1)
    gramian = rows @ rows.T
    found = shortest_mixture(gramian, low, high)
    assert abs(found.sum() - 1) < 1e-9
    assert (found >= low - 1e-9).all() and (found <= high + 1e-9).all()
    # no feasible exchange between two weights shortens it
    slope = gramian @ found
    raise_, lower = found < high - 1e-7, found > low + 1e-7
    if raise_.any() and lower.any():
        assert slope[lower].max() - slope[raise_].min() <= 1e-5


def test_the_mixture_of_a_small_case_is_that_of_slsqp():
    rows = np.array([[1.0, 0.0], [-0.5, 0.2], [0.3, -0.9]])
    low, high = np.array([0.2, 0.1, 0.0]), np.array([0.6, 0.5, 0.35])
    expected = minimize(
        lambda x: (x @ rows) @ (x @ rows), np.full(3, 1 / 3), bounds=Bounds(low, high),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1}, options={"ftol": 1e-14},
    ).x  # fmt: skip
    np.testing.assert_allclose(shortest_mixture(rows @ rows.T, low, high), expected, atol=1e-6)
