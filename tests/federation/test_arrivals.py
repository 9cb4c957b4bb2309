"""Answers that cannot be of a client's rows are refused where they arrive, by its name."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import RateId, Report
from fcfl.client.client import Counted
from fcfl.client.counts import Counts
from fcfl.errors import ReportError
from fcfl.federation.federation import KnownCounts, check_counted

RATES = tuple(
    RateId(kind, "race", group)
    for kind in ("selection", "true_positive", "false_positive")
    for group in ("a", "b")
)
PARAMS = np.zeros(3)


def counted():
    """Ten rows, six of group a; four of the ten have label 1."""
    counts = Counts(
        true_negative=4,
        false_positive=2,
        false_negative=1,
        true_positive=3,
        loss_sum=5.0,
        group_counts=np.array([6.0, 4.0, 3.0, 1.0, 3.0, 3.0]),
        group_selected=np.array([4.0, 1.0, 3.0, 0.0, 1.0, 1.0]),
    )
    report = Report(10.0, 0.5, counts.group_counts, np.full(6, 0.5))
    return Counted(report, counts, counts)


def check(said):
    check_counted("north", said, PARAMS, RATES, of_rows=True)


def test_counts_of_rows_are_accepted():
    check(counted())


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize(
    ("field", "place", "value"),
    [
        ("group_counts", 0, 7.0),  # with the four of group b more than all rows
        ("group_counts", 2, 4.0),  # five rows with label 1, of four
        ("group_counts", 5, 4.0),  # seven rows with label 0, of six
        ("group_selected", 0, 5.0),  # six selected, of five
        ("group_selected", 3, 1.0),  # four selected with label 1, of three
        ("group_selected", 4, 2.0),  # three selected with label 0, of two
        ("group_selected", 1, 4.5),
        ("group_counts", 1, -1.0),
    ],
)
def test_groups_that_share_no_row_are_within_all_rows(part, field, place, value):
    counts = getattr(counted(), part)
    array = getattr(counts, field).copy()
    array[place] = value
    said = replace(counted(), **{part: replace(counts, **{field: array})})
    with pytest.raises(ReportError, match=r"Client 'north' sent invalid counts of its (tr|held)"):
        check(said)


@pytest.mark.parametrize(
    "change",
    [{"true_positive": 10**400}, {"loss_sum": -1.0}, {"loss_sum": 1e300}, {"true_negative": 5}],
    ids=str,
)
def test_counts_beyond_the_rows_or_all_numbers_are_rejected(change):
    said = replace(counted(), train=replace(counted().train, **change))
    with pytest.raises(ReportError, match="invalid counts of its training rows"):
        check(said)


def test_counts_of_formulas_need_not_equal_those_of_the_report():
    said = replace(counted(), report=replace(counted().report, n_rows=99.0))
    check_counted("north", said, PARAMS, RATES)
    with pytest.raises(ReportError, match="invalid counts of its training rows"):
        check(said)


def test_counts_stay_the_same_as_long_as_a_run_lasts():
    known, groups = KnownCounts(), np.array([6.0, 4.0])
    parts = (("north", None, 10.0), ("north", "held out", 8.0), ("south", None, 7.0))
    for name, part, n_rows in parts:
        known.check(name, part, n_rows, groups)
        known.check(name, part, n_rows, groups.copy())
    with pytest.raises(ReportError, match=r"'north' sent a row count of 11 where it had sent 10;"):
        known.check("north", None, 11.0, groups)
    with pytest.raises(ReportError, match=r"'north' sent a row count of 5 where it had sent 4;"):
        known.check("north", "held out", 8.0, np.array([6.0, 5.0]))
