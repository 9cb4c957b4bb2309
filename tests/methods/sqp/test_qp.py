"""The small quadratic programme, judged by duality: never by what a solver says of itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl.errors import SolverError
from fcfl.methods.sqp import qp
from fcfl.methods.sqp.qp import solve_dual_qp

KINDS = (
    "plain", "duplicates", "zero rows", "opposite rows", "more rows than columns",
    "one objective", "no constraints", "rows of many lengths", "near the optimum",
)  # fmt: skip
SCALES = (1e-8, 1e-4, 1.0, 1e4, 1e8)
UPPER = (1.0, 10.0, 1e3, 1e6)


def programme(kind, seed, scale=1.0, upper=10.0):
    """``W, c, n_simplex, upper`` of a random programme with a known difficulty."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n, N, M = int(rng.integers(3, 40)), int(rng.integers(1, 9)), int(rng.integers(0, 13))
    if kind == "more rows than columns":
        n, N = int(rng.integers(1, 6)), int(rng.integers(8, 30))
    if kind == "one objective":
        N, M = 1, max(M, 1)
    if kind == "no constraints":
        M = 0
    W = rng.standard_normal((N + M, n))
    c = np.concatenate([0.5 + 0.1 * rng.standard_normal(N), 0.1 * rng.standard_normal(M) - 0.05])
    if kind == "duplicates":
        chosen = np.concatenate([rng.integers(0, N, N), N + rng.integers(0, max(M, 1), M)])
        W, c = W[chosen.astype(int)], c[chosen.astype(int)]
    if kind == "zero rows":
        W[rng.random(N + M) < 0.4] = 0.0
    if kind == "opposite rows":
        W, c = np.vstack([W, -W[N:]]), np.concatenate([c, -c[N:] - 0.1])
    if kind == "rows of many lengths":
        W *= 10.0 ** rng.uniform(-4, 4, (N + M, 1))
    if kind == "near the optimum":  # a combination of the rows nearly vanishes, as at convergence
        held = rng.uniform(0, 1, M) * (rng.random(M) < 0.5)
        x = np.concatenate([rng.dirichlet(np.ones(N)), held])
        W[0] = (1e-7 * rng.standard_normal(n) - x[1:] @ W[1:]) / x[0]
        c = np.where(np.arange(N + M) < N, 0.5, 0.0) - 0.01 * (x == 0) + W @ (W.T @ x)
    return scale * W, c, N, np.full(W.shape[0] - N, upper)


def assert_feasible(x, n_simplex, upper):
    """On the simplex and within the bounds, to the last digits."""
    assert np.isfinite(x).all()
    assert x.min() >= 0.0
    assert abs(x[:n_simplex].sum() - 1.0) <= 1e-12
    assert np.all(x[n_simplex:] <= upper)


def duality_gap(W, c, n_simplex, upper, x):
    """What the primal (step, level, slacks) made from ``x`` costs above the dual value of ``x``."""
    step = -W.T @ x
    rows = c + W @ step
    slacks = np.maximum(rows[n_simplex:], 0.0)
    return rows[:n_simplex].max() + upper @ slacks + step @ step - c @ x


def size(W, c, n_simplex, x):
    """The largest term in a row of the programme, beside which rounding is small."""
    lengths = np.linalg.norm(W, axis=1)
    shifted = np.concatenate([c[:n_simplex] - c[:n_simplex].max(), c[n_simplex:]])
    return max(np.abs(shifted).max(), lengths.max() * (lengths @ x), 1e-300)


def assert_optimal(W, c, n_simplex, upper, x, relative=1e-9):
    """No weight wants to change: the level is the largest row, others are at zero or at a bound."""
    assert_feasible(x, n_simplex, upper)
    rows = (c - W @ (W.T @ x)) / size(W, c, n_simplex, x)
    below = rows[:n_simplex].max() - rows[:n_simplex]
    assert np.minimum(below, x[:n_simplex]).max() <= 2 * relative
    others, weights = rows[n_simplex:], x[n_simplex:]
    assert np.all((others <= relative) | (upper - weights <= relative * upper))
    assert np.all((others >= -relative) | (weights <= relative))


@pytest.mark.parametrize("upper", UPPER)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_solves_every_kind_at_every_scale(kind, scale, upper):
    for seed in range(12):
        problem = programme(kind, seed, scale, upper)
        x = solve_dual_qp(*problem)
        assert_optimal(*problem, x, relative=1e-6 if kind == "rows of many lengths" else 1e-9)


@given(
    st.sampled_from(KINDS),
    st.integers(0, 2**32 - 1),
    st.floats(-8, 8),
    st.floats(0, 6),
)
def test_the_primal_made_from_it_costs_no_more_than_the_dual(kind, seed, scale, upper):
    """Strong duality: the gap is zero at a solution, and only there."""
    W, c, N, bounds = programme(kind, seed, 10.0**scale, 10.0**upper)
    x = solve_dual_qp(W, c, N, bounds)
    scale_of_gap = size(W, c, N, x) * (1.0 + bounds.sum())
    assert -1e-12 * scale_of_gap <= duality_gap(W, c, N, bounds, x) <= 1e-6 * scale_of_gap


@given(st.integers(0, 2**32 - 1), st.floats(-8, 8), st.floats(0, 6))
def test_one_objective_and_one_constraint_have_a_closed_form(seed, scale, upper):
    rng = np.random.default_rng(seed)
    W = 10.0**scale * rng.standard_normal((2, 4))
    c, bound = rng.normal(0, 0.3, 2), 10.0**upper
    expected = np.clip((c[1] - W[0] @ W[1]) / (W[1] @ W[1]), 0.0, bound)
    x = solve_dual_qp(W, c, 1, np.array([bound]))
    assert x[0] == 1.0
    assert x[1] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.floats(-8, 8))
def test_two_objectives_have_a_closed_form(seed, scale):
    rng = np.random.default_rng(seed)
    W = 10.0**scale * rng.standard_normal((2, 5))
    c = rng.normal(0.5, 0.1, 2)
    apart = W[0] - W[1]
    expected = np.clip((c[0] - c[1] - W[1] @ apart) / (apart @ apart), 0.0, 1.0)
    x = solve_dual_qp(W, c, 2, np.zeros(0))
    assert x == pytest.approx([expected, 1 - expected], abs=1e-9)


@pytest.mark.parametrize("upper", [1.0, 1e3])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_both_solvers_agree_on_the_step(kind, scale, upper):
    """Active set and interior point, each on its own and finished alike."""
    for seed in range(4):
        problem = programme(kind, seed, scale, upper)
        W, c, N, bounds = problem
        if c.size == 1:
            continue
        dual = qp._pose(*problem)
        typical = max(np.median(dual.lengths**2), np.abs(dual.c).max())
        raw = [qp._by_daqp(dual, 1e-14), qp._by_clarabel(dual, typical)]
        xs = [qp._polish(dual, dual.tidy(x)) for x in raw]
        gaps = [max(duality_gap(W, c, N, bounds, x), 0.0) for x in xs]
        apart = np.linalg.norm(W.T @ (xs[0] - xs[1]))
        rounding = 1e-8 * np.linalg.norm(W, axis=1).max()
        assert apart <= np.sqrt(2 * gaps[0]) + np.sqrt(2 * gaps[1]) + rounding
        assert min(dual.residual(x) for x in xs) <= 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_twins_share_a_weight_and_leave_the_step_as_it_is(seed):
    """The step is unique; how twins divide their weight is not."""
    W, c, N, upper = programme("plain", seed)
    twice = np.concatenate([np.repeat(np.arange(N), 2), np.arange(N, c.size)])
    alone, doubled = solve_dual_qp(W, c, N, upper), solve_dual_qp(W[twice], c[twice], 2 * N, upper)
    np.testing.assert_allclose(W.T @ alone, W[twice].T @ doubled, atol=1e-9)
    together = doubled[: 2 * N].reshape(N, 2).sum(axis=1)
    np.testing.assert_allclose(together, alone[:N], atol=1e-7)


def test_the_step_is_unique_where_the_weights_are_not():
    W, c = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.5, 0.5])
    dual = qp._pose(W, c, 2, np.zeros(0))
    for weights in ([1.0, 0.0], [0.0, 1.0], [0.3, 0.7]):
        assert dual.residual(np.array(weights)) <= 1e-15
    assert W.T @ solve_dual_qp(W, c, 2, np.zeros(0)) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_and_a_rotation_do_not_matter(seed):
    W, c, N, upper = programme("plain", seed)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(N), N + rng.permutation(upper.size)])
    turned, _ = np.linalg.qr(rng.standard_normal((W.shape[1], W.shape[1])))
    x = solve_dual_qp(W, c, N, upper)
    np.testing.assert_allclose(solve_dual_qp(W[order], c[order], N, upper), x[order], atol=1e-8)
    np.testing.assert_allclose(solve_dual_qp(W @ turned, c, N, upper), x, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_the_shift_of_all_objectives_does_not_matter(seed):
    W, c, N, upper = programme("plain", seed)
    shifted = c + 1e3 * (np.arange(c.size) < N)
    np.testing.assert_allclose(
        solve_dual_qp(W, shifted, N, upper), solve_dual_qp(W, c, N, upper), atol=1e-8
    )


def test_rows_without_gradients_are_decided_by_their_values():
    """A flat budget that is exceeded takes all its penalty, one that is met takes nothing."""
    W, c = np.zeros((4, 3)), np.array([0.4, 0.5, -0.05, 0.1])
    x = solve_dual_qp(W, c, 2, np.array([10.0, 10.0]))
    np.testing.assert_allclose(x, [0.0, 1.0, 0.0, 10.0])


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_a_flat_objective_beside_steep_ones_takes_the_weight_they_leave(scale):
    """The step is short, so that steep rows need only tiny weights."""
    W = scale * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    x = solve_dual_qp(W, np.array([0.4, 0.5, 0.05]), 2, np.array([10.0]))
    expected = np.array([1 - 0.1 / scale**2, 0.1 / scale**2, 0.05 / scale**2])
    np.testing.assert_allclose(x, expected, rtol=1e-9)


def test_a_single_objective_without_constraints_needs_no_solver(monkeypatch):
    monkeypatch.setattr(qp, "_attempts", None)
    assert solve_dual_qp(np.ones((1, 3)), np.array([0.5]), 1, np.zeros(0)).tolist() == [1.0]


def test_large_programmes_begin_with_the_interior_point(monkeypatch):
    problem = programme("opposite rows", 1)
    small = solve_dual_qp(*problem)
    monkeypatch.setattr(qp, "_SMALL", 0)
    asked = []
    monkeypatch.setattr(
        qp, "_by_daqp", lambda dual, tolerance: asked.append(tolerance) or np.full(1, np.nan)
    )
    np.testing.assert_allclose(solve_dual_qp(*problem), small, atol=1e-7)
    assert not asked


def test_many_more_rows_than_columns_begin_with_the_interior_point(monkeypatch):
    """Most of them could be exchanged for each other, which an active set does one by one."""
    rng = np.random.default_rng(0)
    W, c = rng.normal(size=(400, 11)), rng.normal(size=400)
    expected = solve_dual_qp(W, c, 3, np.full(397, 0.1))
    monkeypatch.setattr(qp, "_by_daqp", pytest.fail)
    found = solve_dual_qp(W, c, 3, np.full(397, 0.1))
    np.testing.assert_array_equal(found, expected)


def test_a_solver_that_lies_is_not_believed(monkeypatch):
    """Whatever the first solver claims, the solution is judged by its own residual."""
    problem = programme("plain", 3)
    truth = solve_dual_qp(*problem)
    lies = [np.full(truth.size, 0.5), np.full(truth.size, np.nan), np.zeros(truth.size)]
    for lie in lies:
        monkeypatch.setattr(qp, "_by_daqp", lambda dual, tolerance, lie=lie: lie.copy())
        np.testing.assert_allclose(solve_dual_qp(*problem), truth, atol=1e-7)


def test_a_programme_that_no_solver_solves_is_an_error(monkeypatch):
    wrong = [lambda dual: np.full(dual.c.size, np.nan)] * 2
    monkeypatch.setattr(qp, "_attempts", lambda dual: wrong)
    with pytest.raises(SolverError, match=r"\(5 variables\) was not solved: residual inf"):
        solve_dual_qp(np.eye(5), np.ones(5), 3, np.ones(2))


def test_a_solution_that_is_nearly_right_is_taken_and_one_that_is_not_is_an_error(monkeypatch):
    """One step of hundreds that is off by 1e-5 must not cost a run all that it computed."""
    problem = programme("plain", 3)
    truth = solve_dual_qp(*problem)
    other = np.where(np.arange(truth.size) < problem[2], 1.0 / problem[2], 0.0)
    monkeypatch.setattr(qp, "_polish", lambda dual, x: x)
    for share, is_taken in ((1e-5, True), (0.1, False)):
        off = truth + share * (other - truth)
        monkeypatch.setattr(qp, "_attempts", lambda dual, off=off: [lambda d: off])
        if is_taken:
            np.testing.assert_allclose(solve_dual_qp(*problem), off)
        else:
            with pytest.raises(SolverError, match="was not solved: residual"):
                solve_dual_qp(*problem)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["W", "c"])
def test_a_non_finite_entry_is_an_error(bad, where):
    W, c, N, upper = programme("plain", 0)
    (W if where == "W" else c)[0] = bad
    with pytest.raises(SolverError, match="has a non-finite entry"):
        solve_dual_qp(W, c, N, upper)


@pytest.mark.parametrize("kind", KINDS)
def test_solving_changes_no_argument_and_repeats_to_the_bit(kind):
    problem = programme(kind, 2)
    copies = [np.copy(part) for part in problem]
    first, second = solve_dual_qp(*problem), solve_dual_qp(*problem)
    assert first.tobytes() == second.tobytes()
    for part, copy in zip(problem, copies, strict=True):
        assert np.array_equal(part, copy)


def test_many_columns_are_reduced_without_changing_the_programme():
    rng = np.random.default_rng(0)
    W, c = rng.standard_normal((6, 5_000)), rng.normal(0, 0.1, 6)
    dual = qp._pose(W, c, 3, np.ones(3))
    assert dual.W.shape == (6, 6)
    np.testing.assert_allclose(dual.gramian, W @ W.T, rtol=1e-12)
    assert_optimal(W, c, 3, np.ones(3), solve_dual_qp(W, c, 3, np.ones(3)))


def test_polishing_takes_off_what_a_tolerance_left():
    W, c, N, upper = programme("opposite rows", 4)
    dual = qp._pose(W, c, N, upper)
    x = solve_dual_qp(W, c, N, upper)
    free = (x > 1e-3) & (dual.on_simplex | (x < dual.upper - 1e-3))
    noise = np.where(free, 1e-6 * np.random.default_rng(0).standard_normal(x.size), 0.0)
    rough = dual.tidy(x + noise)
    assert dual.residual(rough) > 1e-9
    assert dual.residual(qp._polish(dual, rough)) <= 1e-12


def test_the_residual_is_zero_only_at_a_solution():
    for seed in range(20):
        W, c, N, upper = programme("plain", seed)
        dual = qp._pose(W, c, N, upper)
        x = solve_dual_qp(W, c, N, upper)
        assert dual.residual(x) <= 1e-12
        if N > 1:
            other = dual.tidy(x + 0.05 * (np.arange(x.size) == np.argmin(x[:N])))
            assert dual.residual(other) > 1e-4
    assert replace(dual, c=2 * dual.c).residual(x) > 1e-6
