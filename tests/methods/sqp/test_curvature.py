"""Curvature against dense matrices: the BFGS update written out, Newton's equations, damping."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl.errors import SolverError
from fcfl.methods.sqp.curvature import (
    Damping,
    Exact,
    LimitedMemory,
    first_damping,
    no_memory,
)


def dense_bfgs(memory):
    """``B`` by one textbook update per pair, from the scaled identity."""
    B = np.eye(memory.steps.shape[1]) / memory.scale
    for s, y in zip(memory.steps, memory.changes, strict=True):
        Bs = B @ s
        B = B - np.outer(Bs, Bs) / (s @ Bs) + np.outer(y, y) / (s @ y)
    return B


def learnt(seed, n_params=7, n_pairs=5, memory=20, convex=True):
    """Pairs as a run would meet them: steps, and a quadratic's gradient changes along them."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n_params, n_params))
    H = root @ root.T + 0.1 * np.eye(n_params) if convex else root + root.T
    found = no_memory(n_params, scale=float(rng.uniform(0.1, 10)))
    for _ in range(n_pairs):
        s = rng.standard_normal(n_params)
        found = found.updated(s, H @ s, dense_bfgs(found) @ s, memory)
    return found


# --- limited memory ---


@pytest.mark.parametrize("n_pairs", [0, 1, 5, 12])
@pytest.mark.parametrize("convex", [True, False])
def test_it_is_the_textbook_matrix_without_forming_it(n_pairs, convex):
    for seed in range(5):
        memory = learnt(seed, n_pairs=n_pairs, convex=convex)
        B = dense_bfgs(memory)
        rows = np.random.default_rng(seed).standard_normal((4, 7))
        expected = rows @ np.linalg.solve(B, rows.T)
        whitened = memory.whiten(rows)
        size = np.abs(expected).max()
        np.testing.assert_allclose(whitened @ whitened.T, expected, rtol=1e-6, atol=1e-8 * size)
        solved = np.linalg.solve(B, rows[0])
        np.testing.assert_allclose(memory.solve(rows[0]), solved, rtol=1e-6, atol=1e-8 * size)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_it_stays_positive_definite_whatever_the_curvature(seed, n_pairs):
    """Damping: pairs of an indefinite Hessian never make the matrix indefinite."""
    memory = learnt(seed, n_pairs=n_pairs, memory=6, convex=False)
    assert np.all((memory.steps * memory.changes).sum(axis=1) > 0)
    assert memory.scale > 0
    rows = np.eye(7)
    whitened = memory.whiten(rows)
    assert np.isfinite(whitened).all()
    assert np.linalg.matrix_rank(whitened) == 7
    for gradient in rows:
        assert gradient @ memory.solve(gradient) > 0


def test_the_newest_pair_satisfies_the_secant_equation():
    for seed in range(10):
        memory = learnt(seed, convex=bool(seed % 2))
        np.testing.assert_allclose(memory.solve(memory.changes[-1]), memory.steps[-1], atol=1e-8)


def test_a_convex_pair_is_remembered_as_it_is_and_a_concave_one_is_damped():
    start = no_memory(2)
    s = np.array([1.0, 0.0])
    kept = start.updated(s, np.array([3.0, 1.0]), s, 5)
    assert kept.changes.tolist() == [[3.0, 1.0]]
    damped = start.updated(s, np.array([-4.0, 1.0]), s, 5)
    assert s @ damped.changes[0] == pytest.approx(0.2)
    edge = start.updated(s, np.array([0.2, 1.0]), s, 5)
    assert edge.changes.tolist() == [[0.2, 1.0]]


def test_only_the_newest_pairs_are_remembered():
    short, full = learnt(3, n_pairs=9, memory=4), learnt(3, n_pairs=9, memory=100)
    assert short.n_pairs == 4
    assert full.n_pairs == 9
    np.testing.assert_array_equal(short.steps, full.steps[-4:])


@pytest.mark.parametrize(("n_pairs", "left"), [(0, 0), (1, 0), (2, 1), (5, 2), (8, 4)])
def test_the_newer_half_is_kept(n_pairs, left):
    memory = learnt(1, n_pairs=n_pairs)
    half = memory.newer_half()
    assert half.n_pairs == left
    np.testing.assert_array_equal(half.steps, memory.steps[n_pairs - left :])
    assert half.scale == memory.scale


@pytest.mark.parametrize("of_steps", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("of_gradients", [1e-8, 1.0, 1e8])
def test_other_units_give_the_same_matrix_in_those_units(of_steps, of_gradients):
    """Steps in units ``a`` and gradients in units ``b`` multiply ``B`` by ``b / a``."""
    memory = learnt(2)
    units = of_gradients / of_steps
    other = LimitedMemory(
        of_steps * memory.steps, of_gradients * memory.changes, memory.scale / units
    )
    gradient = np.random.default_rng(0).standard_normal(7)
    np.testing.assert_allclose(
        other.solve(of_gradients * gradient), of_steps * memory.solve(gradient), rtol=1e-9
    )
    s, y = np.ones(7), np.arange(7) - 5.0
    after = memory.updated(s, y, dense_bfgs(memory) @ s, 9)
    Bs = units * dense_bfgs(memory) @ (of_steps * s)
    also = other.updated(of_steps * s, of_gradients * y, Bs, 9)
    np.testing.assert_allclose(also.changes[-1], of_gradients * after.changes[-1], rtol=1e-9)


def test_the_identity_before_any_step():
    rows = np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_array_equal(no_memory(4).whiten(rows), rows)
    np.testing.assert_allclose(no_memory(4, 0.25).solve(rows[0]), 0.25 * rows[0])


# --- exact ---


def test_a_positive_definite_hessian_is_taken_as_it_is():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((6, 6))
        H = root @ root.T + 0.01 * np.eye(6)
        rows = rng.standard_normal((3, 6))
        curvature = Exact.from_hessian(H)
        np.testing.assert_allclose(curvature.solve(rows[0]), np.linalg.solve(H, rows[0]))
        whitened = curvature.whiten(rows)
        expected = rows @ np.linalg.solve(H, rows.T)
        np.testing.assert_allclose(whitened @ whitened.T, expected, rtol=1e-8, atol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(-6, 6))
def test_any_symmetric_matrix_becomes_positive_definite(seed, n_params, scale):
    rng = np.random.default_rng(seed)
    H = 10.0**scale * rng.standard_normal((n_params, n_params))
    factor = Exact.from_hessian(H).factor
    assert np.isfinite(factor).all()
    assert np.linalg.eigvalsh(factor @ factor.T)[0] > 0


def test_eigenvalues_lose_their_sign():
    root = np.random.default_rng(0).standard_normal((5, 5))
    H = root + root.T
    B = Exact.from_hessian(H).factor
    values, vectors = np.linalg.eigh(H)
    np.testing.assert_allclose(B @ B.T, (vectors * np.abs(values)) @ vectors.T, atol=1e-12)


# --- both ---


@pytest.mark.parametrize("curvature", [learnt(0), Exact.from_hessian(np.diag(np.arange(1.0, 8)))])
@pytest.mark.parametrize("factor", [1e-4, 1.0, 37.0])
def test_scaling_multiplies_the_matrix(curvature, factor):
    rows = np.random.default_rng(0).standard_normal((3, 7))
    scaled = curvature.scaled(factor)
    np.testing.assert_allclose(scaled.solve(rows[0]), curvature.solve(rows[0]) / factor, rtol=1e-9)
    np.testing.assert_allclose(
        scaled.whiten(rows) @ scaled.whiten(rows).T,
        curvature.whiten(rows) @ curvature.whiten(rows).T / factor,
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_curvature_that_is_no_number_is_an_error(bad):
    """An infinite factor would whiten every row to zero, and the step would be none."""
    with pytest.raises(SolverError, match="non-finite"):
        Exact(np.array([[bad, 0.0], [0.0, 1.0]]))


# --- damping ---

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


def test_damping_keeps_a_positive_definite_hessian():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        H, M = positive(rng, 6), 0.1 * positive(rng, 6)
        for active in (NOTHING, rng.standard_normal((2, 6))):
            curvature, after = Damping(M).curvature(H + M, active, 1.0)
            np.testing.assert_allclose(dense(curvature), H + M)
            assert not after.is_mixed


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(-6, 6), st.floats(0, 10))
def test_damped_curvature_is_positive_definite(seed, n_params, scale, level):
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
    assert Damping().metric.size == 0
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
