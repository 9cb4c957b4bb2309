import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_rows import RULES, finish, losses_at, pose_for

from fcfl._types import Point, Request
from fcfl.training.run import with_references
from fcfl_paper.baselines.agnostic_fair import AgnosticFair, bandwidth, group_sets, worst_weights
from helpers import RACE, TWO_ATTRIBUTES, pose, simulated_clients, simulated_data, train, zeros_for


def adversary_sums(seed, n_points=6, n_sets=1, n_rows=40):
    """Kernel sums of random rows: losses, rows and centred logits by reference point."""
    rng = np.random.default_rng(seed)
    kernel = rng.random((n_rows, n_points))
    facts = np.column_stack(
        [rng.random(n_rows), np.ones(n_rows), rng.standard_normal((n_rows, n_sets))]
    )
    return facts.T @ kernel, float(n_rows)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 2), st.floats(0.0, 1.0))
def test_the_adversary_keeps_its_bounds(seed, n_points, n_sets, covariance):
    sums, n = adversary_sums(seed, n_points, n_sets)
    weights = worst_weights(sums, n, 5.0, covariance)
    assert (weights >= 0).all() and (weights <= 5.0).all()
    np.testing.assert_allclose(weights @ sums[1], min(n, 5.0 * sums[1].sum()), rtol=1e-7)


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_the_adversary_raises_the_weighted_loss(seed, n_points):
    sums, n = adversary_sums(seed, n_points)
    even = np.full(n_points, n / sums[1].sum())
    slack = abs(even @ sums[2]) / n + 1e-9  # so that even weights are allowed
    weights = worst_weights(sums, n, 5.0, slack)
    assert weights @ sums[0] >= even @ sums[0] - 1e-6 * n
    assert abs(weights @ sums[2]) <= n * slack * (1 + 1e-6) + 1e-6
    others = np.random.default_rng(seed).dirichlet(np.ones(n_points), 30)
    for other in others:
        other = other * n / (other @ sums[1])
        if other.max() <= 5.0 and abs(other @ sums[2]) <= n * slack:
            assert weights @ sums[0] >= other @ sums[0] - 1e-6 * n


def test_a_covariance_that_cannot_be_kept_is_kept_as_far_as_possible():
    sums = np.array([[1.0, 2.0], [10.0, 10.0], [5.0, 8.0]])
    weights = worst_weights(sums, 20.0, 5.0, 0.0)
    np.testing.assert_allclose(weights, [2.0, 0.0], atol=1e-9)  # all rows where it is smallest


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1.0, 1e4, 1e8])
def test_the_adversary_does_not_depend_on_units(scale):
    """Losses and logits grow with the step size; a solver's tolerances do not."""
    sums, n = adversary_sums(3, n_points=9)
    expected = worst_weights(sums, n, 5.0, 0.01)
    stretched = sums * np.array([[scale], [1.0], [scale]])
    np.testing.assert_allclose(worst_weights(stretched, n, 5.0, 0.01 * scale), expected, atol=1e-6)


def test_weights_too_small_for_all_rows_are_as_large_as_allowed():
    sums = np.array([[1.0, 2.0], [0.5, 0.5]])
    np.testing.assert_allclose(worst_weights(sums, 100.0, 5.0, 0.1), [5.0, 5.0])


def test_the_adversary_makes_training_harder_and_the_learner_answers():
    datas = simulated_clients(0, levels=RACE)
    method = AgnosticFair(rounds=150, n_references=20, tolerance=0.0, penalty=0.0, covariance=10.0)
    problem, runtime = pose_for(method, datas)
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    n = problem.n_rows.sum()

    def worst_case(state):
        point = states[5].request.points[0]
        asked = Point(state.params, extras=point.extras)
        reports = runtime.evaluate(Request((asked,)))
        sums = sum(r[0].extras["kernel_sums"] for r in reports.values())
        worst = worst_weights(sums, n, 5.0, 10.0) @ sums[0] / n
        return worst, states[1].kernel_weights @ sums[0] / n

    for state in states[2::30]:
        worst, even = worst_case(state)
        assert worst >= even - 1e-9
    assert worst_case(states[-1])[0] < worst_case(states[1])[0]
    for state in states[1:]:
        assert (state.kernel_weights >= 0).all() and (state.kernel_weights <= 5.0 + 1e-12).all()


def test_a_heavier_penalty_lowers_the_covariance():
    datas = simulated_clients(1, levels=RACE, n_rows=150)

    def covariance(penalty):
        state, runtime = finish(AgnosticFair(rounds=200, n_references=15, penalty=penalty), datas)
        question = state.request.points[0].extras[0]
        reports = runtime.evaluate(Request((Point(state.params, extras=(question,)),)))
        sums = sum(r[0].extras["kernel_sums"] for r in reports.values())
        return abs(state.kernel_weights @ sums[2]) / state.problem.n_rows.sum()

    assert covariance(100.0) < 0.5 * covariance(0.0)


def test_it_lowers_the_mean_loss_too():
    state, runtime = finish(AgnosticFair(rounds=100, n_references=10), simulated_clients(2))
    start = losses_at(runtime, zeros_for(runtime), 1e-2)
    assert losses_at(runtime, state.params, 1e-2).mean() < start.mean() - 0.02


def test_one_set_for_every_group_but_the_last():
    datas = simulated_clients(0, levels=TWO_ATTRIBUTES)
    rules = [type(RULES[0])("demographic_parity", name) for name in TWO_ATTRIBUTES]
    problem, _ = pose_for(AgnosticFair(), datas, rules)
    named = [(problem.rates[q].attribute, problem.rates[q].group) for q in group_sets(problem)]
    assert named == [("race", "black"), ("race", "white"), ("sex", "f")]


def test_the_bandwidth_is_the_median_distance():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    assert bandwidth(points) == pytest.approx(5.0)
    assert bandwidth(np.ones((4, 2))) == 1.0


@pytest.mark.parametrize("as_sparse", [False, True])
def test_reference_rows_are_training_rows_of_every_client_and_the_same_each_time(as_sparse):
    datas = simulated_clients(0, levels=RACE, as_sparse=as_sparse)
    datas["tiny"] = simulated_data(9, n_rows=1, as_sparse=as_sparse)
    problem, runtime = pose(datas, [])

    def references(seed):
        def ask(points):
            return runtime.evaluate(Request(tuple(points)))

        return with_references(problem, zeros_for(runtime), 20, seed, ask).references

    rows = references(0)
    assert np.array_equal(rows, references(0))
    assert not np.array_equal(rows, references(1))
    every = {
        name: {tuple(row) for row in (d.X.toarray() if as_sparse else d.X)}
        for name, d in datas.items()
    }
    assert all(any(tuple(row) in seen for seen in every.values()) for row in rows)
    assert 19 <= len(rows) <= 22 and tuple(rows[-1]) in every["tiny"]
