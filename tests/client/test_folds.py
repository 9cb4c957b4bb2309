"""A client splits its own rows for cross-validation: evenly, and by a seed and its name alone."""

import numpy as np
import pytest

from fcfl._types import Fold, Point, Request
from fcfl.client.folds import fold_of_rows, split_fold, usable_rows
from fcfl.client.questions import Setup
from fcfl.data.client_data import ClientData
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from helpers import RACE, TWO_ATTRIBUTES, identical, simulated_clients, simulated_data

N_FOLDS = 5
FIVE = [Fold(k, N_FOLDS) for k in range(N_FOLDS)]


def numbered(n_rows, **options):
    """Rows that can be told apart by their first feature."""
    data = simulated_data(0, n_rows=n_rows, **options)
    X = data.X.copy()
    X[:, 0] = np.arange(n_rows)
    return ClientData(X, data.y, data.groups, data.levels)


def numbers(data):
    return data.X[:, 0].astype(int).tolist()


@pytest.mark.parametrize("n_folds", [2, 5])
@pytest.mark.parametrize("n_rows", [10, 11, 57, 203])
def test_folds_partition_the_rows_evenly(n_rows, n_folds):
    folds = fold_of_rows("a", simulated_data(0, n_rows=n_rows), Fold(0, n_folds))
    sizes = np.bincount(folds, minlength=n_folds)
    assert sizes.size == n_folds
    assert sizes.sum() == n_rows
    assert np.ptp(sizes) <= 1


def test_every_row_is_held_out_once_and_trained_on_otherwise():
    data = numbered(57)
    away = []
    for fold in FIVE:
        inside, outside = split_fold("a", data, fold)
        assert sorted(numbers(inside) + numbers(outside)) == list(range(57))
        np.testing.assert_array_equal(inside.y, data.y[numbers(inside)])
        np.testing.assert_array_equal(outside.y, data.y[numbers(outside)])
        np.testing.assert_array_equal(inside.groups["race"], data.groups["race"][numbers(inside)])
        away += numbers(outside)
    assert sorted(away) == list(range(57))


def test_folds_spread_labels_and_groups():
    """Each label's rows are dealt to folds as evenly as their number allows, so are the groups'."""
    data = simulated_data(3, n_rows=200, levels=TWO_ATTRIBUTES)
    folds = fold_of_rows("a", data, FIVE[0])
    for label in (0.0, 1.0):
        assert np.ptp(np.bincount(folds[data.y == label], minlength=N_FOLDS)) <= 1
        for code in (-1, 0, 1):
            inside = (data.y == label) & (data.groups["sex"] == code)
            assert np.ptp(np.bincount(folds[inside], minlength=N_FOLDS)) <= 1


def test_folds_depend_on_the_client_and_the_seed_alone():
    data = simulated_data(1, n_rows=100)
    first = fold_of_rows("a", data, Fold(0, seed=7))
    for index in range(N_FOLDS):
        np.testing.assert_array_equal(first, fold_of_rows("a", data, Fold(index, seed=7)))
    assert not np.array_equal(first, fold_of_rows("a", data, Fold(0, seed=8)))
    assert not np.array_equal(first, fold_of_rows("b", data, Fold(0, seed=7)))


def test_the_folds_of_a_client_do_not_depend_on_who_else_takes_part():
    datas = simulated_clients(0, n_clients=4)
    setup = Setup(Linear(4), ())
    one = Request((Point(np.ones(5), "gradients"),))
    all_of_them, two = Federation.from_rows(datas), dict(list(datas.items())[2:])
    for fold in (Fold(1, seed=2), Fold(1, seed=2, most_rows=50)):
        whole = all_of_them.bind(setup, fold).evaluate(one)
        fewer = Federation.from_rows(two).bind(setup, fold).evaluate(one)
        sums = all_of_them.hold_out(setup, {fold: (np.ones(5),)})
        for name in two:
            assert identical(fewer[name], whole[name])
            alone = all_of_them.only(name).hold_out(setup, {fold: (np.ones(5),)})
            assert identical(alone[name], sums[name])


def test_a_tiny_client_holds_nothing_out():
    assert set(fold_of_rows("a", simulated_data(0, n_rows=9), FIVE[0])) == {-1}
    assert set(fold_of_rows("a", simulated_data(0, n_rows=10), FIVE[0])) == set(range(N_FOLDS))
    assert set(fold_of_rows("a", simulated_data(0, n_rows=9), Fold(0, 4))) == set(range(4))
    for fold in FIVE:
        inside, away = split_fold("a", numbered(9), fold)
        assert numbers(inside) == list(range(9))
        assert away.n_rows == 0


def test_a_tiny_client_is_trained_on_and_says_that_it_held_nothing_out():
    federation = Federation.from_rows({"tiny": simulated_data(0, n_rows=9, levels=RACE)})
    setup = Setup(Linear(4), ())
    (report,) = federation.bind(setup, FIVE[0]).evaluate(Request((Point(np.zeros(5)),)))["tiny"]
    assert report.n_rows == 9
    (said,) = federation.hold_out(setup, {FIVE[0]: (np.zeros(5), np.ones(5))})["tiny"]
    assert said.n_rows == 0
    assert not said.loss_sums.any() and said.loss_sums.shape == (2,)
    assert not said.product_sums.any() and said.product_sums.shape == (2, 2)


def test_very_many_rows_are_thinned_at_random_and_few_are_not():
    few, large = numbered(500), numbered(900)
    assert usable_rows("a", few, Fold(0, most_rows=500)) is few
    assert usable_rows("a", large, Fold(0)) is large
    once, again = (usable_rows("a", large, Fold(k, seed=3, most_rows=500)) for k in range(2))
    assert once.n_rows == len(set(numbers(once))) == 500
    assert numbers(once) == sorted(numbers(once)) == numbers(again)
    assert numbers(once) != list(range(500))
    np.testing.assert_array_equal(once.y, large.y[numbers(once)])
    assert numbers(usable_rows("a", large, Fold(0, seed=4, most_rows=500))) != numbers(once)
    assert numbers(usable_rows("b", large, Fold(0, seed=3, most_rows=500))) != numbers(once)


def test_the_folds_of_thinned_rows_are_of_the_rows_that_are_left():
    large, thinned = numbered(900), Fold(0, seed=3, most_rows=100)
    used = numbers(usable_rows("a", large, thinned))
    away = []
    for k in range(N_FOLDS):
        inside, outside = split_fold("a", large, Fold(k, seed=3, most_rows=100))
        assert sorted(numbers(inside) + numbers(outside)) == used
        away += numbers(outside)
    assert sorted(away) == used
