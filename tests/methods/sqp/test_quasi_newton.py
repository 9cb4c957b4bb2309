"""Curvature against dense matrices: the BFGS update written out, and Newton's equations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl.errors import SolverError
from fcfl.methods.sqp.quasi_newton import Exact, LimitedMemory, no_memory


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


def test_a_step_of_no_length_teaches_nothing():
    start = learnt(0)
    zero = np.zeros(7)
    assert start.updated(zero, zero, zero, 5) is start


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


def test_whitening_does_not_touch_the_rows():
    rows = np.ones((2, 7))
    learnt(0).whiten(rows)
    learnt(0).solve(rows[0])
    assert (rows == 1.0).all()


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


def test_a_flat_direction_gets_the_floor():
    B = Exact.from_hessian(np.diag([2.0, 0.0]), floor=1e-3).factor
    np.testing.assert_allclose(B @ B.T, np.diag([2.0, 2e-3]), atol=1e-15)


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
