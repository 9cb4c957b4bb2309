"""How raw columns become features, agreed among clients from summed statistics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ClientId, Vector
from fcfl.errors import DataError

from ._cells import (
    Frame,
    Kind,
    Texts,
    alike_notes,
    check_columns,
    named_columns,
    parsed,
    text_of,
)
from .client_data import Features
from .coded_features import FeatureLayout, code_cells
from .column_encoding import Category, Cells, Number
from .statistics import (
    CategorySummary,
    NumberSummary,
    Statistics,
    Summary,
    merge_categories,
    merge_numbers,
)

__all__ = ["MAX_LEVELS", "Category", "Cells", "Number", "Schema"]

_MOSTLY = 0.9  # a text column with this share of numbers may be one of numbers, and is noted
_LEAST_NUMBERS = 10  # but not where fewer cells are numbers,
_LEAST_DISTINCT = 3  # or where they are only a few codes
_NAMED = 5  # levels that are not used, in a note
MAX_LEVELS = 100
EMPTY = "is empty"  # in a note


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that become features, in order, and what the user should know about them."""

    columns: tuple[Number | Category, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def from_statistics(
        cls, statistics: Mapping[ClientId, Statistics], max_levels: int = MAX_LEVELS
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
            if isinstance(column, Category):
                notes += alike_notes(f"Column {name!r}: levels", column.levels)
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
        """Encode a table: as codes where most entries are zero, else an ndarray."""
        return self.encode(self.read(frame), len(frame))

    def read(
        self, frame: Frame, known: Mapping[str, Vector | Texts] | None = None
    ) -> tuple[Cells, ...]:
        """Read the schema's columns from a table: the cells as they are, before scaling.

        ``known`` has columns that are read already.
        """
        frame = named_columns(frame)
        check_columns(frame, [column.name for column in self.columns])
        read = known or {}
        return tuple(column.cells(frame, read.get(column.name)) for column in self.columns)

    def encode(self, cells: Sequence[Cells], n_rows: int) -> Features:
        """Turn cells into features."""
        pairs = list(zip(self.columns, cells, strict=True))
        codes = [part for column, values in pairs for part in column.codes(values)]
        numbers = [part for column, values in pairs for part in column.numbers(values)]
        X = code_cells(self.layout, codes, numbers, n_rows)
        return X if self.is_sparse else X.toarray()

    @property
    def layout(self) -> FeatureLayout:
        """Where the columns' codes and numbers are among the features."""
        starts = accumulate((len(column.feature_names) for column in self.columns), initial=0)
        at = list(zip(self.columns, starts, strict=False))
        coded = [(start + offset, width) for one, start in at for offset, width in one.coded]
        numbers = tuple(start for one, start in at if one.kind == "number")
        firsts, widths = zip(*coded, strict=True) if coded else ((), ())
        return FeatureLayout(self.n_features, firsts, widths, numbers)

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
                f"of them has {', '.join(map(repr, differing[:5]))}. Rename, add or drop columns."
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
        return None, f"Column {name!r} {EMPTY} and was left out."
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
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    frequent, others = ordered[:max_levels], ordered[max_levels:]
    rows, named = sum(counts[level] for level in others), first_of(map(repr, others), _NAMED)
    note = (
        f"Column {name!r} has {len(counts)} levels; the {max_levels} most frequent are used and "
        f"the others count as unknown: {named}, in {rows} of {sum(counts.values())} "
        "training rows."
    )
    advice = mostly or "Drop it if it is an identifier (`max_levels=` uses more levels)."
    return Category(name, tuple(sorted(frequent)), has_missing), f"{note} {advice}"


def _mostly_numbers(name: str, counts: Mapping[str, int]) -> str | None:
    """A note where a few cells make text of what may be a column of numbers."""
    values, cells = parsed(tuple(counts)), np.array(list(counts.values()))
    known = np.isfinite(values)
    n_known, n_cells = int(cells[known].sum()), int(cells.sum())
    is_likely = n_known >= max(_LEAST_NUMBERS, _MOSTLY * n_cells)
    if known.all() or not is_likely or len(np.unique(values[known])) < _LEAST_DISTINCT:
        return None
    others = [repr(level) for level, is_one in zip(counts, known, strict=True) if not is_one]
    return (
        f"Column {name!r} is taken as text because of {first_of(others, 1)}; {n_known} of "
        f"{n_cells} cells are numbers. If it is a number, correct the others or leave them empty."
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
