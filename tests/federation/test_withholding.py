"""Nothing is said of a few rows, neither outright nor by subtraction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._types import RateId
from fcfl.data import ClientData, Schema, Statistics
from fcfl.data.schema import Category, CategorySummary, NumberSummary
from fcfl.errors import DataError
from fcfl.sites.withholding import (
    WITHHELD,
    ToldDecisions,
    told_features,
    told_rates,
    withheld_statistics,
    without_small_groups,
)

KINDS = ("selection", "true_positive", "false_positive")


def data_of(codes, y, names=("a", "b", "c")):
    codes = np.asarray(codes, dtype=np.int32)
    X = np.zeros((codes.size, 1))
    return ClientData(X, np.asarray(y, dtype=np.float64), {"race": codes}, {"race": names})


@given(
    st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1)), min_size=1, max_size=120),
    st.integers(2, 12),
)
def test_from_all_counts_that_are_told_no_small_count_follows(rows, least):
    codes, y = map(np.array, zip(*rows, strict=True))
    rates = [RateId(kind, "race", group) for kind in KINDS for group in "abc"]
    hidden = without_small_groups(data_of(codes, y), least)
    told = [rate.group != WITHHELD for rate in told_rates(hidden, rates, least)]
    size = dict(zip(rates, _sizes(hidden.groups["race"], y), strict=True))
    shown = {rate: size[rate] for rate, is_told in zip(rates, told, strict=True) if is_told}
    assert all(n >= least for n in shown.values())
    totals = {"selection": codes.size, "true_positive": y.sum(), "false_positive": (1 - y).sum()}
    for kind, total in totals.items():
        own = [n for rate, n in shown.items() if rate.kind == kind]
        rest = total - sum(own)
        assert not own or rest == 0 or rest >= least
    for group in "abc":  # a group's rows are those of both labels
        known = [RateId(kind, "race", group) in shown for kind in KINDS]
        assert known[1] == known[2] and (known[0] or not known[1])


def test_groups_that_are_large_stay_when_a_small_one_is_hidden():
    """The rest has twenty rows of either label: ten of the small group, thirty of the largest."""
    codes = np.repeat([0, 1, 2], [100, 150, 10])
    hidden = without_small_groups(data_of(codes, np.resize([0, 1], 260)), 20)
    sizes = np.bincount(hidden.groups["race"] + 1, minlength=4)
    assert sizes.tolist() == [40, 100, 120, 0]
    again = without_small_groups(data_of(codes, np.resize([0, 1], 260)), 20)
    assert (again.groups["race"] == hidden.groups["race"]).all()
    whole = data_of(codes, np.resize([0, 1], 260))
    assert without_small_groups(whole, 1) is whole


def _sizes(codes, y):
    inside = [codes == code for code in range(3)]
    for rows in (np.ones_like(y), y, 1 - y):
        yield from (int((rows * one).sum()) for one in inside)


def test_a_group_is_told_where_it_is_large_enough():
    whole = data_of([0] * 20 + [1] * 20, [0, 1] * 20)
    rates = [RateId("selection", "race", group) for group in "ab"]
    small = data_of([0] * 3 + [1] * 20, [0] * 23)
    assert told_rates(whole, rates, 5) == rates
    assert [rate.group for rate in told_rates(small, rates, 5)] == [WITHHELD, "b"]


@given(
    st.dictionaries(st.text(max_size=2), st.integers(1, 40), max_size=5),
    st.integers(0, 40),
    st.integers(1, 20),
)
def test_levels_of_a_column_are_told_where_enough_rows_have_them(counts, missing, least):
    column = CategorySummary(counts, missing)
    said = withheld_statistics(Statistics({"ward": column}), least).columns["ward"]
    assert said.counts == {level: n for level, n in counts.items() if n >= least}
    assert said.missing == (missing if missing >= least else 0)
    schema = Schema((Category("ward", (*counts, "never seen"), has_missing=True),))
    told = told_features(schema, Statistics({"ward": said}))
    assert told.tolist() == [n >= least for n in counts.values()] + [False, said.missing > 0]


def test_few_empty_cells_of_a_number_cannot_be_told_from_full_ones():
    said = withheld_statistics(Statistics({"age": NumberSummary(97, 60.0, 5.0, 3)}), 5)
    assert said.columns["age"] == NumberSummary(100, 60.0, 5.0, 0)
    said = withheld_statistics(Statistics({"age": NumberSummary(3, 60.0, 5.0, 97)}), 5)
    assert said.columns["age"] == NumberSummary(missing=100)


def test_no_two_decisions_that_are_told_differ_in_few_rows(tmp_path):
    rng, told = np.random.default_rng(0), []
    first = rng.random(200) < 0.5
    for _ in range(60):
        decisions = first ^ (rng.random(200) < rng.choice([0.01, 0.05, 0.3]))
        settled = ToldDecisions(tmp_path / "told", 10).settle(decisions)
        assert (settled != decisions).sum() < 10
        told.append(settled)
    for one in told:
        assert min(one.sum(), (~one).sum()) == 0 or 10 <= one.sum() <= 190
        for other in told:
            assert (one == other).all() or (one != other).sum() >= 10


def test_the_same_decisions_are_told_the_same_over_restarts(tmp_path):
    decisions = np.arange(100) < 50
    near = np.arange(100) < 52
    assert (ToldDecisions(tmp_path / "told", 10).settle(decisions) == decisions).all()
    assert (ToldDecisions(tmp_path / "told", 10).settle(near) == decisions).all()
    (tmp_path / "told").write_bytes((tmp_path / "told").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"told decisions .* is torn"):
        ToldDecisions(tmp_path / "told", 10).settle(near)
