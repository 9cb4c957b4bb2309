"""Releases: their exact sums, what one row changes of them, and their noise."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.private_neighbours import KINDS, largest_shares

from fcfl._types import Point, RateId
from fcfl.client.private import PrivateRows, private_rows, whole_features, with_noise
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.models.linear_rows import linear_rows
from fcfl.privacy import NORM, Release, cells_of, rates_of_a_row
from helpers import RACE, TWO_ATTRIBUTES, all_rates, simulated_data

RATES = (RateId("selection", "race", "black"), RateId("selection", "race", "white"))
POINT = Point(np.array([0.3, -0.2, 0.5, 0.1, 0.05]), sharpness=2.5)


def exact(kind, data, rates=RATES, point=POINT, cut=0.0):
    total, unit = private_rows(data, rates, cut).exact_sum(Release(kind, 1.0), point)
    return total * unit


def short_rows(n_rows):
    """Return rows of which none is shortened."""
    data = simulated_data(0, n_rows=n_rows)
    return replace(data, X=np.clip(data.X, -1.4, 1.4))


@pytest.mark.parametrize("cut", [0.0, -0.7])
def test_sums_are_those_of_plain_reports_where_no_row_is_too_long(cut):
    data, rates = short_rows(300), all_rates(RACE)
    rows = linear_rows("a", data, rates, cut=cut)
    plain, at_zero = (
        rows.report(Point(params, "gradients", sharpness=2.5))
        for params in (POINT.params, np.zeros(5))
    )
    gradient, scores = exact("gradient", data, rates), exact("scores", data, rates, cut=cut)
    assert gradient == pytest.approx(300 * at_zero.loss_grad, abs=0.3)
    assert scores[0] + gradient == pytest.approx(300 * plain.loss_grad, abs=0.3)
    slopes = plain.group_counts[:, None] * plain.rate_grads
    scale = 2.5 * np.sqrt(rates_of_a_row(rates)) / 2
    assert scale * scores[1:] == pytest.approx(slopes, abs=0.3)
    decided = rows.report(Point(POINT.params, "decisions"))
    centred = decided.group_counts * (decided.rates - 0.5)
    assert exact("rates", data, rates, cut=cut) == pytest.approx(centred, abs=1e-9)
    selected = [bool(cell.selected) for cell in cells_of(rates, "evaluation")]
    n_selected = (rows.logits(POINT.params) >= cut) @ rows.row_counts
    assert exact("evaluation", data, rates, cut=cut)[selected].sum() == n_selected
    X = np.column_stack([data.X, np.ones(300)])
    assert exact("moments", data) == pytest.approx((X.T @ X)[np.triu_indices(5)], abs=1.5)


@pytest.mark.parametrize("cut", [-4.0, 0.0, 0.5])
@pytest.mark.parametrize("sharpness", [1.0, 1.5, 30.0])
@pytest.mark.parametrize("rates", [RATES, all_rates(RACE)], ids=["one", "two"])
def test_no_logit_exceeds_the_sensitivity_of_scores(rates, sharpness, cut):
    """Every logit of the table: the row's integers, squared and summed without rounding."""
    steps = np.arange(-(17 << 10), (17 << 10) + 1)
    rows = PrivateRows(
        np.column_stack([steps, 0 * steps]).astype(np.int16),
        np.ones(steps.size),
        np.ones((steps.size, len(rates))),
        {},
        rates,
        cut,
    )
    point = Point(np.array([1.0, 0.0]), sharpness=sharpness)
    weights = rows._scores(point)[:, : 1 + rates_of_a_row(rates)]
    squares = np.square(weights.astype(np.int64)).sum(axis=1).max()
    bound = Release("scores", 1.0).sensitivity(rates, cut) / NORM  # of a row of length one
    assert squares <= round((bound * 2**20) ** 2)
    if cut == 0.0:  # and the bound is tight
        assert 0.9 * (bound * 2**20) ** 2 < squares


def test_cells_count_every_row_once_for_each_attribute():
    data = simulated_data(1, n_rows=200, levels=TWO_ATTRIBUTES)
    rates = all_rates(TWO_ATTRIBUTES)
    for kind in ("counts", "evaluation"):
        cells = exact(kind, data, rates)
        by_attribute = [c.attribute == "sex" for c in cells_of(rates, kind)]
        assert cells.sum() == 400
        assert cells[by_attribute].sum() == 200


@pytest.mark.parametrize("levels", [RACE, TWO_ATTRIBUTES], ids=["one", "two"])
@pytest.mark.parametrize("which", ["selection", "all"])
def test_no_row_changes_a_sum_by_more_than_its_sensitivity(levels, which):
    rates = all_rates(levels)
    if which == "selection":
        rates = tuple(rate for rate in rates if rate.kind == "selection")
    found = largest_shares(3, 40, rates, levels)
    assert all(share <= 1.0 for share in found.values()), found
    assert all(share > 1 / 3 for share in found.values()), found
    assert set(found) == set(KINDS)


def test_a_row_is_behind_one_rate_of_each_attribute_and_one_by_its_label():
    assert rates_of_a_row(RATES) == 1
    assert rates_of_a_row(all_rates(RACE)) == 2
    assert rates_of_a_row(all_rates(TWO_ATTRIBUTES)) == 4


def test_rows_are_shortened_never_lengthened_and_short_ones_are_kept():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 6)) * rng.choice([0.1, 1.0, 40.0, 1e6], (2000, 1))
    whole = whole_features(X).astype(np.int64)
    lengths = np.sqrt(np.square(whole).sum(axis=1)) / 1024
    assert lengths.max() <= NORM
    long = np.abs(X).max(axis=1) > 10
    assert lengths[long].min() > NORM - 0.01
    short = np.linalg.norm(X, axis=1) < 2.8
    assert np.abs(whole[short, :-1] / 1024 - X[short]).max() < 1.1 / 1024


def test_contribution_of_a_row_does_not_depend_on_others():
    data = simulated_data(2, n_rows=5000)
    some = data.take(np.arange(0, 5000, 7))
    rest = data.take(np.setdiff1d(np.arange(5000), np.arange(0, 5000, 7)))
    for kind in KINDS:
        parts = exact(kind, some) + exact(kind, rest)
        assert np.array_equal(parts, exact(kind, data)), kind


def test_noise_has_the_standard_deviation_of_the_release():
    data = simulated_data(0, n_rows=50)
    rows = private_rows(data, RATES)
    for kind in KINDS:
        release = Release(kind, 0.5)
        total, unit = rows.exact_sum(release, POINT)
        draws = np.array([rows.release(release, POINT) - total * unit for _ in range(200)])
        expected = np.full(total.shape, release.noise_sd(RATES))
        if kind == "moments":
            expected[np.equal(*np.triu_indices(5))] *= np.sqrt(2)
        assert draws.std(axis=0) == pytest.approx(expected, rel=0.35), kind


def test_weighted_rows_and_too_little_noise_are_rejected():
    data = simulated_data(0)
    weighted = ClientData(data.X, data.y, data.groups, data.levels, np.ones(60))
    with pytest.raises(DataError, match="`weights` must be left out"):
        private_rows(weighted, RATES)
    with pytest.raises(DataError, match="too large for so little noise"):
        with_noise(np.array([2**30]), 0.1)
