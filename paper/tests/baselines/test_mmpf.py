import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_rows import different_clients, finish, losses_at, lowest_maximum, lowest_sum, pose_for

from fcfl_paper.baselines.mmpf import MMPF, next_weights
from helpers import train, zeros_for


@pytest.mark.parametrize("n_clients", [2, 3, 6])
@pytest.mark.parametrize("seed", range(2))
def test_it_reaches_the_smallest_worst_loss_and_certifies_it(seed, n_clients):
    datas = different_clients(seed, n_clients)
    state, runtime = finish(MMPF(tolerance=5e-4, fit_tolerance=1e-6), datas)
    best = lowest_maximum(runtime, 1e-2)
    worst = losses_at(runtime, state.params, 1e-2).max()
    assert state.status == "converged"
    assert -1e-8 <= worst - best <= 5e-4 + 1e-6
    assert state.highest <= best + 1e-8
    np.testing.assert_allclose(state.lowest_worst, worst, rtol=1e-12)


def test_the_weights_stay_on_the_simplex_and_the_best_fit_is_kept():
    method = MMPF(rounds=400, tolerance=0.0)
    problem, runtime = pose_for(method, different_clients(0))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    assert all((s.weights >= 0).all() and abs(s.weights.sum() - 1) < 1e-12 for s in states)
    lowest = [s.lowest_worst for s in states if np.isfinite(s.lowest_worst)]
    assert len(lowest) > 100 and (np.diff(lowest) <= 0).all()
    assert max(s.highest for s in states) <= min(lowest) + 1e-8


def test_a_fit_is_the_minimum_of_the_weighted_losses():
    method = MMPF(rounds=400, fit_tolerance=1e-8)
    problem, runtime = pose_for(method, different_clients(1))
    state = method.init(zeros_for(runtime), problem)
    weights = state.weights
    while (state.weights == weights).all():
        trial = state.request.points[0].params
        state, info = method.step(state, runtime.evaluate(state.request))
    assert info.note == "fitted"
    np.testing.assert_allclose(trial, lowest_sum(runtime, 1e-2, weights), atol=1e-6)


@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=6),
    st.floats(0.01, 0.99),
    st.integers(1, 500),
    st.floats(0.0, 10.0),
)
def test_weights_move_towards_the_clients_behind(risks, step_size, damping, best):
    risks = np.array(risks)
    weights = np.full(risks.size, 1.0 / risks.size)
    moved = next_weights(weights, risks, best, step_size, damping=damping)
    assert (moved >= 0).all() and abs(moved.sum() - 1) < 1e-12
    behind = (risks >= best) | (risks >= risks.max())
    assert moved[behind].min() >= 1.0 / risks.size - 1e-12
    assert not behind.all() or np.ptp(moved) < 1e-12


def test_it_gives_up_after_its_patience():
    state, _ = finish(MMPF(patience=3, tolerance=0.0, rounds=5000), different_clients(2))
    assert state.status == "stopped"
    assert state.message == "3 fits in a row brought no lower worst loss." and state.misses == 3
