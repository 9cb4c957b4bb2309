"""The direction programme, checked against the conditions that make a direction right."""

import numpy as np
import pytest
from scipy.optimize import linprog

from fcfl.methods.two_stage import (
    bisector_weights,
    descent_weights,
    safest_weights,
    two_gradient_weights,
    unit_scale,
)

SCALES = [1e-8, 1e-4, 1.0, 1e4, 1e8]
SHAPES = [(1, 1), (2, 5), (5, 2), (12, 100), (24, 7)]
KINDS = ["plain", "duplicate", "zero", "opposite"]
TOLERANCE = 1e-6


def simulated_jacobian(shape, kind, seed):
    """Gradients in general position, or with rows that are equal, zero or opposite."""
    rng = np.random.default_rng([*shape, KINDS.index(kind), seed])
    jacobian = rng.standard_normal(shape) + 0.3 * rng.standard_normal(shape[1])
    m = shape[0]
    if kind == "duplicate":
        jacobian = jacobian[rng.integers(0, max(m // 2, 1), m)]
    elif kind == "zero":
        jacobian[rng.integers(0, m)] = 0.0
    elif kind == "opposite" and m > 1:
        jacobian[1] = -rng.uniform(0.5, 2) * jacobian[0]
    return jacobian


def stage_2(jacobian, seed=0):
    """Improve the mean of the first half, protect each of it and a mixture of the other half."""
    m = jacobian.shape[0]
    n = (m + 1) // 2
    improve = np.concatenate([np.full(n, 1 / n), np.zeros(m - n)])
    protect = np.eye(n, m)
    if m > n:
        shares = np.random.default_rng(seed).dirichlet(np.ones(m - n))
        protect = np.vstack([protect, np.concatenate([np.zeros(n), shares])])
    return jacobian @ jacobian.T, improve, protect


def assert_on_the_simplex(weights):
    """Non-negative and summing to one."""
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)


def assert_harmless(jacobian, weights, protect):
    """To first order, no protected objective increases."""
    direction = -(weights @ jacobian)
    protected = protect @ jacobian
    size = np.linalg.norm(protected, axis=1) * np.linalg.norm(jacobian, axis=1).max()
    slope = protected @ direction / np.where(size > 0, size, 1.0)
    assert np.all(slope <= TOLERANCE)


def scaled(rows):
    """Each row divided by its largest entry: no optimum moves, and tolerances have a meaning."""
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    return rows / np.where(largest > 0, largest, 1.0)


def dual_optimum(gain, slopes):
    """The best value and the prices of ``max gain·w, slopes·w >= 0`` over the simplex, by the dual.

    ``min t`` subject to ``t >= gain_j + (prices @ slopes)_j`` for all j and ``prices >= 0``.
    """
    m, p = gain.size, slopes.shape[0]
    answer = linprog(
        np.concatenate([[1.0], np.zeros(p)]),
        A_ub=np.hstack([-np.ones((m, 1)), slopes.T]),
        b_ub=-gain,
        bounds=[(None, None)] + [(0, None)] * p,
        method="highs",
    )
    assert answer.status == 0
    prices = answer.x[1:]
    bound = float((gain + prices @ slopes).max())  # holds for any prices >= 0: weak duality
    return bound, prices


def assert_optimal(gramian, improve, protect, weights):
    """No weights on the simplex improve more: the dual certifies it.

    For prices y and any weights, gain·w <= bound - y·(slopes·w), so what the solver may break the
    slopes by is worth at most its price.
    """
    gain = scaled((gramian @ improve)[None, :])[0]
    slopes = scaled(protect @ gramian)
    bound, prices = dual_optimum(gain, slopes)
    reached = gain @ weights
    assert reached >= bound - TOLERANCE
    assert reached <= bound + TOLERANCE * (1 + prices.sum())


def assert_solves(jacobian, seed=0):
    gramian, improve, protect = stage_2(jacobian, seed)
    weights = descent_weights(gramian, improve, protect)
    assert_on_the_simplex(weights)
    assert_harmless(jacobian, weights, protect)
    assert_optimal(gramian, improve, protect, weights)
    return gramian, improve, protect, weights


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weights_are_feasible_and_optimal_at_every_scale(shape, kind, scale):
    for seed in range(10):
        assert_solves(scale * simulated_jacobian(shape, kind, seed), seed)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("n_params", [20, 100, 500])
def test_two_hundred_clients(n_params, scale):
    assert_solves(scale * simulated_jacobian((400, n_params), "plain", 0))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_two_hundred_clients_with_degenerate_gradients_are_solved(kind):
    assert_solves(simulated_jacobian((400, 20), kind, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_the_scale_of_all_gradients_does_not_matter(shape, kind):
    for seed in range(5):
        jacobian = simulated_jacobian(shape, kind, seed)
        gramian, improve, protect = stage_2(jacobian, seed)
        gain = scaled((gramian @ improve)[None, :])[0]
        reached = [gain @ descent_weights(scale**2 * gramian, improve, protect) for scale in SCALES]
        np.testing.assert_allclose(reached, reached[0], atol=TOLERANCE)


def test_the_scale_of_all_gradients_does_not_move_a_unique_optimum():
    for seed in range(20):
        gramian, improve, protect = stage_2(simulated_jacobian((12, 100), "plain", seed), seed)
        at_one = descent_weights(gramian, improve, protect)
        for scale in SCALES:
            weights = descent_weights(scale**2 * gramian, improve, protect)
            np.testing.assert_allclose(weights, at_one, atol=TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_the_order_of_gradients_does_not_matter(shape):
    for seed in range(10):
        jacobian = simulated_jacobian(shape, "plain", seed)
        gramian, improve, protect = stage_2(jacobian, seed)
        order = np.random.default_rng(seed).permutation(shape[0])
        rows = np.random.default_rng(seed).permutation(protect.shape[0])
        straight = descent_weights(gramian, improve, protect)
        mixed = descent_weights(
            gramian[np.ix_(order, order)], improve[order], protect[np.ix_(rows, order)]
        )
        gain = gramian @ improve
        size = np.abs(gain).max()
        assert gain[order] @ mixed == pytest.approx(gain @ straight, abs=TOLERANCE * size)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_very_different_size_are_solved_alike(kind):
    for seed in range(20):
        jacobian = simulated_jacobian((10, 30), kind, seed)
        sizes = 10.0 ** np.random.default_rng(seed).uniform(-4, 4, 10)
        assert_solves(sizes[:, None] * jacobian, seed)


def test_nothing_to_protect_takes_the_best_gradient():
    gramian, improve, _ = stage_2(simulated_jacobian((6, 4), "plain", 0))
    weights = descent_weights(gramian, improve, np.zeros((0, 6)))
    assert weights.tolist() == np.eye(6)[np.argmax(gramian @ improve)].tolist()


def test_weights_of_zero_gradients_are_on_the_simplex():
    gramian, improve, protect = stage_2(np.zeros((4, 3)))
    assert_on_the_simplex(descent_weights(gramian, improve, protect))
    assert_on_the_simplex(safest_weights(gramian, protect))


# --- the two solvers ---


# --- stage 1 ---


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("exceeded", [False, True])
def test_the_closed_form_is_an_optimum_of_the_programme(exceeded, scale):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        loss, violation = scale * rng.standard_normal((2, 3)) * rng.uniform(0.1, 2, (2, 1))
        jacobian = np.array([loss, violation])
        weights = two_gradient_weights(loss, violation, exceeded=exceeded)
        assert_on_the_simplex(weights)
        gramian = jacobian @ jacobian.T
        improve = np.array([0.0, 1.0]) if exceeded else np.array([1.0, 0.0])
        protect = np.array([[1.0, 0.0]]) if exceeded else np.zeros((0, 2))
        assert_harmless(jacobian, weights, protect)
        assert_optimal(gramian, improve, protect, weights)
        best = descent_weights(gramian, improve, protect)
        gain = gramian @ improve
        size = np.abs(gain).max()
        assert gain @ weights == pytest.approx(gain @ best, abs=TOLERANCE * size)
        if exceeded and loss @ violation < 0:
            assert abs(weights @ jacobian @ loss) <= 1e-12 * scale**2


def test_the_closed_form_of_vanishing_gradients_is_on_the_simplex():
    zero, one = np.zeros(3), np.array([1.0, 0.0, 0.0])
    for pair in ((zero, zero), (zero, one), (one, zero), (one, one), (one, -one)):
        for exceeded in (False, True):
            assert_on_the_simplex(two_gradient_weights(*pair, exceeded=exceeded))
        assert_on_the_simplex(bisector_weights(*pair))


@pytest.mark.parametrize("scale", SCALES)
def test_the_bisector_lowers_both(scale):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        pair = scale * rng.standard_normal((2, 4)) * rng.uniform(0.1, 2, (2, 1))
        weights = bisector_weights(*pair)
        assert_on_the_simplex(weights)
        slopes = pair @ (weights @ pair) / np.linalg.norm(pair, axis=1)
        assert (slopes > 0).all()
        assert slopes[0] == pytest.approx(slopes[1], rel=1e-9)  # at the same angle to both


# --- the safe direction ---


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("shape", [(2, 5), (6, 8), (12, 100), (40, 60)], ids=str)
def test_the_safest_direction_lowers_everything_protected(shape, scale):
    """More parameters than gradients: in general position the hull does not hold zero."""
    for seed in range(10):
        jacobian = scale * simulated_jacobian(shape, "plain", seed)
        gramian, _, protect = stage_2(jacobian, seed)
        weights = safest_weights(gramian, protect)
        assert_on_the_simplex(weights)
        slopes = scaled(protect @ gramian) @ weights
        assert slopes.min() > 1e-6
        hull = linprog(  # no other weights have a larger smallest slope
            np.concatenate([np.zeros(shape[0]), [-1.0]]),
            A_ub=np.hstack([-scaled(protect @ gramian), np.ones((len(protect), 1))]),
            b_ub=np.zeros(len(protect)),
            A_eq=[[1.0] * shape[0] + [0.0]],
            b_eq=[1.0],
            bounds=[(0, None)] * shape[0] + [(None, None)],
        )
        assert slopes.min() == pytest.approx(-hull.fun, abs=1e-7)


@pytest.mark.parametrize("scale", SCALES)
def test_the_safest_direction_harms_nothing_when_the_hull_holds_zero(scale):
    for seed in range(10):
        jacobian = scale * simulated_jacobian((7, 2), "opposite", seed)
        gramian, _, protect = stage_2(jacobian, seed)
        weights = safest_weights(gramian, protect)
        assert_on_the_simplex(weights)
        assert_harmless(jacobian, weights, protect)


def test_a_vanished_gradient_does_not_cost_the_others_their_slope():
    """A protected objective that is flat cannot be lowered; the rest still must be."""
    for seed in range(10):
        jacobian = simulated_jacobian((6, 12), "plain", seed)
        jacobian[0] = 0.0
        gramian, _, protect = stage_2(jacobian, seed)
        slopes = scaled(protect @ gramian) @ safest_weights(gramian, protect)
        assert slopes[1:].min() > 1e-6


# --- scaling ---


@pytest.mark.parametrize("scale", [1e-300, *SCALES, 1e300])
def test_unit_scale_gives_every_row_a_largest_entry_of_one(scale):
    rows = scale * simulated_jacobian((5, 7), "zero", 0)
    scaled = unit_scale(rows)
    flat = ~rows.any(axis=1)
    np.testing.assert_allclose(np.abs(scaled[~flat]).max(axis=1), 1.0, rtol=1e-15)
    assert not scaled[flat].any() and flat.any()
    np.testing.assert_array_equal(np.sign(scaled), np.sign(rows))


def test_unit_scale_of_nothing():
    assert unit_scale(np.zeros((0, 3))).shape == (0, 3)
    assert unit_scale(np.zeros((2, 0))).shape == (2, 0)
