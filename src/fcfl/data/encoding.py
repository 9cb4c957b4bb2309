"""How raw columns become features, agreed among clients from summed statistics."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import ClientId, Vector
from fcfl.errors import DataError

from ._cells import (
    Frame,
    Kind,
    check_columns,
    kind_of,
    named_columns,
    numbers,
    parsed,
    text_of,
    texts,
)
from .client_data import Features
from .statistics import (
    CategorySummary,
    NumberSummary,
    Statistics,
    Summary,
    merge_categories,
    merge_numbers,
)

Cells: TypeAlias = NDArray[Any]  # float64 numbers with NaN, or int32 positions in a block, or -1
_MOSTLY = 0.9  # a text column with this share of numbers may be one of numbers, and is noted
_LEAST_NUMBERS = 10  # but not where fewer cells are numbers,
_LEAST_DISTINCT = 3  # or where they are only a few codes
_Entries: TypeAlias = tuple[NDArray[np.int32], Vector]  # per row: which feature, and its value


@dataclass(frozen=True, slots=True)
class Number:
    """A number, standardised; an empty cell becomes the mean and may set an indicator."""

    kind: ClassVar[Kind] = "number"
    name: str
    mean: float
    scale: float
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features this column becomes."""
        return (self.name, f"{self.name} missing")[: 1 + self.has_missing]

    def read(self, frame: Frame) -> Cells:
        """Return the column as numbers, NaN where empty."""
        return numbers(frame[self.name])

    def entries(self, cells: Cells, start: int) -> Iterator[_Entries]:
        """Yield the column's features, the first of which is feature ``start``."""
        empty = np.isnan(cells)
        at = np.full(cells.size, start, dtype=np.int32)
        yield at, np.where(empty, 0.0, (cells - self.mean) / self.scale)
        if self.has_missing:
            yield at + 1, empty.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Category:
    """A category, one feature per level; a level never seen in training gives all zeros."""

    kind: ClassVar[Kind] = "category"
    name: str
    levels: tuple[str, ...]
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features this column becomes."""
        names = [f"{self.name}={level}" for level in self.levels]
        return (*names, f"{self.name} missing") if self.has_missing else tuple(names)

    def read(self, frame: Frame) -> Cells:
        """Return the position of each cell in the block of features, -1 for none of them."""
        kind_of(frame[self.name])  # refuses dates
        found = texts(frame[self.name])
        position = {level: code for code, level in enumerate(self.levels)}
        missing = len(self.levels) if self.has_missing else -1
        lookup = [position.get(level, -1) for level in found.levels] + [missing]
        return np.array(lookup, dtype=np.int32)[found.codes]

    def entries(self, cells: Cells, start: int) -> Iterator[_Entries]:
        """Yield the column's features, the first of which is feature ``start``."""
        known = cells >= 0
        yield np.where(known, cells + start, start).astype(np.int32), known.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that become features, in order, and what the user should know about them."""

    columns: tuple[Number | Category, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def from_statistics(
        cls, statistics: Mapping[ClientId, Statistics], max_levels: int = 100
    ) -> "Schema":
        """Agree on an encoding from what each client says about its columns.

        The result does not depend on the order of the clients, and equals that of the pooled
        table up to rounding.
        """
        columns, notes = [], []
        for name, parts in _by_column(statistics).items():
            column, note = _agree(name, parts, max_levels)
            columns += [column] if column else []
            notes += [note] if note else []
        return cls(tuple(columns), tuple(notes))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def n_features(self) -> int:
        """How many features."""
        return len(self.feature_names)

    @property
    def is_sparse(self) -> bool:
        """Whether most entries are zero: a column sets one of its features in each row."""
        return 2 * len(self.columns) < self.n_features

    def transform(self, frame: Frame) -> Features:
        """Encode a table: a csr_array where most entries are zero, else an ndarray."""
        return self.encode(self.read(frame), len(frame))

    def read(self, frame: Frame) -> tuple[Cells, ...]:
        """Read the schema's columns from a table: the cells as they are, before scaling."""
        frame = named_columns(frame)
        check_columns(frame, [column.name for column in self.columns])
        return tuple(column.read(frame) for column in self.columns)

    def encode(self, cells: Sequence[Cells], n_rows: int) -> Features:
        """Turn cells into features."""
        widths = [len(column.feature_names) for column in self.columns]
        starts = list(accumulate(widths, initial=0))[:-1]
        entries = (
            entry
            for column, values, start in zip(self.columns, cells, starts, strict=True)
            for entry in column.entries(values, start)
        )
        build = _sparse if self.is_sparse else _dense
        return build(entries, (n_rows, self.n_features))

    def to_dict(self) -> dict[str, object]:
        """Return the schema as plain JSON values."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        for column in columns:
            if "levels" in column:
                column["levels"] = list(column["levels"])
        return {"columns": columns, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Schema":
        """Rebuild a schema from ``to_dict``."""
        columns = tuple(_column_from(entry) for entry in plain["columns"])
        return cls(columns, tuple(plain.get("notes", ())))


def _dense(entries: Iterator[_Entries], shape: tuple[int, int]) -> Features:
    X = np.zeros(shape)
    rows = np.arange(shape[0])
    for at, values in entries:
        X[rows, at] += values
    return X


def _sparse(entries: Iterator[_Entries], shape: tuple[int, int]) -> Features:
    at, values = (np.stack(parts, axis=1) for parts in zip(*entries, strict=True))
    kept = values != 0
    row_ends = np.cumsum(np.append(0, kept.sum(axis=1)))
    return sparse.csr_array((values[kept], at[kept], row_ends), shape=shape)


def _by_column(statistics: Mapping[ClientId, Statistics]) -> dict[str, dict[ClientId, Summary]]:
    """Regroup by column, clients in sorted order; all clients must have the same columns."""
    if not statistics:
        raise ValueError("`statistics` must hold at least one client, got none.")
    clients = sorted(statistics)
    names = list(statistics[clients[0]].columns)
    for client in clients:
        differing = sorted(set(names) ^ set(statistics[client].columns))
        if differing:
            raise DataError(
                f"Clients {clients[0]!r} and {client!r} must have the same columns, but only one "
                f"of them has {differing[0]!r}. Add the column or drop it."
            )
    return {
        name: {client: statistics[client].columns[name] for client in clients} for name in names
    }


def _agree(
    name: str, parts: Mapping[ClientId, Summary], max_levels: int
) -> tuple[Number | Category | None, str | None]:
    """Return a column's encoding, or None where it is left out, and a note where one is due."""
    _check_one_kind(name, parts)
    filled = [part for part in parts.values() if part.n]
    if not filled:
        return None, f"Column {name!r} is empty and was left out."
    missing = sum(part.missing for part in parts.values())
    if isinstance(filled[0], NumberSummary):
        known = [part for part in filled if isinstance(part, NumberSummary)]
        return _number(name, merge_numbers(known), missing > 0)
    counts = merge_categories(part for part in filled if isinstance(part, CategorySummary)).counts
    return _category(name, counts, missing > 0, max_levels)


def _number(
    name: str, total: NumberSummary, has_missing: bool
) -> tuple[Number | Category | None, str | None]:
    scale = math.sqrt(total.m2 / total.n)
    if scale > 0:
        return Number(name, total.mean, scale, has_missing), None
    if not has_missing:
        return None, _constant(name, text_of(total.mean))
    note = f"Column {name!r} is {text_of(total.mean)} or empty and is used as a category."
    return Category(name, (text_of(total.mean),), True), note


def _category(
    name: str, counts: Mapping[str, int], has_missing: bool, max_levels: int
) -> tuple[Category | None, str | None]:
    if len(counts) == 1 and not has_missing:
        return None, _constant(name, next(iter(counts)))
    mostly = _mostly_numbers(name, counts)
    if len(counts) <= max_levels:
        return Category(name, tuple(counts), has_missing), mostly
    frequent = sorted(counts, key=lambda level: (-counts[level], level))[:max_levels]
    note = (
        f"Column {name!r} has {len(counts)} levels; the {max_levels} most frequent are used and "
        "the others count as unknown."
    )
    advice = mostly or "Drop it if it is an identifier."
    return Category(name, tuple(sorted(frequent)), has_missing), f"{note} {advice}"


def _mostly_numbers(name: str, counts: Mapping[str, int]) -> str | None:
    """A note where a few cells make text of what may be a column of numbers."""
    values, cells = parsed(tuple(counts)), np.array(list(counts.values()))
    known = np.isfinite(values)
    n_known, n_cells = int(cells[known].sum()), int(cells.sum())
    is_likely = n_known >= max(_LEAST_NUMBERS, _MOSTLY * n_cells)
    if known.all() or not is_likely or len(np.unique(values[known])) < _LEAST_DISTINCT:
        return None
    first, *others = (
        level for level, is_number in zip(counts, known, strict=True) if not is_number
    )
    more = f" and {len(others)} more" if others else ""
    return (
        f"Column {name!r} is taken as text because of {first!r}{more}; {n_known} of {n_cells} "
        "cells are numbers. If it is a number, correct the others or leave them empty."
    )


def _constant(name: str, value: str) -> str:
    return f"Column {name!r} is {value!r} in every training row and was left out."


def _check_one_kind(name: str, parts: Mapping[ClientId, Summary]) -> None:
    """Refuse a column that is a number here and text there; an empty one fits either."""
    first: dict[Kind, ClientId] = {}
    for client, part in parts.items():
        if part.n:
            first.setdefault(part.kind, client)
    if len(first) == 2:
        raise DataError(
            f"Column {name!r} is a number at client {first['number']!r} and text at client "
            f"{first['category']!r}. Make it the same at both, or drop it."
        )


def _column_from(entry: Mapping[str, Any]) -> Number | Category:
    fields = {key: value for key, value in entry.items() if key != "kind"}
    if entry["kind"] == "number":
        return Number(**fields)
    if entry["kind"] == "category":
        return Category(**{**fields, "levels": tuple(fields["levels"])})
    raise DataError(f"`kind` must be 'number' or 'category', got {entry['kind']!r}.")
