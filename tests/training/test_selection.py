"""Choosing by cross-validation: folds, sums and the rule, each by hand; then the whole."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from binding import PARITY, binding
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl import SQP, Difference
from fcfl._types import Fold, Point, Request
from fcfl.client import local_client
from fcfl.client.counts import Counts
from fcfl.client.folds import fold_of_rows
from fcfl.client.local_client import LocalClient
from fcfl.client.questions import HeldOut, Setup, sum_up
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.rules import rates_needed
from fcfl.runs import Experiment
from fcfl.runs.opening import open_table
from fcfl.server.constraints import build_constraints
from fcfl.server.problem import build_problem, evaluate_point
from fcfl.server.sqp.one_step import ask_step, take_step
from fcfl.training import candidate_fits, selection
from fcfl.training.open_settings import open_settings
from fcfl.training.selection import L2_GRID, L2_TRIED, OBJECTIVE_GRID, OpenSettings
from fcfl.training.selection_rule import (
    CLEARLY,
    N_FOLDS,
    SLACK,
    budget_excess,
    checked_forecast,
    decide,
    lowest_between,
)
from fcfl.training.together import Lane, run_together
from helpers import RACE, simulated_clients
from hospital import stays, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return str(written(stays(n_rows=150), tmp_path_factory.mktemp("tables") / "stays.csv"))


@dataclass(frozen=True)
class Choice:
    """A cross-validation that can be run again with another detail."""

    clients: Any  # each client's training rows
    setup: Setup
    method: Any
    settings: OpenSettings
    seed: int = 0

    def select(self, on_round=None, progress_file=None):
        return selection.select(
            Federation.from_rows(self.clients),
            self.setup,
            self.setup.rules,
            self.method,
            self.settings,
            seed=self.seed,
            on_round=on_round,
            progress_file=progress_file,
        )


def choice_of(table, **options):
    """What a run on the table leaves open."""
    experiment = Experiment(table, **TABLE, budget=0.05, **options)
    opened = open_table(experiment)
    rules = experiment.make_rules(opened.columns.sensitive, opened.clients)
    model = Linear(opened.schema.n_features)
    setup = Setup(model, rates_needed(rules, opened.levels), rules)
    given = open_settings("sqp", model, options.get("l2"), options.get("objective"),
                          excess_loss=False)  # fmt: skip
    return Choice(opened.train, setup, experiment.make_method(), given)


def folds_of(client, data, seed=0):
    return fold_of_rows(client, data, Fold(0, N_FOLDS, seed))


# --- sums ---


def test_sums_give_means_and_standard_errors_of_rows_never_seen():
    losses = np.random.default_rng(1).gamma(2.0, 0.3, (40, 3))
    sums = sum_up(losses)
    np.testing.assert_allclose(sums.means, losses.mean(axis=0))
    for i in range(3):
        assert sums.standard_error(i) == pytest.approx(losses[:, i].std(ddof=1) / np.sqrt(40))
        for j in range(3):
            apart = losses[:, i] - losses[:, j]
            expected = apart.std(ddof=1) / np.sqrt(40)
            assert sums.standard_error(i, j) == pytest.approx(expected, abs=1e-9)


def test_one_row_has_no_spread():
    assert sum_up(np.array([[0.3, 0.4]])).standard_error(0) == 0.0


# --- the rule ---


def noisy(means, sd, n_rows=100, seed=0):
    """Held-out losses with exactly these means, whose differences between columns have noise."""
    noise = np.random.default_rng(seed).standard_normal((n_rows, len(means)))
    return sum_up(np.array(means) + sd * (noise - noise.mean(axis=0)))


GRID = [(0.1, 10.0), (0.1, "max"), (0.01, 10.0)]


def test_without_noise_the_worst_clients_best_setting_is_taken():
    totals = {"a": noisy([0.50, 0.52, 0.49], 0.0), "b": noisy([0.3, 0.1, 0.4], 0.0)}
    chosen = decide(GRID, totals)
    assert (chosen.l2, chosen.objective) == (0.01, 10.0)
    assert chosen.best == chosen.chosen
    assert chosen.near_best == 1
    assert chosen.spread == pytest.approx(0.03)


def test_within_the_noise_the_lowest_mean_is_taken():
    """The worst client cannot tell the settings apart; the other one can."""
    totals = {"a": noisy([0.502, 0.499, 0.501], 0.5), "b": noisy([0.30, 0.35, 0.20], 0.0)}
    chosen = decide(GRID, totals)
    assert (chosen.l2, chosen.objective) == (0.01, 10.0)
    assert chosen.best.objective == "max"
    assert chosen.near_best == 3


def test_the_slack_is_in_standard_errors_of_the_paired_difference():
    """What counts is the noise of the difference on the same rows, not that of either mean."""
    rng = np.random.default_rng(0)
    common = rng.gamma(2.0, 0.5, 400)
    noise = rng.standard_normal(400)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    other = sum_up(np.column_stack([np.full(400, 0.1), np.full(400, 0.01)]))
    for behind, expected in ((0.95 * SLACK, 10.0), (1.05 * SLACK, "max")):
        standard_error = 0.2 / np.sqrt(400)
        worse = common + 0.2 * noise + behind * standard_error
        totals = {"a": sum_up(np.column_stack([common, worse])), "b": other}
        chosen = decide([(0.1, "max"), (0.1, 10.0)], totals)
        assert chosen.objective == expected
        line = chosen.table[1]
        assert line.standard_error_of_difference == pytest.approx(standard_error)
        assert line.near_best is (expected == 10.0)


def test_each_setting_is_judged_by_its_own_worst_client():
    totals = {"a": noisy([0.6, 0.2, 0.5], 0.0), "b": noisy([0.3, 0.7, 0.4], 0.0)}
    table = decide(GRID, totals).table
    assert [line.worst_client for line in table] == ["a", "b", "a"]
    assert [line.worst_loss for line in table] == pytest.approx([0.6, 0.7, 0.5])
    assert [line.mean_loss for line in table] == pytest.approx([0.45, 0.45, 0.45])


@settings(max_examples=50, deadline=None)
@given(lowest=st.floats(-5.0, -3.0), bend=st.floats(0.001, 1.0), shift=st.floats(-1.0, 1.0))
def test_the_l2_weight_is_the_minimum_of_a_parabola_in_its_logarithm(lowest, bend, shift):
    weights = list(L2_GRID)
    losses = [shift + bend * (np.log(weight) - lowest) ** 2 for weight in weights]
    assert lowest_between(weights, losses) == pytest.approx(np.exp(lowest), rel=0.06)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.5, 0.6, 0.7], 0.1),  # lowest at the end: the parabola is not followed beyond it
        ([0.7, 0.6, 0.5], 0.01),
        ([0.5, 0.9, 0.5, 0.9], 0.1),  # it opens downwards through the points near the first
        ([0.5, 0.5, 0.5], 0.1),
        ([0.6, 0.5], 0.03),  # two points make no parabola
        ([0.5], 0.1),
    ],
)
def test_the_l2_weight_stays_within_what_was_tried(losses, expected):
    weights = [0.1, 0.03, 0.01, 0.003][: len(losses)]
    assert lowest_between(weights, losses) == expected


def test_one_noisy_point_moves_the_l2_weight_little():
    weights = list(L2_GRID)
    losses = [0.5 + 0.01 * (np.log(weight) - np.log(1e-2)) ** 2 for weight in weights]
    noisy_losses = [*losses]
    noisy_losses[weights.index(3e-3)] = losses[weights.index(1e-2)] - 1e-4  # best by a hair
    assert lowest_between(weights, losses) == pytest.approx(0.01, rel=0.05)
    assert 4e-3 < lowest_between(weights, noisy_losses) < 1e-2


def test_the_sentence_says_when_weighing_the_worst_client_more_buys_nothing():
    nothing = decide(GRID, {"a": noisy([0.50, 0.52, 0.49], 0.0)}).sentence
    assert nothing.endswith("Weighing the worst client more buys it nothing on held-out rows.")
    assert "Chose l2 0.01 and objective 10" in nothing
    assert "the worst client (a) 0.4900" in nothing
    something = decide(GRID, {"a": noisy([0.50, 0.40, 0.49], 0.0)}).sentence
    assert "objective max" in something
    assert "buys" not in something
    smooth = [(0.01, 10.0), (0.01, 0.3), (0.01, 0.03)]
    assert "buys" in decide(smooth, {"a": noisy([0.49, 0.50, 0.51], 0.0)}).sentence
    assert "buys" not in decide(smooth, {"a": noisy([0.60, 0.50, 0.51], 0.0)}).sentence
    only_max = decide([(0.1, "max")], {"a": noisy([0.5], 0.0)}).sentence
    assert "buys" not in only_max


# --- budgets on held-out rows ---


def held_out(counts, selected):
    """Sums of one client: rows of its two groups, and of each candidate those selected."""
    n = len(selected)
    empty = np.zeros(n)
    counts = np.array(counts, dtype=float)
    return HeldOut(counts.sum(), empty, np.zeros((n, n)), counts, np.array(selected, dtype=float))


def constraints(*rules, clients=("a",)):
    rates = rates_needed(rules, RACE)
    built, _ = build_constraints(rules, clients, rates, np.full((len(clients), len(rates)), 99.0))
    return built


def deviance(counts, selected, budget):
    """By hand: the squared excess over its variance, of the group that is selected more."""
    rates = np.array(selected) / counts
    shrunk = (np.array(selected) + 1) / (np.array(counts) + 2)
    variance = np.sum(shrunk * (1 - shrunk) / counts)
    return max(np.ptp(rates) - budget, 0.0) ** 2 / variance


def test_the_excess_of_decisions_on_held_out_rows_is_a_sum_of_squares_over_clients():
    rule = Difference("demographic_parity", "race", 0.1)
    counts = np.array([100, 50])
    candidates = [[60, 10], [60, 27], [10, 40]]
    found = budget_excess(constraints(rule), ["a"], {"a": held_out(counts, candidates)})
    expected = [deviance(counts, selected, 0.1) for selected in candidates]
    assert expected[1] == 0 and found == pytest.approx(expected)
    both = {"a": held_out(counts, candidates), "b": held_out(2 * counts, candidates)}
    found = budget_excess(constraints(rule, clients=("a", "b")), ["a", "b"], both)
    more = [deviance(2 * counts, selected, 0.1) for selected in candidates]
    assert found == pytest.approx(np.add(expected, more))


def test_groups_without_held_out_rows_and_absent_clients_exceed_nothing():
    rule = Difference("demographic_parity", "race", 0.1)
    alone = {"a": held_out([100, 0], [[60, 0]])}
    assert budget_excess(constraints(rule), ["a"], alone) == [0]
    two = constraints(rule, clients=("a", "b"))
    assert budget_excess(two, ["a", "b"], alone) == [0]
    free = constraints(replace(rule, budget=None))
    assert budget_excess(free, ["a"], {"a": held_out([9, 9], [[9, 0]])}) == [0]


def test_a_rule_over_all_rows_is_judged_by_the_clients_that_held_rows_out():
    rule = Difference("demographic_parity", "race", 0.1, scope="global")
    two = constraints(rule, clients=("a", "b"))
    some = held_out([100, 50], [[60, 10]])
    expected = deviance(np.array([100, 50]), [60, 10], 0.1)
    assert expected > 0
    assert budget_excess(two, ["a", "b"], {"a": some}) == pytest.approx([expected])
    none_of_one = held_out([80, 0], [[40, 0]])
    assert budget_excess(two, ["a", "b"], {"a": some, "b": none_of_one})[0] > 0
    neither = {"a": held_out([100, 0], [[60, 0]]), "b": none_of_one}
    assert budget_excess(two, ["a", "b"], neither) == [0]


def test_an_objective_whose_decisions_exceed_budgets_clearly_more_is_left_out():
    """Both are as good for the worst client; the first is better in the mean."""
    totals = {"a": noisy([0.5, 0.5], 0.0), "b": noisy([0.1, 0.3], 0.0)}
    candidates = [(0.1, 10.0), (0.1, "max")]
    for more, expected in ((0.9 * CLEARLY, 10.0), (1.1 * CLEARLY, "max")):
        chosen = decide(candidates, totals, np.array([2.0 + more, 2.0]))
        assert chosen.objective == expected
        assert [line.budget_excess for line in chosen.table] == [2.0 + more, 2.0]


def test_a_loss_that_was_expected_wrongly_is_told():
    chosen = decide([(0.1, "max")], {"a": noisy([0.5], 0.2), "b": noisy([0.1], 0.2)})

    def counts(loss, n):
        half = np.zeros(2)
        return Counts(n, 0, 0, 0, loss * n, half, half)

    train = {"a": counts(0.5, 400), "b": counts(0.1, 400)}
    error = 0.2 / np.sqrt(99) * np.sqrt(1 + 400 / 200)  # of a hundred rows, and of two samples
    for apart, word in ((1.9, None), (2.2, "higher"), (-2.2, "lower")):
        test = {"a": counts(0.5 + apart * error, 200), "b": counts(9.0, 200)}
        said = checked_forecast(chosen, train, test)
        assert len(said) == (word is not None)
        assert all(f", {word} than chance explains." in sentence for sentence in said)
    assert checked_forecast(chosen, train, {"a": counts(0.0, 0), "b": counts(0.0, 0)}) == ()
    assert checked_forecast(None, train, train) == ()


# --- folds ---


@pytest.mark.parametrize("objective", [1.0, "max"])
@pytest.mark.parametrize("l2", [0.01, 0.1])
def test_one_step_from_the_whole_fit_comes_near_the_fit_without_a_fold(objective, l2):
    """Nearer by far than the whole fit is, whose rows are others by a fifth."""
    federation, rule = binding(1, sizes=(4000, 6000)), replace(PARITY, budget=0.1)
    setup = Setup(Linear(3), rates_needed([rule], RACE), (rule,))
    clients = federation.bind(setup)
    problem, _ = build_problem(
        [rule], setup.rates, clients.evaluate(Request((Point(np.zeros(4)),))), l2=l2
    )
    method = SQP(objective=objective, rounds=(200, 0))
    whole = run_together({0: Lane(method, method.init(np.zeros(4), problem))}, clients, "")[0]
    assert whole.state.status == "converged"
    folds = [Fold(index, N_FOLDS) for index in range(N_FOLDS)]
    lanes = {f: Lane(method, method.init(whole.state.params, problem), f) for f in folds}
    for fold, true in run_together(lanes, clients, "").items():
        reports = clients.evaluate(Request((ask_step(method, whole.state, fold),)))
        at = evaluate_point(problem, whole.state.params, reports)
        end = take_step(method, whole.state, at)
        before, after = (
            np.linalg.norm(params - true.state.params) for params in (whole.state.params, end)
        )
        assert after <= 0.25 * before


# --- the whole ---


def test_what_is_open_is_tried_and_nothing_else(table):
    def tried(n_clients=3, **options):
        settings = choice_of(table, **options).settings
        return settings.weights(), settings.objectives(n_clients)

    assert tried() == (L2_TRIED, OBJECTIVE_GRID)
    assert tried(l2=0.02) == ((0.02,), OBJECTIVE_GRID)
    assert tried(objective="max") == (L2_TRIED, ("max",))
    assert tried(objective=0.5) == (L2_TRIED, (0.5,))
    assert tried(n_clients=1, objective=0.5) == (L2_TRIED, (0.5,))
    assert tried(n_clients=1) == (L2_TRIED, ("max",))


def watched_sums(monkeypatch):
    """What every decision is made on: the candidates, and each client's sums."""
    seen = []

    def watched(candidates, totals, *others, **options):
        seen.append((tuple(candidates), dict(totals)))
        return decide(candidates, totals, *others, **options)

    monkeypatch.setattr(candidate_fits, "decide", watched)
    return seen


def test_every_candidate_is_scored_on_every_row_once(table, monkeypatch):
    choice = choice_of(table, objective=1.0)
    seen = watched_sums(monkeypatch)
    chosen = choice.select()
    candidates, totals = seen[-1]
    assert [weight for weight, _ in candidates] == [line.l2 for line in chosen.table]
    assert len(set(candidates)) == len(candidates)
    for client, sums in totals.items():
        assert sums.n_rows == choice.clients[client].n_rows
        assert sums.loss_sums.shape == (len(candidates),)
        assert sums.product_sums.shape == (len(candidates), len(candidates))


def test_clients_are_not_asked_twice_in_a_row_about_the_same_models(table, monkeypatch):
    asked, ask = [], Federation.hold_out

    def watched(self, setup, models):
        asked.append(tuple(params.tobytes() for of_fold in models.values() for params in of_fold))
        return ask(self, setup, models)

    monkeypatch.setattr(Federation, "hold_out", watched)
    seen = watched_sums(monkeypatch)
    choice_of(table, l2=0.01).select()
    # Refining starts from the choice that was made last.
    assert len(set(asked)) == len(asked) == len(seen) - 1


def test_further_weights_are_tried_while_the_best_is_the_last_on_its_side(table):
    """150 rows of noisy labels want much of it."""
    choice = choice_of(table, objective=1.0)
    chosen = choice.select()
    assert 0.03 < chosen.l2 <= 1.0
    assert {line.l2 for line in chosen.table} > set(L2_TRIED)
    assert max(line.l2 for line in chosen.table) > max(L2_TRIED)
    fixed = replace(choice, settings=OpenSettings(0.1, 1.0)).select()
    assert {line.l2 for line in fixed.table} == {0.1} and fixed.l2 == 0.1


def test_sums_of_weighted_rows_are_those_of_repeated_rows(table):
    """Weights and losses are of the same rows, whatever the order of the folds."""
    choice = choice_of(table)
    random = np.random.default_rng(0)
    params = random.standard_normal(choice.setup.model.n_params)
    for client, data in choice.clients.items():
        weights = random.integers(1, 4, data.n_rows)
        weighted = LocalClient(client, replace(data, weights=weights.astype(float)))
        p = 1 / (1 + np.exp(-(data.X @ params[:-1] + params[-1])))
        losses = -np.where(data.y == 1, np.log(p), np.log(1 - p))
        parts = [
            weighted.hold_out(choice.setup, Fold(k, N_FOLDS), (params,)) for k in range(N_FOLDS)
        ]
        folds = folds_of(client, data)
        for k, said in enumerate(parts):
            assert said.n_rows == weights[folds == k].sum()
            again = np.repeat(losses[folds == k], weights[folds == k])
            assert said.loss_sums[0] == pytest.approx(again.sum())
            assert said.product_sums[0, 0] == pytest.approx((again**2).sum())
        together = parts[0].plus(parts[1]).plus(parts[2]).plus(parts[3]).plus(parts[4])
        again = np.repeat(losses, weights)
        assert together.n_rows == weights.sum()
        assert together.means[0] == pytest.approx(again.mean())
        expected = again.std(ddof=1) / np.sqrt(again.size)
        assert together.standard_error(0) == pytest.approx(expected)


def test_held_out_rows_are_not_trained_on(table, monkeypatch):
    """Each fit sees exactly the rows outside its fold, and is scored on those inside."""
    choice = choice_of(table, l2=0.01, objective=1.0)
    trained, scored = [], []
    build, sums = Linear.rows, local_client.sum_up

    def watched(self, name, data, rates):
        trained.append((name, data))
        return build(self, name, data, rates)

    def summed(losses, *others):
        scored.append(losses.shape[0])
        return sums(losses, *others)

    monkeypatch.setattr(Linear, "rows", watched)
    monkeypatch.setattr(local_client, "sum_up", summed)
    choice.select()
    sizes = []
    for client, data in choice.clients.items():
        folds = folds_of(client, data)
        kept = [rows for name, rows in trained if name == client]
        whole, *kept = kept
        assert len(kept) == N_FOLDS and whole.n_rows == data.n_rows
        for fold, rows in enumerate(kept):
            np.testing.assert_array_equal(rows.X.toarray(), data.X[folds != fold].toarray())
            np.testing.assert_array_equal(rows.y, data.y[folds != fold])
        sizes.append([int((folds == fold).sum()) for fold in range(N_FOLDS)])
    once = [size for own in sizes for size in own]  # each client is asked about all folds at once
    assert scored and scored == once * (len(scored) // len(once))


def test_it_is_deterministic_and_depends_on_the_seed(table):
    choice = choice_of(table, objective=1.0)
    first, again = choice.select(), choice.select()
    assert first == again
    other = replace(choice, seed=5).select()
    assert other.table != first.table


def test_progress_rises_towards_one(table):
    shares = []
    on_round = lambda info, share: shares.append((info.stage, share))  # noqa: E731
    choice_of(table, l2=0.01).select(on_round)
    assert {stage for stage, _ in shares} == {0}
    found = [share for _, share in shares]
    assert found == sorted(found) and 0.9 <= found[-1] <= 1.0


def test_what_was_fitted_before_it_was_stopped_is_not_fitted_again(table, tmp_path):
    choice = choice_of(table, l2=0.01)
    whole, place = choice.select(), tmp_path / "fitted.npz"
    rounds, again = [], []

    def stop(info, share):
        rounds.append(share)
        if share > 0.65:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choice.select(stop, place)
    kept = place.read_bytes()
    resumed = choice.select(lambda info, share: again.append(share), place)
    assert resumed == whole
    assert (
        len([share for share in again if share < 0.35])
        == 0
        < len([share for share in rounds if share < 0.35])
    )
    place.write_bytes(kept[: len(kept) // 2])  # torn: it is fitted again
    assert choice.select(None, place) == whole


def test_a_tiny_client_is_trained_on_but_not_scored(tmp_path):
    """Its rows are few, not worthless: its budget and its loss still count in every fit."""
    frame = stays(n_rows=150)
    west = frame.index[frame["hospital"] == "west"][12:]  # 8 of 12 rows are for training
    path = written(frame.drop(west), tmp_path / "stays.csv")
    choice = choice_of(str(path), l2=0.01, objective="max")
    assert choice.clients["west"].n_rows < 2 * N_FOLDS
    chosen = choice.select()
    assert chosen.folds == N_FOLDS
    assert all(line.worst_client != "west" for line in chosen.table)


def test_only_tiny_clients_leave_a_middle_value(tmp_path):
    path = written(stays(n_rows=30), tmp_path / "stays.csv")
    choice = choice_of(str(path))
    chosen = choice.select()
    assert (chosen.l2, chosen.objective, chosen.folds) == (1e-2, 1.0, 0)
    assert "No client has the 10 training rows" in chosen.sentence
    kept = replace(choice, settings=OpenSettings(0.5, "max")).select()
    assert (kept.l2, kept.objective) == (0.5, "max")


def test_very_many_rows_are_thinned_and_few_are_not(monkeypatch):
    """The rows used are a share of what is enough, and at least 500 a client."""
    clients = simulated_clients(0, n_clients=2, n_rows=620)
    setup = Setup(Linear(4), ())
    choice = Choice(clients, setup, choice_method(), OpenSettings(0.01, 1.0))
    for most, used in ((0, 500), (1390, 600), (2000, None)):
        monkeypatch.setattr(selection, "MOST_ROWS", most)
        seen = watched_sums(monkeypatch)
        choice.select()
        for client, data in clients.items():
            whole = data.n_rows if used is None else min(used, data.n_rows)
            assert seen[-1][1][client].n_rows == whole


def choice_method():
    return Experiment("adult", budget=0.05).make_method()
