"""Margins, estimates over clients and limits on rates: simulation, integration, closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from fcfl import Difference, Ratio
from fcfl.problem import Problem, build_constraints
from fcfl.rules import rates_needed
from fcfl.training.margins import (
    ODD,
    SPREADS,
    TRUSTED_ROWS,
    enforced,
    kept_chance,
    margins,
    rate_limits,
    rows_per_new_row,
    sample,
    shared_confidence,
    shrinkage,
    tightened,
)
from helpers import RACE

PARITY = Difference("demographic_parity", "race", 0.1)
THREE = {"race": ("black", "white", "other")}


def rows_of(counts, *rules, levels=RACE):
    """The rows of rules over clients with these group counts, one line per client."""
    names = [f"c{k}" for k in range(len(counts))]
    counts = np.asarray(counts, float)
    rules = rules or (PARITY,)
    constraints, _ = build_constraints(rules, names, rates_needed(rules, levels), counts)
    return constraints, counts.ravel()


def sampled(counts, rates, *rules, levels=RACE):
    constraints, n = rows_of(counts, *rules, levels=levels)
    return sample(constraints, n, np.ravel(rates))


def M_of(slack, deviation, confidence, tilt=1.0):
    slack = np.maximum(np.atleast_1d(np.asarray(slack, float)), 0.0)
    deviation = np.broadcast_to(np.asarray(deviation, float), slack.shape)
    confidence = np.broadcast_to(np.asarray(confidence, float), slack.shape)
    return margins(slack, confidence, deviation, np.full(slack.shape, tilt))


# --- sampling of rows -----------------------------------------------------------------------------


def test_a_parity_models_value_varies_over_samples_as_it_says():
    """Binomial groups of equal rates: the deviation and the chance within, of all four rows."""
    rules = (PARITY, Ratio("demographic_parity", "race", 0.8))
    n, rng = np.array([300, 120]), np.random.default_rng(0)
    found = sampled([n], [[0.3, 0.3]], *rules)
    draws = rng.binomial(n, 0.3, (40_000, 2)) / n
    a, b = draws.T
    values = np.array([a - b, b - a, 0.8 * a - b, 0.8 * b - a])
    assert found.parity == pytest.approx([0.3] * 4, abs=2e-3)
    assert found.deviation == pytest.approx(values.std(axis=1), rel=0.02)
    opposite = found.tilt * found.deviation
    assert opposite[:2] == pytest.approx(found.deviation[:2])
    assert opposite[2:] == pytest.approx(found.deviation[[3, 2]])  # weights exchanged
    assert found.slack == pytest.approx([0.1, 0.1, 0.06, 0.06], abs=1e-3)  # (1 - .8) p
    assert (found.smaller == 120).all()
    difference, ratio = np.abs(a - b) <= 0.1, np.minimum(a / b, b / a) >= 0.8
    kept = kept_chance(0.0, found.slack, found.deviation, found.tilt)
    assert kept[:2] == pytest.approx(difference.mean(), abs=0.02)
    assert kept[2:].mean() == pytest.approx(ratio.mean(), abs=0.02)


def test_a_rate_of_no_rows_selected_counts_ten_rows_of_the_federation():
    found = sampled([[40, 40], [400, 400]], [[0.0, 0.0], [0.25, 0.25]])
    overall = (200 + 1) / (880 + 2)
    assert found.parity[0] == pytest.approx(10 * overall / 90)
    assert found.parity[2] == pytest.approx((200 + 10 * overall) / 810)
    assert found.deviation.min() > 0


def test_rates_of_each_kind_have_a_parity_of_their_own():
    rules = (Difference("equalized_odds", "race", 0.1),)
    constraints, n = rows_of([[900, 900, 900, 900]], *rules)
    rates = [0.8 if rate.kind == "true_positive" else 0.2 for rate in rates_needed(rules, RACE)]
    found = sample(constraints, n, np.array(rates))
    expected = [0.8 if row.kind == "true_positive" else 0.2 for row in constraints.rows]
    assert found.parity == pytest.approx(expected, abs=0.01)


def test_all_rows_together_have_the_deviation_of_their_groups_not_of_the_clients():
    rule = replace(PARITY, scope="global")
    found = sampled([[250, 250]] * 4, [[0.3, 0.3]] * 4, rule)
    assert found.deviation == pytest.approx([np.sqrt(0.3 * 0.7 * 2 / 1000)] * 2, rel=1e-2)
    assert (found.smaller == 1000).all()


def test_own_rows_can_tell_if_parity_stays_within_in_nine_of_ten_samples():
    p, z = 0.3, ndtri(0.95)
    enough = 2 * p * (1 - p) * (z / 0.1) ** 2  # rows of each group
    for factor, can in ((0.95, False), (1.05, True)):
        n = factor * enough
        constraints, counts = rows_of([[n, n]] * 9)
        known = enforced(constraints, (PARITY,), counts, np.full(18, p), "none", 1)
        assert known.tells.all() == can


# --- margins --------------------------------------------------------------------------------------


def test_the_chance_within_is_that_of_simulated_values():
    Z = np.random.default_rng(1).standard_normal(200_000)
    for mean, slack, s, opposite in ((0.03, 0.1, 0.05, 0.05), (0.0, 0.05, 0.05, 0.03)):
        above = (mean + s * Z <= slack).mean()
        below = (mean + opposite * Z < -slack).mean()
        (found,) = kept_chance(*(np.array([v]) for v in (mean, slack, s, opposite / s)))
        assert found == pytest.approx(above - below, abs=4e-3)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("deviation", [0.005, 0.02, 0.05, 0.2])
def test_a_margin_gives_the_confidence_or_half_of_the_miss_beside_parity(confidence, deviation):
    (M,) = M_of(0.1, deviation, confidence)
    Z = np.random.default_rng(2).standard_normal(200_000)
    even = (np.abs(deviation * Z) <= 0.1).mean()
    target = min(confidence, 0.5 * (1 + confidence) * even)
    kept = (np.abs(M + deviation * Z) <= 0.1).mean()
    assert 0 < M <= 0.1 and kept >= target - 5e-3
    if M < 0.1 - 1e-9:  # the largest that does
        assert kept == pytest.approx(target, abs=5e-3)


def test_where_the_other_side_is_far_away_a_margin_is_the_quantile():
    confidence, deviation = np.array([0.6, 0.9, 0.99]), 0.01
    assert M_of([0.1] * 3, deviation, confidence) == pytest.approx(
        0.1 - deviation * ndtri(confidence)
    )


def test_margins_shrink_with_the_confidence_and_with_noise():
    c = np.linspace(0.0, 0.999, 60)
    for deviation in (0.003, 0.03, 0.06, 0.3):
        assert np.all(np.diff(M_of(np.full(60, 0.1), deviation, c)) <= 1e-12)
    rooms = np.linspace(0.0, 0.5, 60)
    assert np.all(np.diff(M_of(rooms, 0.03, 0.9)) >= 0)


def test_without_noise_the_whole_room_is_left_and_without_room_nothing():
    assert M_of([0.1], 0.0, 0.9) == pytest.approx([0.1])
    assert M_of([0.0, -0.2], 0.03, 0.9) == pytest.approx([0.0, 0.0])
    # and with so much noise that nothing can be known, half of a miss is nothing too
    assert M_of([0.1], 1e6, 0.9) == pytest.approx([0.1])


def test_a_ratios_margin_counts_each_tail_with_its_own_weights():
    (M,) = M_of([0.06], 0.05, 0.9, tilt=0.8)
    chance = ndtr((0.06 - M) / 0.05) - ndtr(-(0.06 + M) / 0.04)
    even = ndtr(0.06 / 0.05) - ndtr(-0.06 / 0.04)
    assert chance == pytest.approx(min(0.9, 0.95 * even))


def test_the_miss_of_a_budget_is_shared_by_pairs_of_groups_and_kinds():
    def shared(rule, levels):
        n = [[50] * len(rates_needed([rule], levels))] * 2
        (value,) = set(shared_confidence(rows_of(n, rule, levels=levels)[0], 0.9).round(12))
        return value

    odds = Difference("equalized_odds", "race", 0.1)
    assert shared(PARITY, RACE) == pytest.approx(0.9)
    assert shared(PARITY, THREE) == pytest.approx(1 - 0.1 * 2 / 3)
    assert shared(odds, RACE) == pytest.approx(1 - 0.1 * 2 / 4)
    assert shared(odds, THREE) == pytest.approx(1 - 0.1 * 2 / 6)


# --- estimates over clients -----------------------------------------------------------------------


def by_integration(D, s):
    """The same posterior, with the mean and every client's own value integrated on grids."""
    mu = np.linspace(-0.8, 0.8, 3201)
    weight, own, average, means, variances = [], [], [], [], []
    for tau in SPREADS:
        total = tau**2 + s**2
        log = -0.5 * ((D - mu[:, None]) ** 2 / total).sum(axis=1)
        scale = log.max()
        of_mu = np.exp(log - scale)
        mass = of_mu.sum() * (mu[1] - mu[0])
        weight.append(np.log(mass) + scale - 0.5 * np.log(total).sum())
        of_mu = of_mu / of_mu.sum()
        w = tau**2 / total
        conditional = w * D + (1 - w) * mu[:, None]  # E[own value | mean, spread]
        mean = of_mu @ conditional
        means.append(mean)
        variances.append(w * s**2 + of_mu @ (conditional - mean) ** 2)
        own.append(w)
        average.append((1 / total) / (1 / total).sum())
    share = np.exp(np.array(weight) - max(weight))
    share /= share.sum()
    mean = share @ np.array(means)
    variance = share @ (np.array(variances) + (np.array(means) - mean) ** 2)
    return share @ np.array(own), share @ np.array(average), np.sqrt(variance), share @ SPREADS


def some_clients(seed, n=12, spread=0.05):
    rng = np.random.default_rng(seed)
    s = rng.uniform(0.01, 0.12, n)
    return 0.1 + spread * rng.standard_normal(n) + s * rng.standard_normal(n), s


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
def test_estimates_are_those_of_integrating_the_posterior(spread):
    D, s = some_clients(3, spread=spread)
    found = shrinkage(D, s)
    own, average, deviation, mean_spread = by_integration(D, s)
    assert found.own == pytest.approx(own, abs=1e-4)
    assert found.average == pytest.approx(average, abs=1e-4)
    assert found.deviation == pytest.approx(deviation, rel=1e-3)
    assert found.spread == pytest.approx(mean_spread, rel=1e-3)
    assert found.average.sum() == pytest.approx(1.0)


def test_estimates_do_not_depend_on_order_or_on_a_shift():
    D, s = some_clients(4)
    found, order = shrinkage(D, s), np.random.default_rng(0).permutation(D.size)
    for other, back in ((shrinkage(D[order], s[order]), order), (shrinkage(D - 0.4, s), None)):
        for name in ("own", "average", "deviation", "surprise"):
            expected = getattr(found, name) if back is None else getattr(found, name)[back]
            assert getattr(other, name) == pytest.approx(expected, rel=1e-6)


def test_estimates_scale_with_the_differences_where_the_grid_allows():
    D, s = some_clients(5, n=40, spread=0.03)
    one, twice = shrinkage(D, s), shrinkage(2 * D, 2 * s)
    assert twice.own == pytest.approx(one.own, abs=2e-2)
    assert twice.deviation == pytest.approx(2 * one.deviation, rel=2e-2)
    assert twice.surprise == pytest.approx(one.surprise, rel=3e-2, abs=1e-2)


def test_own_rows_count_fully_where_they_abound_and_hardly_where_clients_are_alike():
    D, s = some_clients(6, n=40)
    assert shrinkage(D, 1e-3 * s).own.min() > 0.99
    alike = 0.1 + 0.2 * np.random.default_rng(1).standard_normal(400) * 0.5
    assert shrinkage(alike, np.full(400, 0.1)).own.max() < 0.15
    assert shrinkage(np.full(40, 0.1), np.full(40, 0.1)).own.max() < 0.1


def test_the_interval_of_an_estimate_holds_the_truth_as_often_as_it_says():
    """Simulated clients whose own values are drawn around a mean: 90 % intervals."""
    rng, kept, n = np.random.default_rng(7), [], 20
    for _ in range(60):
        truth = 0.05 + 0.04 * rng.standard_normal(n)
        s = rng.uniform(0.02, 0.15, n)
        D = truth + s * rng.standard_normal(n)
        found = shrinkage(D, s)
        estimate = found.own * D + (1 - found.own) * (found.average @ D)
        kept.append((np.abs(estimate - truth) <= 1.645 * found.deviation).mean())
    assert np.mean(kept) == pytest.approx(0.9, abs=0.03)


def test_surprise_is_the_distance_from_what_the_other_clients_predict():
    D, s = some_clients(8)
    found = shrinkage(D, s)
    for k in range(D.size):
        others = np.arange(D.size) != k
        total = SPREADS[:, None] ** 2 + s[others] ** 2
        V = 1 / (1 / total).sum(axis=1)
        m = V * (D[others] / total).sum(axis=1)
        log = 0.5 * np.log(V) - 0.5 * np.log(total).sum(axis=1)
        log -= 0.5 * ((D[others] - m[:, None]) ** 2 / total).sum(axis=1)
        share = np.exp(log - log.max())
        share /= share.sum()
        mean = share @ m
        variance = share @ (SPREADS**2 + s[k] ** 2 + V + (m - mean) ** 2)
        assert found.surprise[k] == pytest.approx(abs(D[k] - mean) / np.sqrt(variance))


# --- which rows are estimates ---------------------------------------------------------------------


def federation_of(n_clients, rows=60, seed=0, odd=None):
    rng = np.random.default_rng(seed)
    counts = rng.integers(rows // 2, rows * 2, (n_clients, 2)).astype(float)
    rates = rng.binomial(counts.astype(int), 0.3) / counts
    if odd is not None:
        rates[odd] = 0.1, 0.9
    return counts, rates


def known_of(counts, rates, *rules, pooling="auto", least=None, levels=RACE):
    rules = rules or (PARITY,)
    constraints, n = rows_of(counts, *rules, levels=levels)
    return enforced(constraints, rules, n, np.ravel(rates), pooling, least)


def test_eight_clients_pool_and_seven_do_not():
    for n, pools in ((7, False), (8, True)):
        assert known_of(*federation_of(n)).pools == pools
        assert not known_of(*federation_of(n), pooling="none").pools
        global_rule = replace(PARITY, scope="global")
        assert not known_of(*federation_of(n), global_rule).pools


@pytest.mark.parametrize("rule", [PARITY, Ratio("demographic_parity", "race", 0.8)])
def test_an_estimate_is_the_clients_value_shrunk_to_the_average(rule):
    counts, rates = federation_of(10)
    known = known_of(counts, rates, rule)
    a, b = rates.T
    weight = 1.0 if rule is PARITY else 0.8
    estimates = known.budgets.apply(rates.ravel())
    for first, D in ((0, weight * a - b), (1, weight * b - a)):
        s = known.deviation  # of the estimate
        own_rows = [i for i in range(20) if i % 2 == first]
        sampling = sample(known.own, known.counts, rates.ravel())
        found = shrinkage(D, sampling.deviation[own_rows])
        expected = found.own * D + (1 - found.own) * (found.average @ D)
        assert estimates[own_rows] == pytest.approx(expected)
        assert s[own_rows] == pytest.approx(found.deviation)
        assert known.weight[own_rows] == pytest.approx(found.own)
    assert known.own.apply(rates.ravel())[0] == pytest.approx(weight * a[0] - b[0])
    assert known.budgets.bounds == pytest.approx(known.own.bounds)


def test_decisions_must_keep_own_rows_that_can_tell_and_else_the_estimates():
    counts, rates = federation_of(10)
    counts[0] = 5000.0
    known = known_of(counts, rates)
    assert known.tells[:2].all() and not known.tells[2:].any()
    kept = known.decisive
    values, own, pooled = (rows.apply(rates.ravel()) for rows in (kept, known.own, known.budgets))
    assert len(kept) == 20
    by_client = {}
    for row, value in zip(kept.rows, values, strict=True):
        by_client.setdefault(row.client, []).append(value)
    assert by_client["c0"] == pytest.approx(own[:2])
    assert by_client["c3"] == pytest.approx(pooled[6:8])
    assert abs(own[6] - pooled[6]) > 1e-3


def test_groups_of_few_rows_count_in_estimates_and_not_without():
    counts, rates = federation_of(10)
    counts[3, 0] = 4.0
    assert {row.client for row in known_of(counts, rates).own.rows} >= {"c3"}
    alone = known_of(counts, rates, pooling="none")
    assert "c3" not in {row.client for row in alone.own.rows}
    asked = known_of(counts, rates, pooling="none", least=4)
    assert "c3" in {row.client for row in asked.own.rows}


def test_a_rule_over_all_rows_asks_no_more_rows_of_single_clients_than_their_own():
    """A group needs 30 rows at a budget of .1 and 100 at .01: clients have 40, together 80."""
    rules = PARITY, replace(PARITY, budget=0.01, scope="global")
    known = known_of(np.full((2, 2), 40.0), np.full((2, 2), 0.3), *rules, pooling="none")
    assert {row.client for row in known.own.rows} == {"c0", "c1"}


def test_a_client_that_differs_from_all_others_is_named_and_chance_names_few():
    assert known_of(*federation_of(12, rows=400, odd=5)).odd == ("c5",)
    named = [known_of(*federation_of(12, rows=400, seed=seed)).odd for seed in range(40)]
    assert sum(map(bool, named)) <= 40 * 4 * ODD


def test_weights_of_own_rows_grow_to_one_with_the_rows():
    least = []
    truth = 0.3 + 0.05 * np.random.default_rng(0).standard_normal((12, 2))
    for n in (100, 1_000, 10_000, 100_000, 1_000_000):
        least.append(known_of(np.full((12, 2), float(n)), truth).weight.min())
    assert np.all(np.diff(least) > 0) and least[-1] > 0.999
    assert least[0] < 0.8


# --- limits on rates ------------------------------------------------------------------------------


def test_the_federations_rate_shifts_by_so_much_at_most():
    counts = np.array([[5000.0, 3000.0], [40.0, 30.0]])
    rates = np.array([[0.3, 0.25], [0.5, 0.1]])
    known = known_of(counts, rates, least=1)
    limits = rate_limits(known, rates.ravel(), 0.05)
    assert [row.client for row in limits.rows] == [None, None]

    def inside(shift):
        return (limits.violations((rates + shift).ravel()) <= 1e-12).all()

    for sign in (1, -1):
        assert inside(sign * 0.05) and not inside(sign * 0.051)
    for client in (0, 1):  # as far as its rows weigh among all
        alone = np.zeros((2, 2))
        alone[client] = 0.05 * counts.sum() / counts[client].sum()
        assert inside(0.99 * alone) and not inside(1.01 * alone)


# --- bounds ---------------------------------------------------------------------------------------


def bounds_of(counts, smooth, hard, bias=0.0, confidence=0.9, new_rows=0.0, rule=PARITY):
    known = known_of(np.array(counts, float), np.array(hard), rule, least=1)
    n = len(known.budgets)
    rates = np.ravel(smooth), np.ravel(hard)
    return known, tightened(known, *rates, np.full(n, bias), confidence, np.full(n, new_rows))


def test_bounds_are_the_mean_that_keeps_the_budget_less_bias_and_gap():
    counts, smooth, hard = [[8000, 4000]], [[0.31, 0.29]], [[0.32, 0.28]]
    known, tight = bounds_of(counts, smooth, hard, bias=0.003)
    sampling = sample(known.own, known.counts, np.ravel(hard))
    M = 0.1 - ndtri(0.9) * sampling.deviation
    trust = 4000 / (4000 + TRUSTED_ROWS)
    gap = trust * np.array([0.02, -0.02])
    assert tight.smooth == pytest.approx(np.minimum(M - 0.003 - gap, 0.1), abs=1e-9)
    assert tight.decided == pytest.approx(0.1 - trust * 0.9 * (0.1 - M))
    _, none = bounds_of(counts, smooth, hard, bias=0.0)
    assert none.smooth[0] - tight.smooth[0] == pytest.approx(0.003)


def test_margins_are_for_populations_or_for_samples_of_new_rows():
    counts, rates = [[8000, 4000]], [[0.3, 0.3]]
    lowered = [
        0.1 - bounds_of(counts, rates, rates, new_rows=n)[1].smooth[0] for n in (0, 0.25, 1, 3)
    ]
    assert lowered[1:] == pytest.approx(lowered[0] * np.sqrt([1.25, 2, 4]))


@pytest.mark.parametrize("rows", [30, 100, 400, 4000])
@pytest.mark.parametrize("rule", [PARITY, Ratio("demographic_parity", "race", 0.8)])
def test_bounds_keep_a_tenth_of_the_room_on_both_sides_of_parity(rows, rule):
    """Whatever bias and gap are, so that opposite rows never contradict each other."""
    smooth, hard = [[0.2, 0.4]], [[0.9, 0.1]]
    for bias in (-1.0, 0.0, 1.0):
        known, tight = bounds_of([[rows, rows]], smooth, hard, bias=bias, rule=rule)
        sampling = sample(known.own, known.counts, np.ravel(hard))
        parity = known.budgets.apply(np.repeat(sampling.parity[:1], 2))
        assert np.all(tight.smooth - parity >= 0.1 * sampling.slack * (1 - 1e-9))
        assert np.all(tight.smooth <= known.budgets.bounds)


def test_bounds_fall_with_the_confidence_and_rows_asked_for_are_enough():
    counts, rates = [[900, 500]], [[0.3, 0.3]]
    grid = [bounds_of(counts, rates, rates, confidence=c)[1] for c in (0.3, 0.6, 0.9, 0.99)]
    assert np.all(np.diff([tight.smooth for tight in grid], axis=0) < 0)
    assert np.all(np.diff([tight.decided for tight in grid], axis=0) < 0)
    assert np.all(np.diff([tight.rows_short for tight in grid], axis=0) > 0)
    (times, _) = bounds_of([[90, 50]], rates, rates)[1].rows_short
    assert times > 1
    known, tight = bounds_of([[90 * times, 50 * times]], rates, rates)
    assert tight.rows_short == pytest.approx([1, 1], abs=0.05)
    found = sample(known.own, known.counts, np.ravel(rates))
    kept = kept_chance(0.0, found.slack, found.deviation, found.tilt)
    assert kept == pytest.approx([0.9] * 2, abs=0.01)  # of samples of a parity model


# --- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [Difference("demographic_parity", "race", 0.0), Ratio("demographic_parity", "race", 1.0)],
)
def test_no_number_of_rows_gives_slack_to_a_budget_of_exact_equality(rule):
    """Bounds stay as they are, and no multiple of the rows is named."""
    constraints, counts = rows_of([[300, 200]], rule)
    rates = np.array([0.5, 0.4])
    known = enforced(constraints, (rule,), counts, rates, "none", 1.0)
    tight = tightened(known, rates, rates, np.zeros(2), 0.9)
    assert tight.smooth == pytest.approx(known.budgets.bounds)
    assert np.isinf(tight.rows_short).all() and not tight.can_tell.any()


def test_the_largest_confidence_below_one_has_finite_needs():
    constraints, counts = rows_of([[300, 200]])
    known = enforced(constraints, (PARITY,), counts, np.full(2, 0.5), "none", 1.0)
    tight = tightened(known, np.full(2, 0.5), np.full(2, 0.5), np.zeros(2), np.nextafter(1, 0))
    assert np.isfinite(tight.rows_short).all() and (tight.rows_short > 1).all()


def test_rates_of_parity_are_those_of_each_client_for_any_mix_of_scopes_and_attributes():
    """Written out client by client, with ten rows at the federation's rate."""
    levels = THREE | {"sex": ("f", "m")}
    rules = (PARITY, replace(PARITY, attribute="sex"), replace(PARITY, scope="global"))
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 90, (6, 5)).astype(float)
    rates = rng.random((6, 5))
    constraints, n = rows_of(counts, *rules, levels=levels)
    found = sample(constraints, n, rates.ravel()).parity
    places = {"race": slice(0, 3), "sex": slice(3, 5)}
    for row, parity in zip(constraints.rows, found, strict=True):
        part = places[row.attribute]
        overall = (counts[:, part] * rates[:, part]).sum() + 1
        overall /= counts[:, part].sum() + 2
        of = slice(None) if row.client is None else int(row.client[1:])
        own, rows = (counts[of] * rates[of])[..., part].sum(), counts[of][..., part].sum()
        assert parity == pytest.approx((own + 10 * overall) / (rows + 10))


def test_new_rows_of_a_rule_over_all_clients_are_those_of_all():
    rules = (PARITY, replace(PARITY, scope="global"))
    constraints, _ = rows_of([[30, 10], [60, 20]], *rules)
    problem = Problem(("c0", "c1"), np.array([40.0, 80.0]), 2, constraints)
    per_new = rows_per_new_row(problem, constraints.rows, 20.0)
    clients = [row.client for row in constraints.rows]
    assert dict(zip(clients, per_new, strict=True)) == {"c0": 2, "c1": 4, None: 3}
    assert rows_per_new_row(problem, constraints.rows, None) == 0
