"""Damped curvature: positive definite, Newton's step where there is one, and what changes it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl.methods.sqp.damping import Damping, first_damping, no_damping

NOTHING = np.zeros((0, 6))


def indefinite(rng, n_params, n_active):
    """A Hessian that is positive definite only where the active rows leave freedom."""
    active = rng.standard_normal((n_active, n_params))
    basis, _ = np.linalg.qr(active.T, mode="complete")
    inner = rng.uniform(0.5, 3.0, n_params)
    inner[:n_active] = -rng.uniform(0.1, 2.0, n_active)
    return (basis * inner) @ basis.T, active


def newton_step(B, gradient, active, target):
    """Minimise ``g · d + d · B d / 2`` subject to ``A d = target``."""
    n, m = B.shape[0], active.shape[0]
    K = np.block([[B, active.T], [active, np.zeros((m, m))]])
    return np.linalg.solve(K, np.concatenate([-gradient, target]))[:n]


def positive(rng, n_params):
    root = rng.standard_normal((n_params, n_params))
    return root @ root.T + 0.1 * np.eye(n_params)


def dense(curvature):
    return curvature.factor @ curvature.factor.T


def test_a_positive_definite_hessian_is_taken_as_it_is():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        H, M = positive(rng, 6), 0.1 * positive(rng, 6)
        for active in (NOTHING, rng.standard_normal((2, 6))):
            curvature, after = Damping(M).curvature(H + M, active, 1.0)
            np.testing.assert_allclose(dense(curvature), H + M)
            assert not after.is_mixed


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(-6, 6), st.floats(0, 10))
def test_any_symmetric_matrix_becomes_positive_definite(seed, n_params, scale, level):
    rng = np.random.default_rng(seed)
    H = 10.0**scale * rng.standard_normal((n_params, n_params))
    damping = Damping(positive(rng, n_params), level)
    for active in (
        np.zeros((0, n_params)),
        np.zeros((1, n_params)),
        rng.standard_normal((2, n_params)),
    ):
        for is_near in (False, True):
            B = dense(damping.curvature(H, active, 3.0, is_near=is_near)[0])
            assert np.linalg.eigvalsh(B)[0] > 0


def test_the_damping_is_added_in_the_metric_times_the_losses_weight():
    rng = np.random.default_rng(0)
    H, M = positive(rng, 6), positive(rng, 6)
    curvature, _ = Damping(M, level=0.5).curvature(H, NOTHING, 3.0)
    np.testing.assert_allclose(dense(curvature), H + 1.5 * M)


def test_an_indefinite_hessian_is_mixed_with_the_metric_as_little_as_needed():
    """With H = M - 5 e e' half of H leaves a negative direction, a quarter does not."""
    M = np.eye(6)
    H = np.diag([-4.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    curvature, after = Damping(M).curvature(H, NOTHING, 1.0)
    np.testing.assert_allclose(dense(curvature), 0.1 * H + 0.9 * M)
    assert after.is_mixed
    softer, _ = Damping(M, share=0.5).curvature(H, NOTHING, 1.0)
    np.testing.assert_allclose(dense(softer), 0.1 * H + 0.45 * M)


def test_near_an_optimum_negative_eigenvalues_relative_to_the_metric_change_their_sign():
    rng = np.random.default_rng(2)
    root = np.linalg.cholesky(positive(rng, 6))
    turn, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    values = np.array([-4.0, -1e-4, 1e-5, 0.5, 1.0, 20.0])
    H, M = (root @ turn * values) @ (root @ turn).T, root @ root.T
    lifted = np.array([4.0, 1e-2, 1e-3, 0.5, 1.0, 20.0])
    for level in (0.0, 0.3):
        curvature, after = Damping(M, level).curvature(H, NOTHING, 1.0, is_near=True)
        expected = (root @ turn * (lifted + level)) @ (root @ turn).T
        np.testing.assert_allclose(dense(curvature), expected, rtol=1e-8, atol=1e-9)
        assert after.is_mixed


def test_an_undamped_hessian_is_itself_or_nothing():
    rng = np.random.default_rng(3)
    M = np.eye(7)
    H, active = indefinite(rng, 7, 2)
    damping = Damping(M, level=5.0)
    assert damping.undamped(H, np.zeros((0, 7)), 1.0) is None
    assert damping.undamped(H, active[:1], 1.0) is None
    found = damping.undamped(H, active, 1.0)
    gradient, target = rng.standard_normal(7), rng.standard_normal(2)
    np.testing.assert_allclose(
        newton_step(dense(found), gradient, active, target),
        newton_step(H, gradient, active, target),
        rtol=1e-7,
    )
    np.testing.assert_allclose(dense(damping.undamped(H + 3 * M, active, 1.0)), H + 3 * M)


@pytest.mark.parametrize("n_active", [1, 3])
@pytest.mark.parametrize("lengths", [1.0, 1e-4, 1e4])
def test_active_rows_make_it_convex_and_leave_the_newton_step(n_active, lengths):
    """Where the rows fix the step, curvature along them only changes their multipliers."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        H, active = indefinite(rng, 7, n_active)
        gradient, target = rng.standard_normal(7), rng.standard_normal(n_active)
        curvature, after = Damping(np.eye(7)).curvature(H, lengths * active, 1.0)
        assert not after.is_mixed
        np.testing.assert_allclose(
            newton_step(dense(curvature), gradient, active, target),
            newton_step(H, gradient, active, target),
            rtol=1e-7,
            atol=1e-9,
        )


def test_a_row_that_is_given_twice_counts_once():
    H, active = indefinite(np.random.default_rng(1), 6, 2)
    once, _ = Damping(np.eye(6)).curvature(H, active, 1.0)
    twice, _ = Damping(np.eye(6)).curvature(H, np.vstack([active, active]), 1.0)
    np.testing.assert_allclose(once.factor, twice.factor, atol=1e-9)


def test_damping_rises_where_steps_disappoint_and_falls_where_they_do_not():
    start = Damping(np.eye(2), level=0.5)
    assert start.refused().level > 0.5
    assert start.taken(0.1, 1.0).level > 0.5
    assert start.taken(0.5, 1.0).level == 0.5
    assert start.taken(0.9, 1.0).level < 0.5
    assert Damping(np.eye(2)).refused().level > 0
    for _ in range(10):
        start = start.taken(1.0, 1.0)
    assert start.level == 0.0


def test_a_short_step_leaves_damping_however_well_it_was_predicted():
    after = Damping(np.eye(2)).taken(1.0, 0.1)
    assert after.level > Damping(np.eye(2)).taken(1.0, 0.5).level > 0


def test_a_metric_that_is_too_stiff_gets_a_smaller_share():
    mixed = Damping(np.eye(2), is_mixed=True)
    assert mixed.taken(1.5, 1.0).share == 0.5
    assert Damping(np.eye(2)).taken(1.5, 1.0).share == 1.0
    assert mixed.taken(1.5, 1.0).taken(0.3, 1.0).share == 1.0


def test_the_metric_is_the_first_hessian_made_positive_definite():
    assert no_damping().metric.size == 0
    H = positive(np.random.default_rng(2), 4)
    np.testing.assert_allclose(first_damping(H).metric, H)
    assert np.linalg.eigvalsh(first_damping(-H).metric)[0] > 0


def test_a_step_may_be_three_times_as_long_as_the_longer_of_the_last_two():
    damping = Damping(np.diag([4.0, 1.0]))  # lengths are in the metric: the first unit counts twice
    assert damping.reaches(np.array([1e9, 0.0]))  # nothing to compare the first one with
    for step in ([5.0, 0.0], [0.0, 1.0], [0.05, 0.0]):
        damping = damping.arrived(np.array(step))
    assert damping.lengths == (1.0, 0.1)
    assert damping.reaches(np.array([0.0, 2.99]))
    assert not damping.reaches(np.array([0.0, 3.01]))
    assert not damping.reaches(np.array([1.6, 0.0]))
    assert damping.forgotten().reaches(np.array([1e9, 0.0]))


def test_damping_for_a_long_step_grows_fourfold_from_a_hundredth():
    damping = no_damping().raised()
    assert damping.level == pytest.approx(0.01)
    assert damping.raised().level == pytest.approx(0.04)
