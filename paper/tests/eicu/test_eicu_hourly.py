"""Hours: which one a minute is in, sums as a stream goes by, and what is taken from them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl_paper.eicu.events import (
    DAY_ONE,
    SUMMARIES,
    WITH_LOOK_BACK,
    Events,
    Window,
    clock_hour,
    hour_sums,
)


def events(rows):
    """Rows of (place, channel, minute, value)."""
    place, channel, offset, value = np.array(rows, dtype=float).reshape(-1, 4).T
    return Events(place.astype(int), channel.astype(int), offset, value)


def test_an_hour_ends_with_its_full_hour():
    minutes = np.array([-61, -60, -1, 0, 1, 60, 61])
    assert clock_hour(minutes).tolist() == [-1, -1, 0, 0, 1, 1, 2]


def test_an_hour_is_the_mean_of_its_values():
    sums = hour_sums(
        [events([(0, 0, 1, 80), (0, 0, 60, 90), (0, 0, 61, 50)])], 1, np.zeros(1), DAY_ONE
    )
    means = sums.means(0)[0]
    assert means[1] == 85 and means[2] == 50
    assert np.isnan(means[[0, *range(3, 25)]]).all()


@pytest.mark.parametrize(
    ("window", "first_in", "last_in"),
    [(DAY_ONE, -59, 1440), (WITH_LOOK_BACK, -24 * 60 - 59, 1440)],
)
def test_the_window_begins_and_ends_with_whole_hours(window, first_in, last_in):
    """A stay that begins at minute 0 begins in hour 0, which ends there."""
    for minute, inside in (
        (first_in - 1, False), (first_in, True), (last_in, True), (last_in + 1, False),
    ):  # fmt: skip
        sums = hour_sums([events([(0, 0, minute, 7.0)])], 1, np.zeros(1), window)
        assert sums.counts.sum() == inside


def test_hours_count_from_the_hour_a_stay_begins_in():
    start = np.array([30.0, -90.0])  # in hour 1 and in hour -1
    rows = [(0, 0, 30, 1), (0, 0, 61, 2), (1, 0, -90, 3), (1, 0, 30, 4)]
    means = hour_sums([events(rows)], 1, start, DAY_ONE).means(0)
    assert means[0, :2].tolist() == [1, 2]
    assert means[1, 0] == 3 and means[1, 2] == 4


def test_first_last_smallest_and_largest_of_the_hours():
    gap = np.nan
    hours = np.array([[gap, 3, 1, gap, 2, gap], [gap] * 6, [5, gap, gap, gap, gap, gap]])
    for summary, expected in (
        (SUMMARIES["first"], [3, gap, 5]), (SUMMARIES["last"], [2, gap, 5]),
        (SUMMARIES["min"], [1, gap, 5]), (SUMMARIES["max"], [3, gap, 5]),
    ):  # fmt: skip
        assert np.array_equal(summary(hours), expected, equal_nan=True)


def test_a_total_is_missing_only_where_nothing_was_measured():
    rows = [(0, 0, 10, 100), (0, 0, 700, 50), (1, 0, 20, 0), (2, 0, 5000, 9)]
    totals = hour_sums([events(rows)], 1, np.zeros(3), DAY_ONE).totals(0)
    assert np.array_equal(totals, [150, 0, np.nan], equal_nan=True)


row = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.integers(-1600, 1600), st.integers(-5, 200)
)


@given(st.lists(row, max_size=60), st.integers(1, 9), st.randoms())
def test_means_are_those_of_a_plain_table_however_the_rows_come(rows, batch, random):
    """Order and batches do not matter; the reference is a group-by over all rows."""
    start = np.array([0.0, 45, -30, 600])
    shuffled = random.sample(rows, len(rows))
    stream = [events(shuffled[at : at + batch]) for at in range(0, len(rows), batch)]
    window = Window(-24, 24)
    found = hour_sums(stream, 3, start, window)
    frame = pd.DataFrame(rows, columns=["place", "channel", "minute", "value"])
    begun = clock_hour(start[frame["place"].astype(int)]) if len(frame) else np.zeros(0)
    frame["hour"] = clock_hour(frame["minute"].to_numpy(dtype=float)) - begun
    kept = frame[frame["hour"].between(-24, 24)]
    expected = np.full((3, 4, len(window)), np.nan)
    for (place, channel, hour), values in kept.groupby(["place", "channel", "hour"])["value"]:
        expected[int(channel), int(place), int(hour) + 24] = values.mean()
    means = np.stack([found.means(channel) for channel in range(3)])
    assert np.allclose(means, expected, equal_nan=True)
