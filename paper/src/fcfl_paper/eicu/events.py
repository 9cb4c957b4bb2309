"""Charted values as a stream: which stay, which channel, when, and how much."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow
from numpy.typing import NDArray

from fcfl._types import Vector

from .source_tables import (
    LEVELS,
    NUMBER,
    TEXT,
    WHOLE,
    Batch,
    ColumnType,
    OnProgress,
    Table,
    read_batches,
)
from .variables import CHARTED, LABS, URINE, Channel, chart_channel, lab_channel, urine_channel

Places = NDArray[np.intp]
_A_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)$"


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
        return {
            "patientunitstayid": WHOLE,
            self.offset: NUMBER,
            **dict.fromkeys(self.labels, LEVELS),
            self.value: self.value_type,
        }


CHARTING = Source(
    "nurseCharting",
    "nursingchartoffset",
    ("nursingchartcelltypevallabel", "nursingchartcelltypevalname"),
    "nursingchartvalue",
    TEXT,
    chart_channel,
    CHARTED,
)
HEART_RATE = replace(CHARTING, channels={"heart_rate": CHARTED["heart_rate"]})
LAB = Source("lab", "labresultoffset", ("labname",), "labresult", NUMBER, lab_channel, LABS)
INTAKE_OUTPUT = Source(
    "intakeOutput",
    "intakeoutputoffset",
    ("cellpath",),
    "cellvaluenumeric",
    NUMBER,
    urine_channel,
    URINE,
)


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

    Parameters
    ----------
    table, source : the file, and how it is read
    stays : sorted ids; an event's ``place`` points into them
    """
    for batch in read_batches(table, source.columns, on_progress):
        yield _events(batch, source, stays)


def _events(batch: Batch, source: Source, stays: NDArray[np.int64]) -> Events:
    """Accepted values of one batch; the cheapest test comes first: labels, stay, text."""
    stay, offset, *labels, value = batch.columns
    channel = _channels(labels, source)
    rows = np.flatnonzero(channel >= 0)
    place, known = find_places(_numbers(stay.take(pa.array(rows)), -1).astype(np.int64), stays)
    rows, place = rows[known], place[known]
    numbers = _values(value.take(pa.array(rows)))
    offsets = _numbers(offset.take(pa.array(rows)), np.nan)
    accepted = _accepted(numbers, channel[rows], source)
    kept = ~np.isnan(accepted) & ~np.isnan(offsets)
    return Events(place[kept], channel[rows][kept], offsets[kept], accepted[kept])


def find_places(
    ids: NDArray[np.int64], stays: NDArray[np.int64]
) -> tuple[Places, NDArray[np.bool_]]:
    """Where each id stands among the sorted ``stays``, and whether it does."""
    if not stays.size:
        return np.zeros(ids.size, dtype=np.intp), np.zeros(ids.size, dtype=bool)
    place = np.minimum(np.searchsorted(stays, ids), stays.size - 1)
    return place, stays[place] == ids


def _channels(labels: list[Any], source: Source) -> Places:
    """Code of each row's channel, -1 for none; looked up once per combination of labels."""
    texts = [_levels(column) for column in labels]
    sizes = tuple(len(names) for names in texts)
    codes = [_codes(column) for column in labels]
    combined = np.ravel_multi_index(codes, sizes)
    found = np.flatnonzero(np.bincount(combined, minlength=1))
    order = {name: code for code, name in enumerate(source.channels)}
    lookup = np.full(int(np.prod(sizes)), -1, dtype=np.intp)
    for combination in found:
        each = np.unravel_index(combination, sizes)
        words = (names[int(at)] for names, at in zip(texts, each, strict=True))
        channel = source.channel_of(*words)
        lookup[combination] = -1 if channel is None else order.get(channel, -1)
    return lookup[combined]


def _levels(column: Any) -> list[str]:
    """The texts a column points to, and an empty one for its empty cells."""
    packed = column.dictionary.cast(pa.binary())
    return [*(level.as_py().decode("utf-8", "replace") for level in packed), ""]


def _codes(column: Any) -> NDArray[np.int64]:
    return _numbers(column.indices, len(column.dictionary)).astype(np.int64)


def _values(column: Any) -> Vector:
    """Numbers, or NaN where the text is not one."""
    if pa.types.is_floating(column.type):
        return _numbers(column, np.nan)
    trimmed = arrow.utf8_trim_whitespace(column)
    is_number = arrow.match_substring_regex(trimmed, _A_NUMBER)
    plain = arrow.if_else(is_number, trimmed, pa.scalar(None, pa.string()))
    return _numbers(plain.cast(pa.float64()), np.nan)


def _numbers(column: Any, empty: float) -> Vector:
    filled = column.fill_null(empty) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _accepted(values: Vector, channel: Places, source: Source) -> Vector:
    accepted = np.full(values.size, np.nan)
    for code, kind in enumerate(source.channels.values()):
        rows = channel == code
        accepted[rows] = kind.accepted(values[rows])
    return accepted
