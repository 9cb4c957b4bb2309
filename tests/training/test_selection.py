"""Choosing by cross-validation: folds, sums and the rule, each by hand; then the whole."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from binding import PARITY, binding
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl import SQP
from fcfl._types import Fold, Point, Request
from fcfl.client import local_client
from fcfl.client.counts import Counts
from fcfl.client.folds import fold_of_rows
from fcfl.client.local_client import LocalClient
from fcfl.client.questions import Setup, sum_up
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.rules import rates_needed
from fcfl.runs import Experiment
from fcfl.runs.opening import open_table
from fcfl.server.problem import build_problem, evaluate_point
from fcfl.server.sqp.one_step import ask_step, take_step
from fcfl.training import candidate_fits, selection
from fcfl.training.open_settings import open_settings
from fcfl.training.selection import L2_GRID, L2_TRIED, OBJECTIVE_GRID, OpenSettings
from fcfl.training.selection_rule import (
    N_FOLDS,
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


GRID = [(0.1, "mean"), (0.01, "mean"), (0.01, 0.3), (0.01, 0.03)]


def test_the_l2_weight_has_the_lowest_mean_loss_of_all_rows_under_the_objective_nearest_the_mean():
    """Neither the worst client nor the mean of clients, nor another objective, decides on it."""
    large = noisy([0.30, 0.31, 0.20, 0.20], 0.0, n_rows=900)
    small = noisy([0.50, 0.42, 0.60, 0.60], 0.0, n_rows=100)
    chosen = decide(GRID, {"large": large, "small": small}, between=False)
    assert (chosen.l2, chosen.objective) == (0.1, "mean")
    assert [line.mean_loss for line in chosen.table] == pytest.approx([0.32, 0.321, 0.24, 0.24])


def test_an_objective_nearer_the_maximum_must_lower_the_worst_loss_by_a_standard_error():
    """The noise of the difference on the same rows counts, not that of either mean."""
    rng = np.random.default_rng(0)
    common = rng.gamma(2.0, 0.5, 400)
    noise = rng.standard_normal(400)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    standard_error = 0.2 / np.sqrt(400)
    for drop, expected in ((0.95, "mean"), (1.05, "max"), (-3.0, "mean")):
        other = common + 0.2 * noise - drop * standard_error
        totals = {
            "a": sum_up(np.column_stack([common, other])),
            "b": sum_up(np.column_stack([np.full(400, 0.1), np.full(400, 0.4)])),
        }
        chosen = decide([(0.1, "mean"), (0.1, "max")], totals)
        assert chosen.objective == expected  # whatever it costs the other client
        assert totals["a"].standard_error(1, 0) == pytest.approx(standard_error)
        assert totals["a"].standard_error(0) > 2 * standard_error


def test_a_further_step_to_the_maximum_needs_a_further_standard_error():
    """Each loss is of one client alone; errors of all pairs are alike."""
    columns, sd = [(0.01, o) for o in ("mean", 0.3, 0.03)], 0.2
    error = noisy([0.5, 0.5, 0.5], sd).standard_error(0, 1)
    for drops, expected in (
        ((0.0, 0.0, 0.0), "mean"),
        ((0.0, 1.5, 2.0), 0.3),
        ((0.0, 1.5, 3.5), 0.03),
        ((0.0, 0.5, 2.0), 0.03),
        ((0.0, -1.0, 0.5), "mean"),
    ):
        totals = {"a": noisy([0.5 - drop * error for drop in drops], sd)}
        assert decide(columns, totals).objective == expected
        assert decide(columns[::-1], {"a": reordered(totals["a"])}).objective == expected


def reordered(sums):
    """The sums of the candidates in reverse order."""
    return replace(
        sums,
        loss_sums=sums.loss_sums[::-1],
        product_sums=sums.product_sums[::-1, ::-1],
        selected=sums.selected[::-1],
    )


def test_where_the_worst_client_changes_the_larger_error_counts():
    """The first falls behind no more, the second does instead; its losses are noisy."""
    calm, wild = noisy([0.50, 0.40], 0.01), noisy([0.30, 0.48], 1.0)
    assert calm.standard_error(0, 1) < 0.02 < wild.standard_error(0, 1)
    candidates = [(0.1, "mean"), (0.1, "max")]
    assert decide(candidates, {"a": calm, "b": wild}).objective == "mean"
    assert decide(candidates, {"a": calm, "b": noisy([0.30, 0.48], 0.0)}).objective == "max"


@given(
    means=st.lists(st.floats(0.1, 1.0), min_size=2, max_size=4),
    decisions=st.lists(st.integers(0, 100), min_size=4, max_size=4),
)
def test_decisions_on_held_out_rows_decide_nothing(means, decisions):
    columns = GRID[: len(means)]
    sums = noisy(means, 0.1)
    counted = replace(
        sums,
        group_counts=np.array([100.0]),
        selected=np.array(decisions[: len(means)], dtype=float)[:, None],
    )
    assert decide(columns, {"a": sums}) == decide(columns, {"a": counted})


def test_true_losses_are_no_worse_than_those_of_the_mean_on_average():
    """Three clients of one law: what one of them seems to gain is noise."""
    truth = np.array([[0.50, 0.50, 0.50], [0.40, 0.41, 0.43], [0.30, 0.32, 0.36]])
    columns, others, worse = [(0.01, o) for o in ("mean", 0.3, 0.03)], 0, 0.0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        totals = {
            f"client {k}": sum_up(means + 0.2 * rng.standard_normal((60, 3)))
            for k, means in enumerate(truth)
        }
        chosen = columns.index((0.01, decide(columns, totals).objective))
        others += chosen != 0
        worse += truth[:, chosen].mean() - truth[:, 0].mean()
    # Of two comparisons each is passed by chance in a sixth of the runs at most.
    assert others <= 200 * 2 / 6 and worse / 200 < 0.01


def test_a_true_gain_of_the_worst_client_is_found():
    columns = [(0.01, "mean"), (0.01, 0.3)]
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(100):
        totals = {
            "worst": sum_up(np.array([0.60, 0.52]) + 0.2 * rng.standard_normal((60, 2))),
            "other": sum_up(np.array([0.30, 0.33]) + 0.2 * rng.standard_normal((600, 2))),
        }
        found += decide(columns, totals).objective == 0.3
    assert found >= 80  # the gain is 2.2 standard errors


def test_each_setting_is_judged_by_its_own_worst_client():
    totals = {"a": noisy([0.6, 0.2, 0.5], 0.0), "b": noisy([0.3, 0.7, 0.4], 0.0)}
    table = decide(GRID[:3], totals).table
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


def test_the_sentence_states_what_the_objective_buys_the_worst_client():
    candidates = [(0.01, "mean"), (0.01, 0.3)]
    nothing = decide(candidates, {"a": noisy([0.50, 0.52], 0.0)}).sentence
    assert "l2 0.01 and objective mean" in nothing and "0.5000 ± 0.0000" in nothing
    assert nothing.endswith("by more than its standard error.")
    something = decide(candidates, {"a": noisy([0.50, 0.40], 0.0)}).sentence
    assert "objective 0.3" in something and "by 0.1000 ± 0.0000" in something
    only_max = decide([(0.1, "max")], {"a": noisy([0.5], 0.0)}).sentence
    assert "lowers" not in only_max


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


@pytest.mark.parametrize("tried", [(1e-3, 3e-4), (1.0, 3e-1)], ids=str)
def test_further_weights_are_tried_while_the_best_is_the_last_on_its_side(
    table, monkeypatch, tried
):
    """Of 150 rows the mean loss is lowest near .01."""
    monkeypatch.setattr(selection, "L2_TRIED", tried)
    choice = choice_of(table, objective=1.0)
    chosen = choice.select()
    weights = {line.l2 for line in chosen.table}
    assert weights > set(tried)
    assert 3e-3 <= chosen.l2 <= 3e-2 and min(weights) < chosen.l2 < max(weights)
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
