"""The whole of a run under budgets: each step does what it promises, by the rows themselves."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from benchmarks.promise_runs import CountingFederation
from binding import PARITY, accuracy, binding, binding_rows, share_selected, trained_on

from by_slsqp import solve_by_slsqp
from fcfl import ClientData, Difference, Linear, Ratio, train
from fcfl._types import Point, Request
from fcfl.federation.federation import Federation
from fcfl.federation.session import Session
from fcfl.methods.decisions import RestoreDecisions
from fcfl.models.model import smooth_selection, smooth_selection_slope
from fcfl.problem import evaluate_point
from fcfl.training import solve as steps
from fcfl.training.margins import MAX_RATE_SHIFT, RUNGS, enforced, tightened
from helpers import RACE, identical, simulated_clients

LOOSE = replace(PARITY, budget=0.1)
EXACT = 1e-9
NO_LIMIT = {"max_rate_shift": 1.0}


def rows_of(clients):
    return {name: client.train for name, client in clients._clients.items()}


def stage(trained, name):
    """The fit whose folder ends with a name; None if there was none."""
    found = [one for one in trained.turns if one.folder.endswith(name)]
    return found[-1] if found else None


def plain_of(trained):
    return trained.turns[1]


def group_rates(params, data, sharpness=None):
    """The rate of each group, of decisions or smooth ones, and the rows behind each."""
    logits = data.X @ params[:-1] + params[-1]
    scores = (logits >= 0) * 1.0 if sharpness is None else smooth_selection(logits, 0.0, sharpness)
    members = [data.groups["race"] == code for code in (0, 1)]
    return np.array([scores[m].mean() for m in members]), np.array([m.sum() for m in members])


def gaps(params, clients):
    """Differences of decisions between the groups of each client, from its rows."""
    found = {name: group_rates(params, data)[0] for name, data in rows_of(clients).items()}
    return {name: abs(a - b) for name, (a, b) in found.items()}


def right_share(params, clients):
    datas = rows_of(clients).values()
    right = sum(
        ((d.X @ params[:-1] + params[-1] >= 0) == (d.y == 1)).sum() for d in datas
    )  # fmt: skip
    return right / sum(d.n_rows for d in datas)


@cache
def large(confidence=0.9, **options):
    return trained_on(
        binding(5, sizes=(4000, 8000), shift=0.5), LOOSE, confidence=confidence, **options
    )


# --- the plain problem ----------------------------------------------------------------------------


def test_confidence_zero_solves_the_papers_problem():
    """The smallest worst loss under the budgets as they are, as SLSQP finds it."""
    clients = binding(4, sizes=(300, 500))
    trained = trained_on(clients, LOOSE, objective="max", l2=0.01)
    plain = plain_of(trained)
    problem = plain.state.problem
    assert (problem.constraints.bounds == 0.1).all() and problem.constraints.pooled is None
    assert len(problem.constraints) == 4 and trained.margins is None
    assert not any("tightened" in one.folder for one in trained.turns)
    setup = trained_setup(clients, (LOOSE,))

    def rows(params):
        at = evaluate_point(problem, params, setup.evaluate(Request((Point(params, "gradients"),))))
        every = np.arange(len(problem.constraints))
        return at.losses, at.loss_grads, at.violations, at.violation_grads(every)

    worst = solve_by_slsqp(rows, plain.params)
    assert worst.success
    assert rows(plain.params)[0].max() == pytest.approx(worst.value, abs=3e-4)
    assert rows(plain.params)[2].max() <= 1e-5


def trained_setup(clients, rules):
    from fcfl.client.client import Setup
    from fcfl.models.linear import Linear
    from fcfl.rules import rates_needed

    return clients.bind(Setup(Linear(3), rates_needed(rules, RACE), rules))


# --- the tightened problem ------------------------------------------------------------------------


def bias_by_hand(state, clients):
    """``ν tr(H^-1 C)`` of every rate at the plain fit, written out from its rows."""
    params, datas = state.params, rows_of(clients)
    hessian, traces = state.problem.l2 * state.loss_weights.sum() * np.eye(params.size), []
    for weight, data in zip(state.loss_weights, datas.values(), strict=True):
        X = np.column_stack([data.X, np.ones(data.n_rows)])
        p = 1 / (1 + np.exp(-X @ params))
        hessian += weight / data.n_rows * (X.T * (p * (1 - p))) @ X
    inverse = np.linalg.inv(hessian)
    sharpness = Point(params).sharpness
    for data in datas.values():
        X = np.column_stack([data.X, np.ones(data.n_rows)])
        slope = smooth_selection_slope(smooth_selection(X @ params, 0.0, sharpness), sharpness)
        for code in (0, 1):
            rows = data.groups["race"] == code
            covariance = np.cov((slope[:, None] * X)[rows].T, bias=True) / rows.sum()
            traces.append(np.trace(inverse @ covariance))
    constraints = state.problem.constraints
    return constraints.weigh_rates(state.row_weights) * np.array(traces)


def test_the_tightened_fit_solves_the_problem_under_lowered_bounds():
    """Bounds are those of margins, bias and gap at the plain fit; KKT's conditions hold."""
    clients = binding(5, sizes=(4000, 8000))
    trained = trained_on(clients, confidence=0.9)
    plain, tight = plain_of(trained).state, stage(trained, "tightened").state
    hard, smooth, counts = [], [], []
    for data in rows_of(clients).values():
        rates, n = group_rates(plain.params, data)
        hard, counts = [*hard, *rates], [*counts, *n]
        smooth += [*group_rates(plain.params, data, Point(plain.params).sharpness)[0]]
    budgets = plain.problem.constraints.take(np.arange(4))
    free = [group_rates(trained.turns[0].params, data)[0] for data in rows_of(clients).values()]
    known = enforced(budgets, (PARITY,), np.array(counts, float), np.ravel(free), "auto", 1)
    drift = bias_by_hand(plain, clients)
    bias = budgets.apply(drift)
    assert np.abs(bias).max() > 1e-3  # or its absence could not be seen
    expected = tightened(known, np.array(smooth), np.array(hard), bias, 0.9)
    bounds = tight.problem.constraints.bounds
    # the Hessian is that of the reports' losses, so the trace is that by hand
    assert bounds[:4] == pytest.approx(expected.smooth, abs=2e-5)
    assert bounds[:4].max() < 0.049
    assert bounds[4:] == pytest.approx(plain.problem.constraints.bounds[4:])
    asked = Request((Point(tight.params, "gradients"),))
    at = evaluate_point(
        tight.problem, tight.params, trained_setup(clients, (PARITY,)).evaluate(asked)
    )
    mu = tight.row_weights
    assert at.violations.max() <= 1e-3 and mu.min() >= 0 and mu.max() > 0.01
    assert np.abs(mu * at.violations).max() <= 2 * steps.TIGHT_TOLERANCE
    slope = tight.loss_weights @ at.loss_grads + mu @ at.violation_grads(np.arange(mu.size))
    assert np.abs(slope).max() <= 2 * steps.TIGHT_TOLERANCE


def test_a_higher_confidence_is_trained_for_a_smaller_disparity():
    found = [large(c) for c in (0, 0.6, 0.9)]
    worst = [max(gaps(t.params, binding(5, (4000, 8000), shift=0.5)).values()) for t in found]
    assert worst[2] < worst[1] < worst[0] <= 0.1 + EXACT
    assert worst[2] < 0.09 and all(trained.budgets_met for trained in found)
    assert [t.margins and t.margins.confidence for t in found] == [None, 0.6, 0.9]
    assert found[2].margins.cut_to is None


def test_new_rows_keep_the_budget_more_often():
    """Of twelve clients' held-out rows; the plain budget is kept by about every second."""
    kept = {0: 0, 0.9: 0}
    for seed in (5, 6, 7):
        clients = binding(seed, sizes=(4000, 5000, 6000, 8000), shift=0.5)
        for confidence in kept:
            trained = trained_on(clients, LOOSE, confidence=confidence, new_rows=4000)
            for counts in trained.evaluations.test.values():
                kept[confidence] += np.ptp(counts.group_selected / counts.group_counts) <= 0.1
    assert kept[0.9] > kept[0] and kept[0.9] >= 10


def test_margins_for_samples_of_new_rows_are_larger_than_those_for_the_population():
    one, other = (
        stage(t, "tightened").state.problem.constraints.bounds[:4]
        for t in (large(), large(new_rows=500.0))
    )
    assert (other < one).all()


# --- what margins may cost, and the rungs ---------------------------------------------------------


def test_margins_cost_no_more_accuracy_than_allowed_and_the_confidence_reached_is_said():
    clients = binding(2, sizes=(1000, 2000))
    plain = right_share(plain_of(trained_on(clients, confidence=0.9)).params, clients)
    for most in (0.0, 0.01, 0.1):
        trained = trained_on(clients, confidence=0.99, max_accuracy_loss=most)
        price = trained.price
        assert price.with_budgets.accuracy == pytest.approx(plain)
        assert price.with_margins.accuracy == pytest.approx(accuracy(trained))
        if trained.budgets_met and stage(trained, "within") is None:
            assert accuracy(trained) >= plain - most - EXACT
        cut = trained.margins.cut_to
        assert cut is None or cut in (0.0, *RUNGS)
        assert (cut is None) != any("Margins for 0.99" in note for note in trained.notes)
    assert trained_on(clients, confidence=0.99, max_accuracy_loss=0.0).margins.cut_to is not None


def test_the_largest_confidence_that_margins_can_bear_is_found(monkeypatch):
    """With the whole ones too dear: between the rungs each fit costs more, so halves find it."""
    clients, tried = binding(5, sizes=(4000, 8000), shift=0.5), []
    fit_tight = steps._Solving._fit_tight

    def dear(self, tight, confidence):
        tried.append(confidence)
        found = fit_tight(self, tight, confidence)
        return None if confidence > 0.8 else found

    monkeypatch.setattr(steps._Solving, "_fit_tight", dear)
    trained = trained_on(clients, LOOSE, confidence=0.99)
    assert trained.margins.cut_to == 0.8 and tried[0] == 0.99 and len(tried) <= 4
    assert identical(stage(trained, "tightened") is not None, True) and trained.budgets_met
    as_given = large(0.8)
    assert trained.params == pytest.approx(as_given.params, abs=2e-3)


@pytest.mark.parametrize("sizes", [(240, 400), (1000, 30_000), (4000, 8000)])
def test_no_fit_that_was_too_dear_is_repeated(monkeypatch, sizes):
    """Where no rows can tell, some, or all: each fit has bounds of its own."""
    tried = []

    def dear(self, tight, confidence):
        tried.append(tuple(tight.smooth))

    monkeypatch.setattr(steps._Solving, "_fit_tight", dear)
    trained = trained_on(binding(5, sizes=sizes), confidence=0.9)
    assert tried and len({*tried}) == len(tried)
    assert trained.margins.cut_to == 0


# --- limits on rates ------------------------------------------------------------------------------


def overall(shares, counts):
    n = {name: c.n_rows for name, c in counts.items()}
    return sum(shares[name] * n[name] for name in n) / sum(n.values())


@pytest.mark.parametrize("confidence", [0.0, 0.9])
def test_the_federations_share_selected_shifts_by_no_more_than_allowed(confidence):
    """The groups are all rows of these clients: the rate compared is the share selected."""
    clients = binding(3, sizes=(400, 900))
    free = overall(share_selected(trained_on(clients, replace(PARITY, budget=None))),
                   trained_on(clients, replace(PARITY, budget=None)).counts)  # fmt: skip
    shifts = {}
    for most in (1.0, 0.05, 0.02):
        options = {"confidence": confidence, "max_rate_shift": most, "max_accuracy_loss": 1.0}
        trained = trained_on(clients, PARITY, **options)
        shifts[most] = abs(overall(share_selected(trained), trained.counts) - free)
        kept = shifts[most] <= most + 2e-3  # of another fit without budgets, to 1e-3
        assert kept or any("rate shift" in name for name in trained.exceeded)
        assert not trained.budgets_met or kept
    assert shifts[1.0] > 0.06 and shifts[0.02] <= 0.022


def test_by_default_rates_are_limited_with_a_confidence_and_not_without():
    limited, free = large(), large(0)
    names = [
        {row.rule for row in plain_of(t).state.problem.constraints.rows} for t in (limited, free)
    ]
    assert names == [{"difference", "shift"}, {"difference"}]
    assert MAX_RATE_SHIFT in {
        row.budget for row in plain_of(limited).state.problem.constraints.rows
    }


# --- decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 3])
def test_decisions_are_projected_inside_the_budgets(seed):
    clients = binding(seed)
    trained = trained_on(clients)
    plain = plain_of(trained)
    assert max(gaps(plain.params, clients).values()) > 0.05 + 1e-3
    assert max(gaps(trained.params, clients).values()) <= 0.05 + EXACT
    assert trained.budgets_met and stage(trained, "projected") is not None


def test_decisions_that_are_inside_are_left_as_they_are():
    clients = binding(5, sizes=(4000, 8000), shift=0.5)
    trained = trained_on(clients, replace(PARITY, budget=0.3))
    assert stage(trained, "projected") is None and trained.budgets_met
    assert identical(trained.params, plain_of(trained).params)


def test_without_the_projection_decisions_are_outside_and_it_is_said(monkeypatch):
    monkeypatch.setattr(RestoreDecisions, "_moved", lambda self, state, points: (
        replace(state, status="stopped"), points[0], 0.0))  # fmt: skip
    clients = binding(1)
    trained = trained_on(clients)
    over = {name: gap - 0.05 for name, gap in gaps(trained.params, clients).items() if gap > 0.05}
    assert not trained.budgets_met and len(trained.exceeded) == len(over) > 0
    assert sorted(trained.exceeded.values()) == pytest.approx(sorted(over.values()))
    assert any(note.startswith("Decisions on training rows exceed") for note in trained.notes)


# --- every kind of budget -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        Ratio("demographic_parity", "race", 0.8),
        Difference("equalized_odds", "race", 0.1),
        Difference("equal_opportunity", "race", 0.1),
        replace(PARITY, scope="global"),
    ],
)
@pytest.mark.parametrize("confidence", [0.0, 0.9])
def test_every_rule_and_scope_is_kept_by_decisions(rule, confidence):
    clients = binding(1, sizes=(1500, 2500))
    trained = trained_on(clients, rule, confidence=confidence)
    assert trained.budgets_met
    for held in held_rates(trained, rule):
        if rule.name == "ratio":
            assert held.min() >= rule.budget * held.max() - EXACT
        else:
            assert np.ptp(held) <= rule.budget + EXACT
    if confidence:
        lowered = [one for one in trained.turns if "tightened" in one.folder]
        assert lowered or trained.margins.cut_to is not None


def held_rates(trained, rule):
    """Of each client, or all together, the hard rates of each kind that a rule compares."""
    counts = trained.counts.values()
    selected = np.array([c.group_selected for c in counts])
    rows = np.array([c.group_counts for c in counts])
    if rule.scope == "global":
        selected, rows = (part.sum(axis=0, keepdims=True) for part in (selected, rows))
    kinds = np.array([rate.kind for rate in trained.rates])
    for kind in rule.kinds:
        for line, n in zip(selected[:, kinds == kind], rows[:, kinds == kind], strict=True):
            yield line / n


def test_several_attributes_are_kept_together():
    levels = {"race": ("black", "white"), "sex": ("f", "m")}
    datas = {}
    for name, data in simulated_clients(3, n_rows=900, levels=levels).items():
        X = data.X + 0.1 * np.random.default_rng(0).standard_normal(data.X.shape)
        X[:, 0] += data.groups["race"]
        X[:, 1] += data.groups["sex"]
        datas[name] = replace(data, X=X)
    from fcfl import Linear, train

    rules = [Difference("demographic_parity", name, 0.08) for name in levels]
    options = {"l2": 0.01, "objective": 1.0, "confidence": 0.8}
    trained = train(Federation.from_rows(datas), Linear(4), rules, **options)
    assert trained.budgets_met
    for counts in trained.counts.values():
        rates = counts.group_selected / counts.group_counts
        assert max(np.ptp(rates[:2]), np.ptp(rates[2:])) <= 0.08 + EXACT


def test_several_starts_are_compared_and_one_of_them_is_continued():
    trained = trained_on(binding(1), starts=3)
    assert len(trained.starts) == 3 and trained.budgets_met
    assert trained.starts[0].start == "unconstrained optimum"


def test_without_budgets_one_fit_is_made():
    free = trained_on(binding(1), replace(PARITY, budget=None), confidence=0.9)
    assert len(free.turns) == 1 and free.budgets_met and free.margins is None and not free.price


# --- the price ------------------------------------------------------------------------------------


def test_the_price_is_that_of_three_models_by_their_rows():
    clients = binding(5, sizes=(4000, 8000), shift=0.5)
    trained = large()
    price = trained.price
    last = trained.params
    for step, params in (
        (price.with_budgets, plain_of(trained).params),
        (price.with_margins, last),
    ):
        assert step.accuracy == pytest.approx(right_share(params, clients))
        for name, data in rows_of(clients).items():
            chosen = (data.X @ params[:-1] + params[-1] >= 0).mean()
            assert step.clients[name].selected == pytest.approx(chosen)
    free = trained_on(clients, replace(LOOSE, budget=None))
    assert price.without_budgets.accuracy == pytest.approx(
        right_share(free.params, clients), abs=2e-3
    )
    assert (
        price.without_budgets.accuracy > price.with_budgets.accuracy > price.with_margins.accuracy
    )


# --- estimates over clients -----------------------------------------------------------------------


def many(seed, n_clients=10, rows=(60, 150), one_large=None, spread=0.0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*rows, n_clients)
    if one_large is not None:
        sizes[0] = one_large
    datas = {
        f"client-{k}": binding_rows([seed, k], int(n), shift=0.8 + spread * rng.standard_normal())
        for k, n in enumerate(sizes)
    }
    return Federation.from_rows(datas)


@cache
def pooled_run(pooling="auto", confidence=0.9):
    clients = many(1, n_clients=14, one_large=5000)
    return clients, trained_on(clients, LOOSE, confidence=confidence, pooling=pooling)


def test_many_small_clients_are_kept_by_estimates_and_those_that_can_tell_by_their_own_rows():
    clients, trained = pooled_run()
    pooling = trained.pooling
    assert trained.budgets_met and pooling.own_rows_decide == ("client-0",)
    found = gaps(trained.params, clients)
    assert found["client-0"] <= 0.1 + EXACT
    over = {name for name, gap in found.items() if gap > 0.1 + EXACT}
    assert set(pooling.exceed_on_own_rows) == over and over  # whose rows are too few to tell
    assert pooling.weights["client-0"] == max(pooling.weights.values())
    constraints = plain_of(trained).state.problem.constraints
    assert constraints.pooled is not None
    n_few = len(pooling.weights) - 1
    assert any(note.startswith(f"{n_few} of {len(pooling.weights)} ") for note in trained.notes)


def test_estimates_do_not_collapse_where_own_rates_do():
    """Many rows of noise, each forced: hardly anybody is selected any more, or all alike."""
    _, pooled = pooled_run()
    _, own = pooled_run("none")
    assert own.pooling is None
    assert accuracy(pooled) > accuracy(own) + 0.02
    free = pooled.price.without_budgets
    assert pooled.price.with_margins.selected >= 0.8 * free.selected
    assert accuracy(pooled) >= free.accuracy - 0.06


def test_without_pooling_the_rows_are_those_of_the_paper():
    clients, trained = pooled_run("none", 0.0)
    problem = plain_of(trained).state.problem
    assert problem.constraints.pooled is None and (problem.constraints.bounds == 0.1).all()
    rates, expected = [], []
    for data in rows_of(clients).values():
        (a, b), rows = group_rates(plain_of(trained).params, data)
        rates += [a, b]
        expected += [a - b, b - a] if rows.min() >= 30 else []
    assert problem.constraints.apply(np.ravel(rates)) == pytest.approx(expected)


def test_a_least_number_of_rows_that_is_given_holds_for_estimates_too():
    clients = binding(3, sizes=(60,) * 8 + (600,) * 8, held_out=False)
    trained = trained_on(clients, confidence=0.9, min_group_rows=35)
    small = {f"client-{k}" for k in range(8)}
    compared = {row.client for row in trained.state.problem.constraints.rows}
    assert trained.pooling is not None and not compared & small


def test_as_rows_grow_the_model_is_that_of_own_rows():
    apart, options = [], {"min_group_rows": 1, "l2": 0.1}
    for times in (1, 10, 100):
        rng, datas = np.random.default_rng(0), {}
        for k in range(8):
            data = binding_rows([9, k], 150, shift=0.6 + 0.3 * rng.standard_normal())
            again = {"X": np.repeat(data.X, times, axis=0), "y": np.repeat(data.y, times)}
            groups = {"race": np.repeat(data.groups["race"], times)}
            datas[f"c{k}"] = replace(data, **again, groups=groups)
        clients = Federation.from_rows(datas)
        auto, none = (
            trained_on(clients, LOOSE, pooling=how, **options) for how in ("auto", "none")
        )
        apart.append(np.abs(plain_of(auto).params - plain_of(none).params).max())
        assert auto.pooling is not None and none.pooling is None
    assert apart[0] > 0.01 and apart[1] < 0.2 * apart[0] and apart[2] < 0.02 * apart[0]


# --- what is counted ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"l2": "auto", "objective": "auto"}])
def test_every_exchange_is_counted_under_its_phase(options):
    clients = CountingFederation(binding(5, (4000, 8000))._clients).counting()
    trained = trained_on(clients, confidence=0.9, **options)
    phases = set(trained.exchanges)
    assert {"meet", "check", "fit", "tighten"} <= phases
    assert ("choose" in phases) == bool(options)
    assert sum(trained.exchanges.values()) == sum(clients.asked.values())


# --- small groups ---------------------------------------------------------------------------------


def with_a_few_others(seed, n_others, sizes=(600, 900)):
    """Clients with some rows of a third group, all of them with label 0 and far from the others."""
    levels = {"race": ("black", "white", "other")}
    found = {}
    for k, n in enumerate(sizes):
        data = binding_rows([seed, k], n)
        X, y, group = data.X.copy(), data.y.copy(), data.groups["race"].copy()
        X[:n_others, 0], y[:n_others], group[:n_others] = -3.0, 0.0, 2
        found[f"client-{k}"] = replace(data, X=X, y=y, groups={"race": group}, levels=levels)
    return Federation.from_rows(found)


def test_a_handful_of_rows_does_not_steer_training_and_is_named():
    few = with_a_few_others(0, n_others=6)
    trained = trained_on(few)
    two = trained_on(few, groups={"race": ("black", "white")})
    np.testing.assert_allclose(trained.params, two.params, atol=1e-6)
    assert trained.budgets_met and trained.notes == tuple(
        f"Client 'client-{k}' has 6 rows of race = 'other': that group is left out of the "
        "comparison."
        for k in range(2)
    )
    steered = trained_on(few, min_group_rows=1)
    assert np.abs(steered.params - two.params).max() > 0.1 and "left out" not in str(steered.notes)


@pytest.mark.parametrize(
    ("n_others", "scope", "is_compared"),
    [(29, "client", False), (30, "client", True), (14, "global", False), (15, "global", True)],
)
def test_groups_from_thirty_rows_on_are_compared(n_others, scope, is_compared):
    """At each client, or of all clients together."""
    clients = with_a_few_others(0, n_others)
    groups = {"race": ("black", "white", "other")}
    trained = trained_on(clients, replace(PARITY, scope=scope), groups=groups, l2=1.0)
    rows = plain_of(trained).state.problem.constraints.rows
    assert any("other" in (row.group_a, row.group_b) for row in rows) == is_compared
    assert any("left out" in note for note in trained.notes) != is_compared


# --- the history of all fits ----------------------------------------------------------------------


def test_the_rounds_of_all_fits_are_one_history(tmp_path):
    options = {"confidence": 0.9, "l2": "auto"}
    clients = binding(5, sizes=(2000, 3000))
    trained = trained_on(clients, session=Session(tmp_path), **options)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["worst_loss"] for line in lines] == pytest.approx(
        [info.worst_loss for turn in trained.turns for info in turn.history]
    )
    assert len(lines) == len(trained.history)
    assert {line["phase"] for line in lines} >= {"meet", "fit", "tighten"}
    again = trained_on(clients, session=Session(tmp_path, resume=True), **options)
    assert identical(again.params, trained.params) and again.rounds == trained.rounds
    assert again.margins == trained.margins and again.price == trained.price
    written = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == lines


def test_budgets_that_do_not_bind_change_nothing_at_a_threshold_for_a_rare_label():
    rng = np.random.default_rng(3)
    clients = {}
    for name in ("north", "south"):
        X = rng.normal(size=(3000, 3))
        logits = -3.9 + X @ [0.6, 0.3, 0.0]
        y = (rng.random(3000) < 1.0 / (1.0 + np.exp(-logits))).astype(float)
        groups = {"race": rng.integers(0, 2, 3000)}
        clients[name] = ClientData(X, y, groups, {"race": ("a", "b")})
    trained = train(
        Federation.from_rows(clients), Linear(3), [replace(PARITY, budget=0.1)], threshold=0.08
    )
    before, after = trained.price.without_budgets, trained.price.with_margins
    assert after.selected == pytest.approx(before.selected, abs=0.002)
    assert after.accuracy == pytest.approx(before.accuracy, abs=0.002)
