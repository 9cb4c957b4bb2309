"""Values by the hour: sums and counts as a stream goes by, then first, last, smallest, largest."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector

from .events import Events

Hours = NDArray[np.float64]  # stays × hours, NaN where nothing was charted


@dataclass(frozen=True, slots=True)
class Window:
    """Hours ``first`` to ``last``, both included, counted from the hour a stay begins in."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


DAY_ONE = Window(0, 24)
WITH_LOOK_BACK = Window(-24, 24)


def clock_hour(offset: Vector) -> Vector:
    """The hour an offset in minutes falls in: minute 1 to 60 is hour 1, minute 0 ends hour 0."""
    return np.ceil(offset / 60.0)


@dataclass(frozen=True, slots=True)
class HourSums:
    """Sum and count of the values of each channel, stay and hour: all that is kept of a stream."""

    sums: NDArray[np.float64]
    counts: NDArray[np.uint32]

    def means(self, channel: int) -> Hours:
        """Mean of each hour, NaN where it is empty."""
        counts = self.counts[channel]
        means = np.full(counts.shape, np.nan)
        np.divide(self.sums[channel], counts, out=means, where=counts > 0)
        return means

    def totals(self, channel: int) -> Vector:
        """Sum over all hours, NaN for a stay without a value."""
        total = self.sums[channel].sum(axis=1)
        return np.where(self.counts[channel].any(axis=1), total, np.nan)


def hour_sums(stream: Iterable[Events], n_channels: int, start: Vector, window: Window) -> HourSums:
    """Reduce a stream to sums and counts; memory is channels × stays × hours.

    Parameters
    ----------
    stream : events whose places point into ``start``
    n_channels : how many channels there are
    start : minute at which each stay begins
    window : the hours to keep
    """
    shape = (n_channels, start.size, len(window))
    sums, counts = np.zeros(shape), np.zeros(shape, dtype=np.uint32)
    begun = clock_hour(start)
    for events in stream:
        hour = clock_hour(events.offset) - begun[events.place]
        kept = (hour >= window.first) & (hour <= window.last)
        column = hour[kept].astype(np.intp) - window.first
        at = np.ravel_multi_index((events.channel[kept], events.place[kept], column), shape)
        np.add.at(sums.reshape(-1), at, events.value[kept])
        np.add.at(counts.reshape(-1), at, np.uint32(1))
    return HourSums(sums, counts)


def first_value(hours: Hours) -> Vector:
    """Value of the first hour that has one."""
    at = (~np.isnan(hours)).argmax(axis=1)
    return np.take_along_axis(hours, at[:, None], axis=1)[:, 0]


def last_value(hours: Hours) -> Vector:
    """Value of the last hour that has one."""
    return first_value(hours[:, ::-1])


def smallest(hours: Hours) -> Vector:
    """Smallest of the hours' values, NaN for none."""
    return np.asarray(np.fmin.reduce(hours, axis=1))


def largest(hours: Hours) -> Vector:
    """Largest of the hours' values, NaN for none."""
    return np.asarray(np.fmax.reduce(hours, axis=1))
