import numpy as np
import pytest
from on_rows import different_clients, finish, grads_at, losses_at, lowest_maximum, lowest_sum

from fcfl.methods.baselines import QFFL, q_step
from helpers import RACE, simulated_clients, zeros_for


def test_q_zero_is_fedavg_with_every_client_counted_once():
    datas = different_clients(0)
    method = QFFL(q=0.0, step_size=0.5, rounds=20000, tolerance=1e-9)
    state, runtime = finish(method, datas)
    assert state.status == "converged"
    np.testing.assert_allclose(
        state.params, lowest_sum(runtime, 1e-2, np.full(3, 1 / 3)), atol=1e-6
    )


def test_with_q_zero_a_step_is_the_plain_mean_of_the_gradients():
    rng = np.random.default_rng(0)
    updates = rng.standard_normal((4, 3))
    step, slope = q_step(rng.random(4), updates, 0.0, 0.3)
    np.testing.assert_allclose(step, 0.3 * updates.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(slope, updates.mean(axis=0), rtol=1e-14)


def test_it_ends_at_the_optimum_of_the_powers():
    datas = different_clients(1)
    state, runtime = finish(QFFL(q=2.0, step_size=0.5, rounds=20000, tolerance=1e-9), datas)
    losses, grads = (f(runtime, state.params, 1e-2) for f in (losses_at, grads_at))
    assert state.status == "converged"
    assert np.abs(losses**2 @ grads).max() < 1e-8


@pytest.mark.thorough
def test_a_larger_q_comes_nearer_to_the_smallest_worst_loss():
    datas = different_clients(2)
    worst = []
    for q in (0.0, 1.0, 5.0, 50.0, 500.0):
        state, runtime = finish(QFFL(q=q, step_size=1.0, rounds=20000, tolerance=1e-5), datas)
        worst.append(losses_at(runtime, state.params, 1e-2).max())
    best = lowest_maximum(runtime, 1e-2)
    excess = np.array(worst) - best
    assert (np.diff(excess) < 0).all() and excess[0] > 0.02
    assert 0 <= excess[-1] < 2e-3


def test_the_step_is_that_of_the_paper_with_the_squared_norm():
    losses, q, size = np.array([0.5, 2.0]), 3.0, 0.1
    updates = np.array([[3.0, 4.0], [0.0, 1.0]])
    h = q * losses ** (q - 1) * np.array([25.0, 1.0]) + losses**q / size
    expected = (losses**q) @ updates / h.sum()
    np.testing.assert_allclose(q_step(losses, updates, q, size)[0], expected, rtol=1e-13)


@pytest.mark.parametrize("q", [0.0, 0.5, 5.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_no_power_of_any_loss_under_or_overflows(q, scale):
    step, slope = q_step(scale * np.array([1.0, 2.0, 0.0]), np.eye(3), q, 0.1)
    assert np.isfinite(step).all() and np.isfinite(slope).all() and slope.max() > 0


def test_each_client_counts_with_its_own_loss():
    """With one loss for all, as a public strategy has it, q would change no client's share."""
    _, slope = q_step(np.array([1.0, 2.0]), np.eye(2), 3.0, 0.1)
    np.testing.assert_allclose(slope[1] / slope[0], 2.0**3)


def test_local_epochs_take_their_models_for_gradients():
    datas = simulated_clients(4, levels=RACE)
    options = {"step_size": 0.2, "rounds": 15, "q": 2.0}
    by_gradients, runtime = finish(QFFL(**options), datas)
    by_models, _ = finish(QFFL(**options, local_epochs=1), datas)
    np.testing.assert_allclose(by_models.params, by_gradients.params, rtol=1e-9, atol=1e-12)
    further, _ = finish(QFFL(**options, local_epochs=5), datas)
    means = [
        losses_at(runtime, params, 1e-2).mean()
        for params in (zeros_for(runtime), by_models.params, further.params)
    ]
    assert means == sorted(means, reverse=True)
