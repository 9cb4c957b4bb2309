"""Choosing by cross-validation: folds, sums, and the rule that decides."""

import numpy as np
import pytest
from tests.helpers import made_up_data
from tests.hospital import stays, written

from fcfl.experiment import Experiment
from fcfl.experiment.selection import (
    N_FOLDS,
    HeldOut,
    _candidates,
    decide,
    fold_of_rows,
    row_losses,
    select,
    sum_up,
)
from fcfl.experiment.tasks import open_task


def test_folds_part_the_rows_evenly_within_labels_and_groups():
    data = made_up_data(0, n_rows=200)
    folds = fold_of_rows(data, 0, "a")
    assert set(folds) == set(range(N_FOLDS))
    for value in (0.0, 1.0):
        counts = np.bincount(folds[data.y == value], minlength=N_FOLDS)
        assert np.ptp(counts) <= 2 * 3  # three groups a label, each even to one row
    assert np.array_equal(folds, fold_of_rows(data, 0, "a"))
    assert not np.array_equal(folds, fold_of_rows(data, 0, "b"))


def test_a_client_with_few_rows_holds_nothing_out():
    assert (fold_of_rows(made_up_data(0, n_rows=2 * N_FOLDS - 1), 0, "a") == -1).all()


def test_sums_of_two_folds_are_those_of_all_rows():
    losses = np.random.default_rng(0).random((30, 3))
    whole, parts = sum_up(losses), sum_up(losses[:11]).plus(sum_up(losses[11:]))
    assert parts.n_rows == 30
    assert parts.means == pytest.approx(losses.mean(0))
    assert parts.product_sums == pytest.approx(whole.product_sums)
    plain = losses[:, 1].std(ddof=1) / np.sqrt(30)
    paired = (losses[:, 1] - losses[:, 0]).std(ddof=1) / np.sqrt(30)
    assert parts.standard_error(1) == pytest.approx(plain)
    assert parts.standard_error(1, 0) == pytest.approx(paired)


def test_row_losses_are_cross_entropies():
    data = made_up_data(1)
    params = np.random.default_rng(0).standard_normal(data.n_features + 1)
    p = 1 / (1 + np.exp(-(data.X @ params[:-1] + params[-1])))
    expected = -np.where(data.y == 1, np.log(p), np.log(1 - p))
    assert row_losses(data, params) == pytest.approx(expected)


def told(means, spread=0.0, n=400):
    """Sums of rows whose losses have these means under each candidate, differing by ``spread``."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((n, len(means)))
    noise -= noise.mean(0)
    return sum_up(np.array(means) + spread * noise)


def test_the_lowest_mean_near_the_best_of_the_worst_client_wins():
    candidates = [(0.1, 10.0), (0.01, 10.0), (0.01, "max")]
    clear = {"a": told([0.50, 0.52, 0.60]), "b": told([0.4, 0.3, 0.3])}
    assert decide(candidates, clear)["l2"] == 0.1
    noisy = {"a": told([0.50, 0.52, 0.60], spread=0.6), "b": told([0.4, 0.3, 0.3])}
    choice = decide(candidates, noisy)
    assert (choice["l2"], choice["consistency"]) == (0.01, 10.0)
    assert choice["best"]["l2"] == 0.1
    assert choice["best"]["worst_client"] == "a"
    assert "Min-max buys the worst client nothing" in choice["sentence"]


def test_min_max_is_not_belittled_where_it_helps():
    choice = decide([(0.1, 10.0), (0.1, "max")], {"a": told([0.6, 0.5]), "b": told([0.3, 0.4])})
    assert choice["consistency"] == "max"
    assert "buys" not in choice["sentence"]


def test_what_is_given_is_not_varied():
    assert {l2 for l2, _ in _candidates(Experiment("t", l2=0.5))} == {0.5}
    tilts = {tilt for _, tilt in _candidates(Experiment("t", consistency="max"))}
    assert tilts == {"max"}


def test_choosing_twice_gives_the_same_and_reports_progress(tmp_path):
    table = str(written(stays(), tmp_path / "stays.csv"))
    experiment = Experiment(table, "hospital", "died", ("race",), l2="auto", consistency="max")
    shares = []
    first = select(experiment, open_task(experiment), lambda info, share: shares.append(share))
    again = select(experiment, open_task(experiment))
    assert first == again
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1)
    assert isinstance(sum_up(np.ones((2, 1))), HeldOut)
