"""Read columns of a table as numbers or text, and encode them as features.

Text is parsed once per distinct value, so that reading is linear in the number of rows. All clients
share one encoding, which is computed from their column statistics.
"""

import math
import numbers as abstract
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._checks import did_you_mean, first_of, is_count, is_finite
from fcfl._types import ClientId, Vector
from fcfl.errors import DataError

from .client_data import Codes, FeatureLayout, Features, code_cells

Cells: TypeAlias = NDArray[Any]  # float64 numbers with NaN, or int32 positions in a block, or -1
Kind = Literal["number", "category"]
Frame: TypeAlias = Any  # a pandas.DataFrame; pandas is untyped
Column: TypeAlias = Any  # a pandas.Series

NOTES = "notes"  # key in a frame's `attrs`: sentences about how it was read
UNKNOWN_IS_EMPTY = "Leave the cell empty if the value is unknown."
_NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "empty"}
_TEXT = {"string", "boolean", "categorical", "mixed", "mixed-integer"}
_WHOLE_FLOAT = re.compile(r"(-?\d+)\.0+")
MAX_LEVELS = 100
EMPTY = "is empty"  # in a note
_MOSTLY = 0.9  # minimum share of numbers in a text column for a note that it may be numeric
_MIN_NUMBERS = 10  # minimum number of numeric cells for this note
_MIN_DISTINCT = 3  # minimum number of distinct numbers for this note; fewer may be codes
_NAMED = 5  # maximum number of unused levels listed in a note


@dataclass(frozen=True, slots=True)
class Texts:
    """A text column, stored as one code per row into sorted ``levels``; -1 is an empty cell."""

    codes: Codes
    levels: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each level."""
        rows = np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))
        return dict(zip(self.levels, rows.tolist(), strict=True))

    def codes_in(self, levels: Iterable[str], empty: int = -1) -> Codes:
        """Return codes into other ``levels``: ``empty`` for empty cells and -1 for other texts."""
        position = {level: code for code, level in enumerate(levels)}
        lookup = [position.get(level, -1) for level in self.levels]
        return np.array([*lookup, empty], dtype=np.int32)[self.codes]  # code -1 is the last entry


# --- tables ---------------------------------------------------------------------------------------


def add_note(frame: Frame, sentence: str) -> None:
    """Append a sentence to the notes of the table, which are shown to the user."""
    frame.attrs[NOTES] = (*frame.attrs.get(NOTES, ()), sentence)


def named_columns(frame: Frame) -> Frame:
    """Convert column names to stripped text; raise `DataError` if two names are equal."""
    renamed = frame.rename(columns=lambda name: str(name).strip())
    check_names(renamed.columns)
    return renamed


def check_names(names: Iterable[str], path: Path | None = None) -> None:
    """Raise `DataError` if two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            where = "the table" if path is None else repr(str(path))
            raise DataError(f"Column {name!r} occurs twice in {where}. Rename one.")
        seen.add(name)


def check_columns(frame: Frame, names: Iterable[str], role: str | None = None) -> None:
    """Raise `DataError` if a column is missing; ``role`` is the option that names the column."""
    for name in names:
        if name not in frame.columns:
            what = (
                f"The table has no column {name!r}"
                if role is None
                else f"`{role}` must be a column of the table, got {name!r}"
            )
            raise DataError(f"{what}. {did_you_mean(name, frame.columns)}")


def look_alikes(levels: Iterable[str]) -> str:
    """Return a clause that lists levels differing only by case or spaces, or an empty string."""
    alike: dict[str, list[str]] = {}
    for level in levels:
        key = "".join(unicodedata.normalize("NFKC", level).casefold().split())
        alike.setdefault(key, []).append(level)
    found = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
    return f"{first_of(found)} differ only by case or spaces" if found else ""


def alike_notes(whose: str, levels: Iterable[str]) -> list[str]:
    """Return a list with a note on levels that differ only by case or spaces, or an empty list."""
    alike = look_alikes(levels)
    return [f"{whose} {alike} and are kept apart. Write equal ones alike."] if alike else []


# --- columns --------------------------------------------------------------------------------------


def kind_of(column: Column) -> Kind:
    """Return "number" or "category" by the content of a column; booleans are categories."""
    content = pd.api.types.infer_dtype(column, skipna=True)
    if content in _NUMBERS:
        return "number"
    if content in _TEXT:
        return "category"
    if re.match("date|time|period", content):
        raise DataError(
            f"Column {column.name!r} holds dates or times, which cannot be used as they are. "
            "Convert it to a number, for example days since a fixed day, or drop it."
        )
    raise DataError(
        f"Column {column.name!r} holds {content} values, which cannot be used as they are. "
        "Convert it to numbers or text, or drop it."
    )


def check_one_kind(name: str, kinds: Mapping[str, Kind], place: str) -> None:
    """Raise `DataError` if a column is numeric at one client or file and text at another.

    ``kinds`` maps each client or file to the column's kind. ``place`` is "at client" or "in file".
    """
    first = {kind: where for where, kind in reversed([*kinds.items()])}
    if len(first) == 2:
        raise DataError(
            f"Column {name!r} is a number {place} {first['number']!r} and text {place} "
            f"{first['category']!r}. Use one type at both, or drop the column."
        )


def text_of(value: object) -> str:
    """Return the text of one cell, without outer spaces and without ``.0`` after an integer.

    This also applies to cells that are text, so that ``0`` and ``0.0`` are always the same level.
    """
    if isinstance(value, str):
        text = value.strip()
        whole = _WHOLE_FLOAT.fullmatch(text)
        return text if whole is None else whole[1] if whole[1] != "-0" else "0"
    if isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, abstract.Integral):
        return str(int(value))
    if isinstance(value, abstract.Real):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return str(value).strip()


def texts(column: Column) -> Texts:
    """Read a column as text, in a loop over distinct values instead of rows."""
    codes, uniques = factorize(column)
    names = [text_of(value) for value in uniques]
    levels = sorted(set(names) - {""})
    return Texts(Texts(codes, tuple(names)).codes_in(levels), tuple(levels))


def cell_texts(column: Column) -> list[str | None]:
    """Return the text of each cell, as in client and group columns; None if the cell is empty."""
    text = texts(column)
    return [None if code < 0 else text.levels[code] for code in text.codes]


def factorize(column: Column) -> tuple[Any, Any]:
    """Return one code per row, -1 for an empty cell, and the distinct values."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:
        raise DataError(
            f"Column {column.name!r} holds lists or other nested values. "
            "Split it into plain columns or drop it."
        ) from None
    return codes, values


def cells_of(column: Column) -> Vector | Texts:
    """Read a column as numbers or as text, depending on its content."""
    return numbers(column) if kind_of(column) == "number" else texts(column)


def numbers(column: Column, advice: str = UNKNOWN_IS_EMPTY) -> Vector:
    """Read a column as finite numbers, with NaN for empty cells.

    Raise `DataError`, ending with ``advice``, if a cell is not a number.
    """
    if kind_of(column) == "number":
        values = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        text = texts(column)
        values = parsed(text.levels)
        bad = np.flatnonzero(np.isnan(values))
        if bad.size:
            raise DataError(
                f"Column {column.name!r} must hold numbers, got {text.levels[bad[0]]!r}. {advice}"
            )
        values = np.append(values, np.nan)[text.codes]
    n_infinite = int(np.isinf(values).sum())
    if n_infinite:
        raise DataError(
            f"Column {column.name!r} has {n_infinite} infinite "
            f"{'value' if n_infinite == 1 else 'values'}. Replace them by numbers or leave "
            "the cells empty."
        )
    return np.asarray(values, dtype=np.float64)


def parsed(levels: Sequence[str]) -> Vector:
    """Convert texts to numbers, with NaN for texts that are not numbers."""
    values = pd.to_numeric(pd.Series(levels, dtype=object), errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64))


def is_number(column: Column) -> bool:
    """Return whether the column has a numeric, non-boolean dtype."""
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(column) and not kinds.is_bool_dtype(column))


# --- one column -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """Encoding of a numeric column: standardised, with empty cells replaced by the mean.

    With ``has_missing`` an indicator feature marks the empty cells.
    """

    kind: ClassVar[Kind] = "number"
    name: str
    mean: float
    scale: float
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that this column becomes."""
        return (self.name, f"{self.name} missing")[: 1 + self.has_missing]

    def read(self, column: Column) -> Cells:
        """Return the cells as numbers, NaN where empty."""
        return numbers(column)

    def encode(self, cells: Cells) -> tuple[list[Cells], list[Vector]]:
        """Return codes of the missing indicator, if any, and standardised cells, 0 if empty."""
        is_empty = np.isnan(cells)
        standard = np.where(is_empty, 0.0, (cells - self.mean) / self.scale)
        return [np.where(is_empty, 0, -1)] if self.has_missing else [], [standard]


@dataclass(frozen=True, slots=True)
class Category:
    """One-hot encoding of a category column; a level that is not in ``levels`` gives zeros."""

    kind: ClassVar[Kind] = "category"
    name: str
    levels: tuple[str, ...]
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that this column becomes."""
        names = [f"{self.name}={level}" for level in self.levels]
        return (*names, f"{self.name} missing") if self.has_missing else tuple(names)

    def read(self, column: Column) -> Cells:
        """Return the position of each cell among the column's features, or -1 for none."""
        kind_of(column)  # raises on dates
        empty = len(self.levels) if self.has_missing else -1
        return texts(column).codes_in(map(text_of, self.levels), empty)

    def encode(self, cells: Cells) -> tuple[list[Cells], list[Vector]]:
        """Return the codes, and an empty list of numbers."""
        return [cells], []


# --- column statistics of one client --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """Count ``n``, mean and sum of squared deviations ``m2`` of the nonempty cells of a column."""

    kind: ClassVar[Kind] = "number"
    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    missing: int = 0

    def is_valid(self) -> bool:
        """Return whether the values are possible: counts, and finite numbers with ``m2 >= 0``."""
        counts = is_count(self.n) and is_count(self.missing)
        return counts and is_finite(self.mean) and is_finite(self.m2) and self.m2 >= 0


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """Number of rows of each level of a column, and number of empty cells."""

    kind: ClassVar[Kind] = "category"
    counts: Mapping[str, int]
    missing: int = 0

    @property
    def n(self) -> int:
        """Number of nonempty cells."""
        return sum(self.counts.values())

    def is_valid(self) -> bool:
        """Return whether levels are texts and all counts are nonnegative integers."""
        are_texts = all(isinstance(level, str) for level in self.counts)
        return are_texts and all(map(is_count, (*self.counts.values(), self.missing)))


Summary: TypeAlias = NumberSummary | CategorySummary


@dataclass(frozen=True, slots=True)
class Statistics:
    """Summary of each column of one client, in the column order of its table."""

    columns: Mapping[str, Summary]


def summarise(frame: Frame, columns: Sequence[str]) -> Statistics:
    """Summarise the named columns of one client's rows."""
    frame = named_columns(frame)
    check_columns(frame, columns)
    return Statistics({name: summarise_cells(name, cells_of(frame[name])) for name in columns})


def summarise_cells(name: str, cells: Vector | Texts) -> Summary:
    """Summarise one column's cells."""
    if isinstance(cells, Texts):
        counts = {level: count for level, count in cells.counts().items() if count}
        return CategorySummary(counts, int((cells.codes < 0).sum()))
    known = cells[~np.isnan(cells)]
    missing = cells.size - known.size
    if not known.size:
        return NumberSummary(missing=missing)
    with np.errstate(over="ignore", invalid="ignore"):
        # Subtract the first value, so that m2 of a constant column is exactly 0.
        shifted = known - known[0]
        centre = shifted.mean()
        m2 = float(np.square(shifted - centre).sum())
    if not np.isfinite(m2):
        raise DataError(f"Column {name!r} has values too large to standardise. Rescale or drop it.")
    return NumberSummary(known.size, float(known[0] + centre), m2, missing)


def merge_numbers(parts: Iterable[NumberSummary]) -> NumberSummary:
    """Return the summary of the pooled cells (update of Chan, Golub and LeVeque)."""

    def merge_two(a: NumberSummary, b: NumberSummary) -> NumberSummary:
        missing = a.missing + b.missing
        if a.n == 0 or b.n == 0:
            return replace(b if a.n == 0 else a, missing=missing)
        n = a.n + b.n
        shift = b.mean - a.mean
        m2 = a.m2 + b.m2 + shift * shift * (a.n * b.n / n)
        return NumberSummary(n, a.mean + shift * (b.n / n), m2, missing)

    return reduce(merge_two, parts, NumberSummary())


# --- all columns ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schema:
    """Encodings of the feature columns, in order, and notes about them for the user."""

    columns: tuple[Number | Category, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def from_statistics(
        cls, statistics: Mapping[ClientId, Statistics], max_levels: int = MAX_LEVELS
    ) -> "Schema":
        """Compute one encoding for all clients from their statistics.

        The encoding does not depend on the order of the clients. Up to rounding, it is the same
        as for the pooled table.
        """
        if not statistics:
            raise ValueError("`statistics` must hold at least one client, got none.")
        clients = sorted(statistics)
        names = list(statistics[clients[0]].columns)
        for client in clients:
            differing = sorted(set(names) ^ set(statistics[client].columns))
            if differing:
                raise DataError(
                    f"Clients {clients[0]!r} and {client!r} must have the same columns, but only "
                    f"one of them has {', '.join(map(repr, differing[:5]))}. Rename, add or drop "
                    "columns."
                )
        columns, notes = [], []
        for name in names:
            parts = {client: statistics[client].columns[name] for client in clients}
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
        """Number of features."""
        return len(self.feature_names)

    @property
    def is_sparse(self) -> bool:
        """Whether most features are zero, given that a row sets one feature of each column."""
        return 2 * len(self.columns) < self.n_features

    @property
    def layout(self) -> FeatureLayout:
        """Positions of codes and numbers among the features."""
        coded, numbers, start = [], [], 0
        for column in self.columns:
            is_number = column.kind == "number"
            n_codes = len(column.feature_names) - is_number  # a number has at most an indicator
            if is_number:
                numbers.append(start)
            if n_codes:
                coded.append((start + is_number, n_codes))
            start += is_number + n_codes
        firsts, widths = zip(*coded, strict=True) if coded else ((), ())
        return FeatureLayout(start, firsts, widths, tuple(numbers))

    def transform(self, frame: Frame) -> Features:
        """Encode a table as `CodedFeatures` if `is_sparse`, otherwise as an ndarray."""
        return self.encode(self.read(frame), len(frame))

    def read(self, frame: Frame) -> list[Cells]:
        """Return the cells of each column of a table, not yet standardised."""
        frame = named_columns(frame)
        check_columns(frame, [column.name for column in self.columns])
        return [column.read(frame[column.name]) for column in self.columns]

    def encode(self, cells: Sequence[Cells], n_rows: int) -> Features:
        """Encode cells as features."""
        parts = [column.encode(part) for column, part in zip(self.columns, cells, strict=True)]
        codes = [part for of_column, _ in parts for part in of_column]
        standard = [part for _, of_column in parts for part in of_column]
        X = code_cells(self.layout, codes, standard, n_rows)
        return X if self.is_sparse else X.toarray()

    def to_dict(self) -> dict[str, object]:
        """Return the schema as a dict of JSON values."""
        columns = [{"kind": part.kind, **msgspec.to_builtins(part)} for part in self.columns]
        return {"columns": columns, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Schema":
        """Return the schema stored by ``to_dict``."""
        kinds: Any = {"number": Number, "category": Category}
        columns = [msgspec.convert(entry, kinds[entry["kind"]]) for entry in plain["columns"]]
        return cls(tuple(columns), tuple(plain.get("notes", ())))


def _agree(
    name: str, parts: Mapping[ClientId, Summary], max_levels: int
) -> tuple[Number | Category | None, str | None]:
    """Return the encoding of a column, or None if it is left out, and an optional note."""
    check_one_kind(
        name, {client: part.kind for client, part in parts.items() if part.n}, "at client"
    )
    filled = [part for part in parts.values() if part.n]
    if not filled:
        return None, f"Column {name!r} {EMPTY} and was left out."
    has_missing = any(part.missing for part in parts.values())
    if isinstance(filled[0], CategorySummary):
        counts: Counter[str] = Counter()
        for part in filled:
            counts.update(part.counts if isinstance(part, CategorySummary) else {})
        return _category(name, dict(sorted(counts.items())), has_missing, max_levels)
    total = merge_numbers(part for part in filled if isinstance(part, NumberSummary))
    scale = math.sqrt(total.m2 / total.n)
    if scale > 0:
        return Number(name, total.mean, scale, has_missing), None
    level = text_of(total.mean)
    if not has_missing:
        return None, _constant(name, level)
    note = f"Column {name!r} is {level} or empty and is used as a category."
    return Category(name, (level,), True), note


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
    """Return a note if a text column has mostly numbers, or None."""
    values, cells = parsed(tuple(counts)), np.array(list(counts.values()))
    known = np.isfinite(values)
    n_known, n_cells = int(cells[known].sum()), int(cells.sum())
    is_likely = n_known >= max(_MIN_NUMBERS, _MOSTLY * n_cells)
    if known.all() or not is_likely or len(np.unique(values[known])) < _MIN_DISTINCT:
        return None
    others = [repr(level) for level, is_one in zip(counts, known, strict=True) if not is_one]
    return (
        f"Column {name!r} is taken as text because of {first_of(others, 1)}; {n_known} of "
        f"{n_cells} cells are numbers. If it is a number, correct the others or leave them empty."
    )


def _constant(name: str, value: str) -> str:
    return f"Column {name!r} is {value!r} in every training row and was left out."
