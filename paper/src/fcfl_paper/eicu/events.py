"""Charted values as a stream, and by the hour: which stay, which channel, when, how much.

What is measured, where it is charted, and which values are accepted is in ``variables.toml``.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow
from numpy.typing import NDArray

from fcfl._types import Vector

from .tables import LEVELS, NUMBER, TEXT, WHOLE, Batch, ColumnType, OnProgress, Table, read_batches

Places = NDArray[np.intp]
Hours = NDArray[np.float64]  # stays × hours, NaN where nothing was charted
KNOWN: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "variables.toml").read_text(encoding="utf-8")
)
_CHANGES: dict[str, Callable[[Vector], Vector]] = {
    "celsius": lambda fahrenheit: (fahrenheit - 32.0) / 1.8,
    "fraction": lambda oxygen: np.where(oxygen >= 20, oxygen / 100.0, oxygen),  # was percent
}
_A_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)$"


@dataclass(frozen=True, slots=True)
class Channel:
    """One kind of charted value: its unit is changed first, then the range decides."""

    low: float
    high: float
    unit: str = ""

    def accepted(self, values: Vector) -> Vector:
        """Return the values in our unit, NaN where they lie outside the accepted range."""
        changed = _CHANGES[self.unit](values) if self.unit else values
        return np.where((changed >= self.low) & (changed <= self.high), changed, np.nan)


CHARTED, LABS, URINE = (
    {name: Channel(*limits) for name, limits in KNOWN[table].items()}
    for table in ("charted", "labs", "urine")
)
VITALS: Mapping[str, tuple[str, ...]] = KNOWN["vitals"]
SCORE = "gcs"
OXYGENATION = "pao2_fio2"  # of the hour's means; not a channel
LAB_VARIABLES = tuple(OXYGENATION if name == "fio2" else name for name in LABS)
VARIABLES = (*VITALS, SCORE, *LAB_VARIABLES)  # the 29 with a first and a last value
CHART_LABELS = {(label, name): channel for label, name, channel in KNOWN["words"]["chart_labels"]}


@cache
def chart_channel(label: str, name: str) -> str | None:
    """Return the channel of a nurseCharting row, by its two labels in any letter case."""
    return CHART_LABELS.get((label.strip().lower(), name.strip().lower()))


@cache
def lab_channel(name: str) -> str | None:
    """Return the channel of a lab row."""
    found: str | None = KNOWN["lab_labels"].get(name.strip().lower())
    return found


@cache
def urine_channel(path: str) -> str | None:
    """Return ``"urine"`` for an intakeOutput row whose path names a volume of urine."""
    _, output, label = path.lower().partition("|output (ml)|")
    if not output or any(word in label for word in KNOWN["words"]["not_urine"]):
        return None
    return "urine" if any(word in label for word in KNOWN["words"]["urine"]) else None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a table keeps time, labels and value, and which labels are of which channel."""

    table: str
    offset: str
    labels: tuple[str, ...]
    value: str
    value_type: ColumnType
    channel_of: Callable[..., str | None]
    channels: Mapping[str, Channel]

    @property
    def columns(self) -> dict[str, ColumnType]:
        """The columns to read, and their types."""
        labels = dict.fromkeys(self.labels, LEVELS)
        stay = {"patientunitstayid": WHOLE, self.offset: NUMBER}
        return {**stay, **labels, self.value: self.value_type}


_CHART_COLUMNS = ("nursingchartcelltypevallabel", "nursingchartcelltypevalname")
CHARTING = Source(
    "nurseCharting", "nursingchartoffset", _CHART_COLUMNS, "nursingchartvalue", TEXT,
    chart_channel, CHARTED,
)  # fmt: skip
HEART_RATE = replace(CHARTING, channels={"heart_rate": CHARTED["heart_rate"]})
LAB = Source("lab", "labresultoffset", ("labname",), "labresult", NUMBER, lab_channel, LABS)
INTAKE_OUTPUT = Source(
    "intakeOutput", "intakeoutputoffset", ("cellpath",), "cellvaluenumeric", NUMBER,
    urine_channel, URINE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Events:
    """Accepted values of one batch: place of the stay, channel, minutes, value."""

    place: Places
    channel: Places
    offset: Vector
    value: Vector


def read_events(
    table: Table, source: Source, stays: NDArray[np.int64], on_progress: OnProgress | None = None
) -> Iterator[Events]:
    """Yield the accepted values of the given stays, batch by batch.

    ``stays`` are sorted ids; an event's ``place`` points into them.
    """
    for batch in read_batches(table, source.columns, on_progress):
        yield _events(batch, source, stays)


def _events(batch: Batch, source: Source, stays: NDArray[np.int64]) -> Events:
    """Return the accepted values of one batch; the cheapest test is first: labels, stay, text."""
    stay, offset, *labels, value = batch.columns
    channel = _channels(labels, source)
    rows = np.flatnonzero(channel >= 0)
    place, known = find_places(_numbers(stay.take(pa.array(rows)), -1).astype(np.int64), stays)
    rows, place = rows[known], place[known]
    accepted = _values(value.take(pa.array(rows)))
    for code, kind in enumerate(source.channels.values()):
        of_kind = channel[rows] == code
        accepted[of_kind] = kind.accepted(accepted[of_kind])
    offsets = _numbers(offset.take(pa.array(rows)), np.nan)
    kept = ~np.isnan(accepted) & ~np.isnan(offsets)
    return Events(place[kept], channel[rows][kept], offsets[kept], accepted[kept])


def find_places(
    ids: NDArray[np.int64], stays: NDArray[np.int64]
) -> tuple[Places, NDArray[np.bool_]]:
    """Return where each id stands among the sorted ``stays``, and whether it does."""
    if not stays.size:
        return np.zeros(ids.size, dtype=np.intp), np.zeros(ids.size, dtype=bool)
    place = np.minimum(np.searchsorted(stays, ids), stays.size - 1)
    return place, stays[place] == ids


def _channels(labels: list[Any], source: Source) -> Places:
    """Return the code of each row's channel, -1 for none; once per combination of labels."""
    texts = [_levels(column) for column in labels]
    sizes = tuple(map(len, texts))
    codes = [_numbers(one.indices, len(one.dictionary)).astype(np.int64) for one in labels]
    combined = np.ravel_multi_index(codes, sizes)
    order = {name: code for code, name in enumerate(source.channels)}
    lookup = np.full(int(np.prod(sizes)), -1, dtype=np.intp)
    for combination in np.flatnonzero(np.bincount(combined, minlength=1)):
        each = np.unravel_index(combination, sizes)
        words = (names[int(at)] for names, at in zip(texts, each, strict=True))
        lookup[combination] = order.get(source.channel_of(*words) or "", -1)
    return lookup[combined]


def _levels(column: Any) -> list[str]:
    """Return the texts a column points to, and an empty one for its empty cells."""
    packed = column.dictionary.cast(pa.binary())
    return [*(level.as_py().decode("utf-8", "replace") for level in packed), ""]


def _values(column: Any) -> Vector:
    """Return numbers, or NaN where the text is not one."""
    if not pa.types.is_floating(column.type):
        trimmed = arrow.utf8_trim_whitespace(column)
        is_number = arrow.match_substring_regex(trimmed, _A_NUMBER)
        column = arrow.if_else(is_number, trimmed, pa.scalar(None, pa.string())).cast(pa.float64())
    return np.array(_numbers(column, np.nan))


def _numbers(column: Any, empty: float) -> Vector:
    filled = column.fill_null(empty) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False))


# --- by the hour ----------------------------------------------------------------------------------


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
    """Return the hour of an offset in minutes: 1 to 60 are hour 1, minute 0 ends hour 0."""
    return np.ceil(offset / 60.0)


@dataclass(frozen=True, slots=True)
class HourSums:
    """Sum and count of the values of each channel, stay and hour: all that is kept of a stream."""

    sums: NDArray[np.float64]
    counts: NDArray[np.uint32]

    def means(self, channel: int) -> Hours:
        """Return the mean of each hour, NaN where it is empty."""
        counts = self.counts[channel]
        means = np.full(counts.shape, np.nan)
        np.divide(self.sums[channel], counts, out=means, where=counts > 0)
        return means

    def totals(self, channel: int) -> Vector:
        """Return the sum over all hours, NaN for a stay without a value."""
        total = self.sums[channel].sum(axis=1)
        return np.where(self.counts[channel].any(axis=1), total, np.nan)


def hour_sums(stream: Iterable[Events], n_channels: int, start: Vector, window: Window) -> HourSums:
    """Reduce a stream to sums and counts; memory is channels × stays × hours.

    Places in the stream point into ``start``, the minute at which each stay begins.
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
    """Return the value of the first hour that has one."""
    at = (~np.isnan(hours)).argmax(axis=1)
    return np.take_along_axis(hours, at[:, None], axis=1)[:, 0]


SUMMARIES: Mapping[str, Callable[[Hours], Vector]] = {
    "first": first_value,
    "last": lambda hours: first_value(hours[:, ::-1]),
    "min": lambda hours: np.asarray(np.fmin.reduce(hours, axis=1)),
    "max": lambda hours: np.asarray(np.fmax.reduce(hours, axis=1)),
}


def summaries(hours: Mapping[str, Hours], *kinds: str) -> dict[str, Vector]:
    """Return one number per stay of each variable, for each kind of summary."""
    return {f"{name}_{kind}": SUMMARIES[kind](of) for kind in kinds for name, of in hours.items()}


def preferred(first: NDArray[np.float64], *others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first of several arrays, its gaps filled from the next, and so on."""
    for other in others:
        first = np.where(np.isnan(first), other, first)
    return first


def charted_hours(sums: HourSums) -> dict[str, Hours]:
    """Return vital signs by the hour, the preferred channel first; the coma score rounded up."""
    means = {name: sums.means(code) for code, name in enumerate(CHARTED)}
    hours = {vital: preferred(*(means[one] for one in found)) for vital, found in VITALS.items()}
    return hours | {SCORE: np.ceil(means[SCORE])}


def lab_hours(sums: HourSums) -> dict[str, Hours]:
    """Return labs and blood gases by the hour, with PaO2/FiO2 of the hour's means."""
    means = {name: sums.means(code) for code, name in enumerate(LABS)}
    means[OXYGENATION] = means["pao2"] / means["fio2"]
    return {name: means[name] for name in LAB_VARIABLES}
