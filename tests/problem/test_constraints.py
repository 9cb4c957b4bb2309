"""Violations are compared with the disparities themselves, computed here from the definition."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import sparse

from fcfl import problem as problem_module
from fcfl._types import Point, RateId, Request
from fcfl.problem import Pooled, build_constraints, evaluate_point
from fcfl.rules import RATE_KINDS, Difference, Ratio, rates_needed
from helpers import TWO_ATTRIBUTES, assert_derivative, bound_rate, pose, simulated_clients

METRICS = tuple(RATE_KINDS)
RULES = (Difference, Ratio)
CLIENTS = ("north", "south", "west")


def simulated_rates(seed, rates, clients=CLIENTS):
    """Random rates and row counts, one row per client."""
    rng = np.random.default_rng(seed)
    shape = (len(clients), len(rates))
    return rng.random(shape), rng.integers(1, 50, shape).astype(np.float64)


def violation_by_hand(rule, rates, values, counts, client):
    """Largest violation of one holder's disparity under one rule, from the definition.

    ``client`` is a position, or ``None`` for all clients' rows together.
    """
    pooled = (counts * values).sum(axis=0) / counts.sum(axis=0)
    held = pooled if client is None else values[client]
    worst = -np.inf
    for kind in RATE_KINDS[rule.metric]:
        r = [
            held[q]
            for q, rate in enumerate(rates)
            if rate.kind == kind and rate.attribute == rule.attribute
        ]
        budget = rule.budget_of(None if client is None else CLIENTS[client])
        if isinstance(rule, Difference):
            worst = max(worst, max(r) - min(r) - budget)
        else:
            worst = max(worst, max(budget * a - b for a, b in permutations(r, 2)))
    return worst


def block_violations(constraints, values):
    violations = constraints.violations(values.ravel())
    return violations[constraints.worst_rows(violations)]


@pytest.mark.parametrize("attribute", TWO_ATTRIBUTES)
@pytest.mark.parametrize("scope", ["client", "global"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", RULES)
def test_a_blocks_violation_is_the_disparity_minus_the_budget(kind, metric, scope, attribute):
    rule = kind(metric, attribute, 0.3, scope)
    other = Difference("demographic_parity", "race")  # measured only; its rates are reported too
    rates = rates_needed([other, rule], TWO_ATTRIBUTES)
    holders = [None] if scope == "global" else range(len(CLIENTS))
    for seed in range(5):
        values, counts = simulated_rates(seed, rates)
        constraints, notes = build_constraints([other, rule], CLIENTS, rates, counts)
        by_hand = [violation_by_hand(rule, rates, values, counts, k) for k in holders]
        np.testing.assert_allclose(block_violations(constraints, values), by_hand, atol=1e-14)
        assert notes == ()
        groups = len(TWO_ATTRIBUTES[attribute])
        pairs = groups * (groups - 1) * len(RATE_KINDS[metric])
        assert len(constraints) == pairs * len(by_hand)


def test_a_difference_block_is_the_papers_absolute_disparity_minus_budget():
    rule = Difference("demographic_parity", "sex", 0.05)
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    for seed in range(20):
        values, counts = simulated_rates(seed, rates)
        constraints, _ = build_constraints([rule], CLIENTS, rates, counts)
        absolute = np.abs(values[:, 0] - values[:, 1])
        np.testing.assert_allclose(block_violations(constraints, values), absolute - 0.05)


@pytest.mark.parametrize("entries", [100_000, 0], ids=["dense", "sparse"])
def test_every_row_is_its_own_name_in_numbers(entries, monkeypatch):
    """Each row's violation is what its name says, for stacked rules of all kinds."""
    monkeypatch.setattr(problem_module, "_DENSE_ENTRIES", entries)
    rules = [
        Difference("equalized_odds", "race", {"north": 0.1, "west": 0.2}),
        Ratio("equal_opportunity", "sex", 0.8),
        Difference("demographic_parity", "race", 0.05, "global"),
        Ratio("demographic_parity", "sex", 0.7, "global"),
    ]
    rates = rates_needed(rules, TWO_ATTRIBUTES)
    values, counts = simulated_rates(0, rates)
    constraints, _ = build_constraints(rules, CLIENTS, rates, counts)
    pooled = (counts * values).sum(axis=0) / counts.sum(axis=0)
    violations = constraints.violations(values.ravel())
    assert len(constraints) == violations.size == 24 + 6 + 6 + 2
    for row, violation in zip(constraints.rows, violations, strict=True):
        held = pooled if row.client is None else values[CLIENTS.index(row.client)]
        a, b = (
            held[rates.index(RateId(row.kind, row.attribute, group))]
            for group in (row.group_a, row.group_b)
        )
        by_hand = a - b - row.budget if row.rule == "difference" else row.budget * a - b
        assert violation == pytest.approx(by_hand, abs=1e-14)
    assert {row.client for row in constraints.rows[:24]} == {"north", "west"}


def test_blocks_are_adjacent_and_numbered_from_zero():
    rules = [
        Difference("equalized_odds", "race", {"south": 0.1}),
        Difference("demographic_parity", "sex", 0.1),
        Ratio("demographic_parity", "sex", 0.8, "global"),
    ]
    rates = rates_needed(rules, TWO_ATTRIBUTES)
    _, counts = simulated_rates(0, rates)
    constraints, _ = build_constraints(rules, CLIENTS, rates, counts)
    assert constraints.blocks.tolist() == [0] * 12 + [1] * 2 + [2] * 2 + [3] * 2 + [4] * 2
    assert constraints.block_starts.tolist() == [0, 12, 14, 16, 18]


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_row_of_each_block_is_its_largest(seed):
    rules = [Difference("equalized_odds", "race", 0.1), Ratio("demographic_parity", "sex", 0.8)]
    rates = rates_needed(rules, TWO_ATTRIBUTES)
    values, counts = simulated_rates(seed, rates)
    constraints, _ = build_constraints(rules, CLIENTS, rates, counts)
    violations = np.round(constraints.violations(values.ravel()), 1)  # ties are common
    worst = constraints.worst_rows(violations)
    blocks = np.unique(constraints.blocks)
    np.testing.assert_array_equal(constraints.blocks[worst], blocks)
    for row, block in zip(worst, blocks, strict=True):
        members = np.flatnonzero(constraints.blocks == block)
        assert row == members[np.argmax(violations[members])]


def test_no_budgets_make_no_rows():
    rule = Difference("demographic_parity", "sex")
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    values, counts = simulated_rates(0, rates)
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts)
    assert len(constraints) == 0 and notes == ()
    assert constraints.violations(values.ravel()).shape == (0,)
    assert constraints.worst_rows(np.zeros(0)).shape == (0,)
    no_rows = np.zeros(0, dtype=np.int64)
    assert constraints.gradients(lambda column: np.zeros(3), no_rows, 3).shape == (0, 3)


def test_without_rules_there_are_no_rows_and_no_notes():
    constraints, notes = build_constraints([], CLIENTS, (), np.zeros((3, 0)))
    assert len(constraints) == 0 and notes == ()
    assert constraints.violations(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("entries", [100_000, 0], ids=["dense", "sparse"])
@pytest.mark.parametrize("scope", ["client", "global"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", RULES)
def test_gradients_are_the_derivatives_of_the_violations(kind, metric, scope, entries, monkeypatch):
    """The chain rule through the reports of real clients, forwards, along a line and backwards."""
    monkeypatch.setattr(problem_module, "_DENSE_ENTRIES", entries)
    rules = [kind(metric, attribute, 0.3, scope) for attribute in TWO_ATTRIBUTES]
    datas = simulated_clients(1, levels=TWO_ATTRIBUTES)
    problem, runtime = pose(datas, rules)
    params = np.random.default_rng(2).standard_normal(5) / 3

    def at(p, want="values"):
        return evaluate_point(problem, p, runtime.evaluate(Request((Point(p, want),))))

    every = np.arange(len(problem.constraints))
    gradients = at(params, "gradients").violation_grads(every)
    assert_derivative(gradients, lambda p: at(p).violations, params)
    some = every[::-2]
    here = at(params, "gradients")
    np.testing.assert_allclose(here.violation_grads(some), gradients[some], atol=1e-15)
    line = np.random.default_rng(3).standard_normal(5)
    np.testing.assert_allclose(here.slopes(line)[0], here.loss_grads @ line, atol=1e-14)
    np.testing.assert_allclose(here.slopes(line)[1], gradients @ line, atol=1e-14)
    prices = np.random.default_rng(4).random(len(problem.constraints))
    net = problem.constraints.weigh_rates(prices)
    stacked = np.concatenate([report.rate_grads for report in here.reports])
    np.testing.assert_allclose(net @ stacked, prices @ gradients, atol=1e-13)


def test_rules_over_all_clients_compare_the_rates_of_the_pooled_rows():
    rules = [
        Difference("equalized_odds", "race", 0.1, "global"),
        Ratio("demographic_parity", "sex", 0.8, "global"),
    ]
    datas = simulated_clients(3, levels=TWO_ATTRIBUTES)
    pooled = {
        "all": type(datas["client-0"])(
            np.concatenate([d.X for d in datas.values()]),
            np.concatenate([d.y for d in datas.values()]),
            {k: np.concatenate([d.groups[k] for d in datas.values()]) for k in TWO_ATTRIBUTES},
            TWO_ATTRIBUTES,
        )
    }
    params = np.random.default_rng(3).standard_normal(5)
    violations = []
    for clients in (datas, pooled):
        problem, runtime = pose(clients, rules)
        reports = runtime.evaluate(Request((Point(params),)))
        violations.append(evaluate_point(problem, params, reports).violations)
    np.testing.assert_allclose(violations[0], violations[1], atol=1e-14)


def test_the_order_of_clients_only_permutes():
    rules = [
        Difference("equalized_odds", "race", 0.1),
        Ratio("demographic_parity", "sex", 0.8, "global"),
    ]
    rates = rates_needed(rules, TWO_ATTRIBUTES)
    values, counts = simulated_rates(4, rates)
    named = {}
    for order in permutations(range(3)):
        clients = [CLIENTS[k] for k in order]
        constraints, _ = build_constraints(rules, clients, rates, counts[list(order)])
        violations = constraints.violations(values[list(order)].ravel())
        found = dict(zip(constraints.rows, violations, strict=True))
        named = named or found
        assert found.keys() == named.keys()
        assert [found[row] for row in named] == pytest.approx(list(named.values()), abs=1e-15)


# --- groups that are too small ---


def test_an_absent_group_leaves_out_its_rows_and_is_named():
    rule = Difference("demographic_parity", "race", 0.1)
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    values, counts = simulated_rates(0, rates)
    counts[1, 2] = 0
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts)
    assert notes == (
        "Client 'south' has 0 rows of race = 'other': that group is left out of the comparison.",
    )
    assert len(constraints) == 6 + 2 + 6
    south = [row for row in constraints.rows if row.client == "south"]
    assert {row.group_a for row in south} == {"black", "white"}
    by_hand = [np.ptp(values[0]), np.ptp(values[1, :2]), np.ptp(values[2])]
    np.testing.assert_allclose(block_violations(constraints, values) + 0.1, by_hand)


def test_the_note_names_the_label_where_it_matters():
    rules = [Difference("equalized_odds", "sex", 0.1), Difference("equal_opportunity", "sex", 0.2)]
    rates = rates_needed(rules, TWO_ATTRIBUTES)
    _, counts = simulated_rates(0, rates)
    counts[0, 0] = counts[2, 3] = 0
    _, notes = build_constraints(rules, CLIENTS, rates, counts)
    assert notes == (
        "Client 'north' has 0 rows with label 1 of sex = 'f': "
        "that group is left out of the comparison.",
        "Client 'west' has 0 rows with label 0 of sex = 'm': "
        "that group is left out of the comparison.",
    )


def test_a_client_with_one_group_left_has_no_rows_and_its_block_does_not_count():
    rule = Difference("demographic_parity", "sex", 0.1)
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    values, counts = simulated_rates(0, rates)
    counts[0, 1] = counts[1, 0] = 0
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts)
    assert {row.client for row in constraints.rows} == {"west"}
    assert constraints.blocks.tolist() == [0, 0]
    assert len(notes) == 2
    assert block_violations(constraints, values).shape == (1,)


def test_a_group_below_the_least_size_is_left_out():
    rule = Difference("demographic_parity", "sex", 0.1)
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    counts = np.array([[9.0, 10.0], [10.0, 10.0], [10.0, 11.0]])
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts, min_group_rows=10)
    assert {row.client for row in constraints.rows} == {"south", "west"}
    assert len(notes) == 1 and notes[0].startswith("Client 'north' has 9 rows of sex = 'f'")


def test_a_group_absent_at_one_client_still_counts_over_all_clients():
    rule = Difference("demographic_parity", "sex", 0.1, "global")
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    values, counts = simulated_rates(0, rates)
    counts[0, 0] = 0
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts)
    pooled = (counts * values).sum(axis=0) / counts.sum(axis=0)
    assert notes == ()
    np.testing.assert_allclose(block_violations(constraints, values), [np.ptp(pooled) - 0.1])
    counts[:, 0] = 0
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts)
    assert len(constraints) == 0
    assert notes[0].startswith("The clients together have 0 rows of sex = 'f'")


def test_an_unconstrained_client_is_not_told_about_its_absent_groups():
    rule = Difference("demographic_parity", "sex", {"south": 0.1})
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    _, counts = simulated_rates(0, rates)
    counts[0, 0] = 0
    constraints, notes = build_constraints([rule], CLIENTS, rates, counts)
    assert notes == () and {row.client for row in constraints.rows} == {"south"}


def test_a_bound_on_one_rate_is_one_row_with_its_gradient():
    constraints = bound_rate("a", RateId("selection", "objective", "l2"), 0.4)
    assert constraints.violations(np.array([0.7])) == pytest.approx([0.3])
    gradients = constraints.gradients([np.array([1.0, 2.0])].__getitem__, np.array([0]), 2)
    assert gradients.tolist() == [[1.0, 2.0]]
    assert constraints.worst_rows(np.array([0.3])).tolist() == [0]


# --- averages over clients ------------------------------------------------------------------------


def pooled_rows(seed=0, n_clients=5, n_params=4):
    """Constraints with two averages that some rows share, and the dense matrix they stand for."""
    rule = Difference("demographic_parity", "race", 0.1)
    rates = rates_needed([rule], TWO_ATTRIBUTES)
    names = tuple(f"c{k}" for k in range(n_clients))
    rng = np.random.default_rng(seed)
    counts = rng.integers(5, 50, (n_clients, len(rates))).astype(float)
    own, _ = build_constraints([rule], names, rates, counts)
    weights, averages = rng.random((len(own), 2)), rng.standard_normal((2, own.n_columns))
    weights[::3] = 0.0
    averages[:, -len(rates) :] = 0.0  # the last client's rates are in no average
    pooled = replace(own, pooled=Pooled(weights, averages))
    triples = (own.entry_value, (own.entry_row, own.entry_column))
    dense = sparse.csr_array(triples, shape=(len(own), own.n_columns)).toarray()
    return pooled, dense + weights @ averages, rng


@pytest.mark.parametrize("entries", [100_000, 0], ids=["dense", "sparse"])
def test_rows_with_averages_are_the_product_written_out(entries, monkeypatch):
    monkeypatch.setattr(problem_module, "_DENSE_ENTRIES", entries)
    pooled, dense, rng = pooled_rows()
    r, mu = rng.random(pooled.n_columns), rng.random(len(pooled))
    np.testing.assert_allclose(pooled.apply(r), dense @ r)
    np.testing.assert_allclose(pooled.violations(r), dense @ r - pooled.bounds)
    np.testing.assert_allclose(pooled.weigh_rates(mu), dense.T @ mu)
    slopes = rng.standard_normal((pooled.n_columns, 4))
    for rows in (np.arange(len(pooled)), np.array([4, 1, 7]), np.array([0, 3]), np.array([], int)):
        asked = []

        def rate_grad(column, asked=asked):
            asked.append(column)
            return slopes[column]

        np.testing.assert_allclose(
            pooled.gradients(rate_grad, rows, 4), dense[rows] @ slopes, atol=1e-12
        )
        assert set(asked) == {int(c) for c in np.flatnonzero((dense[rows] != 0).any(axis=0))}


def test_some_of_the_rows_keep_their_averages_and_further_rows_have_none():
    pooled, dense, rng = pooled_rows()
    r = rng.random(pooled.n_columns)
    kept = np.array([7, 1, 4, 0])
    taken = pooled.take(kept)
    np.testing.assert_allclose(taken.apply(r), dense[kept] @ r)
    np.testing.assert_allclose(taken.bounds, pooled.bounds[kept])
    assert taken.rows == tuple(pooled.rows[i] for i in kept)
    plain = replace(pooled, pooled=None).take(np.array([2, 5]))
    both = taken.plus(plain)
    np.testing.assert_allclose(both.apply(r), [*(dense[kept] @ r), *plain.apply(r)])
    np.testing.assert_allclose(both.weigh_rates(np.eye(6)[5]), plain.matrix[1])
    assert both.rows == taken.rows + plain.rows
    np.testing.assert_allclose(both.bounds, np.append(taken.bounds, plain.bounds))
    assert not set(both.blocks[:4]) & set(both.blocks[4:])


def test_gradients_of_rows_with_averages_are_derivatives():
    rule = Difference("demographic_parity", "race", 0.1)
    problem, runtime = pose(simulated_clients(0), [rule])
    n = len(problem.constraints)
    rng = np.random.default_rng(1)
    averages = Pooled(rng.random((n, 1)), rng.standard_normal((1, problem.constraints.n_columns)))
    problem = replace(problem, constraints=replace(problem.constraints, pooled=averages))
    params = 0.3 * rng.standard_normal(5)

    def at(p, want="values"):
        return evaluate_point(problem, p, runtime.evaluate(Request((Point(p, want),))))

    here, line = at(params, "gradients"), rng.standard_normal(5)
    claimed = here.violation_grads(np.arange(n))
    assert_derivative(claimed, lambda p: at(p).violations, params)
    np.testing.assert_allclose(here.slopes(line)[1], claimed @ line, atol=1e-13)
