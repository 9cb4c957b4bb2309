"""Choosing by cross-validation: folds, sums and the rule, each by hand; then the whole."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl._types import Fold
from fcfl.client import local_client
from fcfl.client.folds import fold_of_rows
from fcfl.client.local_client import LocalClient
from fcfl.client.questions import Setup, sum_up
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.rules import rates_needed
from fcfl.runs import Experiment
from fcfl.runs.opening import open_table
from fcfl.training import selection
from fcfl.training.open_settings import open_settings
from fcfl.training.selection import (
    L2_ABOVE,
    L2_GRID,
    N_FOLDS,
    OBJECTIVE_GRID,
    OpenSettings,
    decide,
    lowest_between,
)
from helpers import simulated_clients
from hospital import stays, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",)}


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

    def select(self, on_round=None):
        return selection.select(
            Federation.from_rows(self.clients),
            self.setup,
            self.setup.rules,
            self.method,
            self.settings,
            seed=self.seed,
            on_round=on_round,
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


def test_the_slack_is_one_standard_error_of_the_paired_difference():
    """What counts is the noise of the difference on the same rows, not that of either mean."""
    rng = np.random.default_rng(0)
    common = rng.gamma(2.0, 0.5, 400)
    noise = rng.standard_normal(400)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    other = sum_up(np.column_stack([np.full(400, 0.1), np.full(400, 0.01)]))
    for behind, expected in ((0.95, 10.0), (1.05, "max")):
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
    noisy_losses[6] = losses[4] - 1e-4  # 3e-3 looks best by a hair
    assert lowest_between(weights, losses) == pytest.approx(0.01, rel=0.05)
    assert 4e-3 < lowest_between(weights, noisy_losses) < 1e-2


def test_the_sentence_says_when_min_max_buys_nothing():
    nothing = decide(GRID, {"a": noisy([0.50, 0.52, 0.49], 0.0)}).sentence
    assert nothing.endswith("Min-max buys the worst client nothing on held-out rows.")
    assert "Chose l2 0.01 and objective 10" in nothing
    assert "the worst client (a) 0.4900" in nothing
    something = decide(GRID, {"a": noisy([0.50, 0.40, 0.49], 0.0)}).sentence
    assert "objective max" in something
    assert "buys" not in something
    only_max = decide([(0.1, "max")], {"a": noisy([0.5], 0.0)}).sentence
    assert "buys" not in only_max


# --- the whole ---


def test_the_grid_holds_what_is_open_and_nothing_else(table):
    def grid(n_clients=3, **options):
        return choice_of(table, **options).settings.candidates(n_clients, L2_GRID)

    assert len(grid()) == len(L2_GRID) * len(OBJECTIVE_GRID)
    assert grid(l2=0.02) == [(0.02, tilt) for tilt in OBJECTIVE_GRID]
    assert grid(objective="max") == [(weight, "max") for weight in L2_GRID]
    assert grid(objective=0.5) == [(weight, 0.5) for weight in L2_GRID]
    assert grid(n_clients=1, objective=0.5) == [(weight, 0.5) for weight in L2_GRID]
    assert grid(n_clients=1) == [(weight, "max") for weight in L2_GRID]


def test_every_candidate_is_scored_on_every_row_once(table, monkeypatch):
    choice = choice_of(table, objective=1.0)
    seen, ends = {}, []

    def decide(candidates, totals):
        seen.update(totals)
        return SimpleNamespace(n=candidates, l2=ends[-1])

    monkeypatch.setattr(selection, "decide", decide)
    for end, grid in ((0.01, L2_GRID), (0.1, (*L2_ABOVE, *L2_GRID))):
        ends.append(end)
        assert [weight for weight, _ in choice.select().n] == list(grid)
        for client, sums in seen.items():
            assert sums.n_rows == choice.clients[client].n_rows
            assert sums.loss_sums.shape == (len(grid),)
            assert sums.product_sums.shape == (len(grid), len(grid))


def test_a_decade_more_is_tried_when_the_strong_end_is_chosen(table):
    """150 rows of noisy labels want much of it; seen whole, the curve may turn below the end."""
    choice = choice_of(table, objective=1.0)
    chosen = choice.select()
    assert 0.056 < chosen.l2 <= 1.0
    assert {line.l2 for line in chosen.table} == {*L2_ABOVE, *L2_GRID}
    fixed = replace(choice, settings=OpenSettings(0.1, 1.0)).select()
    assert {line.l2 for line in fixed.table} == {0.1}


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

    def summed(losses, weights):
        scored.append(losses.shape)
        return sums(losses, weights)

    monkeypatch.setattr(Linear, "rows", watched)
    monkeypatch.setattr(local_client, "sum_up", summed)
    choice.select()
    sizes = []
    for client, data in choice.clients.items():
        folds = folds_of(client, data)
        kept = [rows for name, rows in trained if name == client]
        assert len(kept) == N_FOLDS
        for fold, rows in enumerate(kept):
            np.testing.assert_array_equal(rows.X.toarray(), data.X[folds != fold].toarray())
            np.testing.assert_array_equal(rows.y, data.y[folds != fold])
        sizes.append([(int((folds == fold).sum()), 1) for fold in range(N_FOLDS)])
    asked = len(sizes)  # first of all whether anybody holds rows out
    assert scored[asked:] == [size for fold in zip(*sizes, strict=True) for size in fold]


def test_it_is_deterministic_and_depends_on_the_seed(table):
    choice = choice_of(table, objective=1.0)
    first, again = choice.select(), choice.select()
    assert first == again
    other = replace(choice, seed=5).select()
    assert other.table != first.table


@pytest.mark.parametrize("options", [{"l2": 0.01}, {"objective": 1.0}])
def test_progress_rises_to_one(table, options):
    """The second case goes on to the weights above the grid."""
    shares = []
    on_round = lambda info, share: shares.append((info.stage, share))  # noqa: E731
    chosen = choice_of(table, **options).select(on_round)
    assert [stage for stage, _ in shares] == [0] * (N_FOLDS * len(chosen.table))
    assert np.all(np.diff([share for _, share in shares]) > 0)
    assert shares[-1][1] == pytest.approx(1.0)


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
    clients = simulated_clients(0, n_clients=2, n_rows=520)
    setup = Setup(Linear(4), ())
    choice = Choice(clients, setup, choice_method(), OpenSettings(0.01, 1.0))
    for most, used in ((0, 500), (1050, 525), (2000, None)):
        monkeypatch.setattr(selection, "MOST_ROWS", most)
        seen = {}
        monkeypatch.setattr(selection, "decide", lambda _, totals, seen=seen: seen.update(totals))
        choice.select()
        for client, data in clients.items():
            whole = data.n_rows if used is None else min(used, data.n_rows)
            assert seen[client].n_rows == whole


def choice_method():
    return Experiment("adult", budget=0.05).make_method()
