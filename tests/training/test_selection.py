"""Choosing by cross-validation: folds, sums and the rule, each by hand; then the whole."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fcfl.runs.tasks import open_task
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl.runs import Experiment
from fcfl.training import selection
from fcfl.training.selection import (
    L2_ABOVE,
    L2_GRID,
    N_FOLDS,
    OBJECTIVE_GRID,
    Rows,
    decide,
    fold_of_rows,
    lowest_between,
    row_losses,
    select,
    sum_up,
)
from helpers import TWO_ATTRIBUTES, simulated_data
from hospital import stays, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",)}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return str(written(stays(n_rows=150), tmp_path_factory.mktemp("tables") / "stays.csv"))


def rows_of(table, **options):
    experiment = Experiment(table, **TABLE, budget=0.05, **options)
    task = open_task(experiment)
    return experiment, Rows(task.federation.train, task.rules, task.rates)


# --- folds ---


@pytest.mark.parametrize("n_rows", [10, 11, 57, 203])
def test_folds_partition_the_rows_evenly(n_rows):
    folds = fold_of_rows(simulated_data(0, n_rows=n_rows), 0, "a")
    sizes = np.bincount(folds, minlength=N_FOLDS)
    assert sizes.size == N_FOLDS
    assert sizes.sum() == n_rows
    assert np.ptp(sizes) <= 1


def test_folds_spread_labels_and_groups():
    """Each label's rows are dealt to folds as evenly as their number allows, so are the groups'."""
    data = simulated_data(3, n_rows=200, levels=TWO_ATTRIBUTES)
    folds = fold_of_rows(data, 0, "a")
    for label in (0.0, 1.0):
        assert np.ptp(np.bincount(folds[data.y == label], minlength=N_FOLDS)) <= 1
        for code in (-1, 0, 1):
            inside = (data.y == label) & (data.groups["sex"] == code)
            assert np.ptp(np.bincount(folds[inside], minlength=N_FOLDS)) <= 1


def test_folds_depend_on_the_client_and_the_seed_alone():
    data = simulated_data(1, n_rows=100)
    first = fold_of_rows(data, 7, "a")
    np.testing.assert_array_equal(first, fold_of_rows(data, 7, "a"))
    assert not np.array_equal(first, fold_of_rows(data, 8, "a"))
    assert not np.array_equal(first, fold_of_rows(data, 7, "b"))


def test_the_folds_of_a_client_do_not_depend_on_who_else_takes_part(table):
    _, rows = rows_of(table)
    fewer = dict(list(rows.clients.items())[:2])
    for client, data in selection._usable(fewer, 0).items():
        whole = selection._usable(rows.clients, 0)[client]
        np.testing.assert_array_equal(fold_of_rows(data, 0, client), fold_of_rows(whole, 0, client))


def test_a_tiny_client_holds_nothing_out():
    assert set(fold_of_rows(simulated_data(0, n_rows=9), 0, "a")) == {-1}
    assert set(fold_of_rows(simulated_data(0, n_rows=10), 0, "a")) == set(range(N_FOLDS))


def test_very_many_rows_are_thinned_at_random_and_few_are_not(table, monkeypatch):
    _, rows = rows_of(table)
    monkeypatch.setattr(selection, "MOST_ROWS", 0)  # 500 rows a client are always used
    for client, data in selection._usable(rows.clients, 0).items():
        assert data.n_rows == rows.clients[client].n_rows
    large = simulated_data(0, n_rows=900)
    once, again = (selection._usable({"a": large}, 3)["a"] for _ in range(2))
    assert once.n_rows == 500
    np.testing.assert_array_equal(once.y, again.y)
    other = selection._usable({"a": large}, 4)["a"]
    assert not np.array_equal(once.X, other.X)


# --- sums ---


def test_row_losses_are_the_cross_entropy():
    data = simulated_data(0, n_rows=20)
    params = np.random.default_rng(0).standard_normal(5)
    p = 1 / (1 + np.exp(-(data.X @ params[:-1] + params[-1])))
    expected = -np.where(data.y == 1, np.log(p), np.log(1 - p))
    np.testing.assert_allclose(row_losses(data, params), expected)


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
        experiment = Experiment(table, **TABLE, budget=0.05, **options)
        return selection._candidates(experiment, n_clients, L2_GRID)

    assert len(grid()) == len(L2_GRID) * len(OBJECTIVE_GRID)
    assert grid(l2=0.02) == [(0.02, tilt) for tilt in OBJECTIVE_GRID]
    assert grid(objective="max") == [(weight, "max") for weight in L2_GRID]
    assert grid(objective=0.5) == [(weight, 0.5) for weight in L2_GRID]
    assert grid(n_clients=1) == [(weight, "max") for weight in L2_GRID]


def test_every_candidate_is_scored_on_every_row_once(table, monkeypatch):
    experiment, rows = rows_of(table, objective=1.0)
    seen, ends = {}, []

    def decide(candidates, totals):
        seen.update(totals)
        return SimpleNamespace(n=candidates, l2=ends[-1])

    monkeypatch.setattr(selection, "decide", decide)
    for end, grid in ((0.01, L2_GRID), (0.1, (*L2_ABOVE, *L2_GRID))):
        ends.append(end)
        assert [weight for weight, _ in select(experiment, rows).n] == list(grid)
        for client, sums in seen.items():
            assert sums.n_rows == rows.clients[client].n_rows
            assert sums.loss_sums.shape == (len(grid),)
            assert sums.product_sums.shape == (len(grid), len(grid))


def test_a_decade_more_is_tried_when_the_strong_end_is_chosen(table):
    """150 rows of noisy labels want much of it; seen whole, the curve may turn below the end."""
    experiment, rows = rows_of(table, objective=1.0)
    chosen = select(experiment, rows)
    assert 0.056 < chosen.l2 <= 1.0
    assert {line.l2 for line in chosen.table} == {*L2_ABOVE, *L2_GRID}
    fixed = select(replace(experiment, l2=0.1), rows)
    assert {line.l2 for line in fixed.table} == {0.1}


def test_sums_of_weighted_rows_are_those_of_repeated_rows(table):
    """Held-out losses are in the order of the folds, weights in that of the rows."""
    _, rows = rows_of(table)
    random = np.random.default_rng(0)
    weights = {c: random.integers(1, 4, d.n_rows) for c, d in rows.clients.items()}
    folds = {c: fold_of_rows(data, 0, c) for c, data in rows.clients.items()}
    weighted = {c: replace(d, weights=weights[c].astype(float)) for c, d in rows.clients.items()}
    losses = {
        c: np.concatenate([np.arange(d.n_rows)[folds[c] == k] for k in range(N_FOLDS)])[:, None]
        for c, d in rows.clients.items()
    }
    sums = selection._sums(losses, replace(rows, clients=weighted), folds)
    for client, said in sums.items():
        assert said.n_rows == weights[client].sum()
        assert said.loss_sums[0] == weights[client] @ np.arange(weights[client].size)


def test_held_out_rows_are_not_trained_on(table, monkeypatch):
    """Each fit sees exactly the rows outside its fold."""
    experiment, rows = rows_of(table, l2=0.01, objective=1.0)
    trained = []
    build = selection.linear_rows

    def watched(name, data, rates):
        trained.append((name, data.n_rows))
        return build(name, data, rates)

    monkeypatch.setattr(selection, "linear_rows", watched)
    select(experiment, rows)
    for client, data in rows.clients.items():
        folds = fold_of_rows(data, 0, client)
        kept = [n_rows for name, n_rows in trained if name == client]
        assert kept == [int((folds != fold).sum()) for fold in range(N_FOLDS)]


def test_it_is_deterministic_and_depends_on_the_seed(table):
    experiment, rows = rows_of(table, objective=1.0)
    first, again = select(experiment, rows), select(experiment, rows)
    assert first == again
    other = select(replace(experiment, seed=5), rows)
    assert other.table != first.table


@pytest.mark.parametrize("options", [{"l2": 0.01}, {"objective": 1.0}])
def test_progress_rises_to_one(table, options):
    """The second case goes on to the weights above the grid."""
    experiment, rows = rows_of(table, **options)
    shares = []
    chosen = select(experiment, rows, lambda info, share: shares.append((info.stage, share)))
    assert [stage for stage, _ in shares] == [0] * (N_FOLDS * len(chosen.table))
    assert np.all(np.diff([share for _, share in shares]) > 0)
    assert shares[-1][1] == pytest.approx(1.0)


def test_a_tiny_client_is_trained_on_but_not_scored(tmp_path):
    """Its rows are few, not worthless: its budget and its loss still count in every fit."""
    frame = stays(n_rows=150)
    west = frame.index[frame["hospital"] == "west"][12:]  # 8 of 12 rows are for training
    path = written(frame.drop(west), tmp_path / "stays.csv")
    experiment, rows = rows_of(str(path), l2=0.01, objective="max")
    assert rows.clients["west"].n_rows < 2 * N_FOLDS
    chosen = select(experiment, rows)
    assert chosen.folds == N_FOLDS
    assert all(line.worst_client != "west" for line in chosen.table)


def test_only_tiny_clients_leave_a_middle_value(tmp_path):
    path = written(stays(n_rows=30), tmp_path / "stays.csv")
    experiment, rows = rows_of(str(path))
    chosen = select(experiment, rows)
    assert (chosen.l2, chosen.objective, chosen.folds) == (1e-2, 1.0, 0)
    assert "No client has the 10 training rows" in chosen.sentence
    kept = select(replace(experiment, l2=0.5, objective="max"), rows)
    assert (kept.l2, kept.objective) == (0.5, "max")
