"""The cells of a table: every column is numbers or text, whatever its pandas type.

`interpret` reads cells as people write them: marks for "unknown", numbers with ``%`` or ``1,000``.
Every column is judged by its distinct values, so reading is linear in the rows.
"""

import numbers as abstract
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from fcfl._checks import did_you_mean, first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from .client_data import Codes

Kind = Literal["number", "category"]
Frame: TypeAlias = Any  # a pandas.DataFrame; pandas is untyped
Column: TypeAlias = Any  # a pandas.Series

NOTES = "notes"  # key in a frame's `attrs`: sentences about how it was read
UNKNOWN_IS_EMPTY = "Leave the cell empty if the value is unknown."
MARKS = ("?", "??", "-", "--", ".", "..", "na", "n.a.", "N.A.", "#NULL!", "(null)", "missing")
"""Marks of an empty cell beside those of pandas (NA, N/A, NaN, null, None …)."""

_NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "empty"}
_TEXT = {"string", "boolean", "categorical", "mixed", "mixed-integer"}
_WHOLE_FLOAT = re.compile(r"(-?\d+)\.0+")
_BETWEEN = "'\u2019 \u00a0\u202f"  # between groups of three digits, beside the comma or the point
_OTHER = {".": ",", ",": "."}
_WRITTEN = {
    decimal: re.compile(rf"[+-]?(\d+|\d{{1,3}}([{other}{_BETWEEN}]\d{{3}})+)([{decimal}]\d+)?")
    for decimal, other in _OTHER.items()
}
_PLAIN = {
    ".": str.maketrans("", "", _BETWEEN + ","),
    ",": str.maketrans(",", ".", _BETWEEN + "."),
}


@dataclass(frozen=True, slots=True)
class Texts:
    """A column as text: one code per row into sorted ``levels``, -1 where the cell is empty."""

    codes: Codes
    levels: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each level."""
        rows = np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))
        return dict(zip(self.levels, rows.tolist(), strict=True))

    def codes_in(self, levels: Iterable[str], empty: int = -1) -> Codes:
        """Return codes into other ``levels``: ``empty`` for an empty cell, -1 for other levels."""
        position = {level: code for code, level in enumerate(levels)}
        lookup = [position.get(level, -1) for level in self.levels]
        return np.array([*lookup, empty], dtype=np.int32)[self.codes]  # code -1 is the last entry


# --- tables ---------------------------------------------------------------------------------------


def add_note(frame: Frame, sentence: str) -> None:
    """Add a sentence for the user to the table's notes."""
    frame.attrs[NOTES] = (*frame.attrs.get(NOTES, ()), sentence)


def named_columns(frame: Frame) -> Frame:
    """Return the frame with its column names as text without outer spaces, all different."""
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
    """Raise `DataError` if the table lacks a column; ``role`` is the option that names it."""
    for name in names:
        if name not in frame.columns:
            what = (
                f"The table has no column {name!r}"
                if role is None
                else f"`{role}` must be a column of the table, got {name!r}"
            )
            raise DataError(f"{what}. {did_you_mean(name, frame.columns)}")


def look_alikes(levels: Iterable[str]) -> str:
    """Return a clause on levels that differ only by case or spaces, empty if there are none."""
    alike: dict[str, list[str]] = {}
    for level in levels:
        key = "".join(unicodedata.normalize("NFKC", level).casefold().split())
        alike.setdefault(key, []).append(level)
    found = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
    return f"{first_of(found)} differ only by case or spaces" if found else ""


def alike_notes(whose: str, levels: Iterable[str]) -> list[str]:
    """Return a note on levels that differ only by case or spaces, or none."""
    alike = look_alikes(levels)
    return [f"{whose} {alike} and are kept apart. Write equal ones alike."] if alike else []


# --- columns --------------------------------------------------------------------------------------


def kind_of(column: Column) -> Kind:
    """Return whether a column holds numbers or text; true-or-false columns count as text."""
    dtype = column.dtype
    if isinstance(dtype, pd.StringDtype) or pd.api.types.is_bool_dtype(dtype):
        return "category"
    if pd.api.types.is_numeric_dtype(dtype) and dtype.kind in "iuf":
        return "number"
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


def text_of(value: object) -> str:
    """Return the text of one cell, without spaces around it; whole floats lose their ``.0``.

    Text that is a whole float loses it too: ``0`` and ``0.0`` are one level in any table.
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
    """Read a column as text. The loop is over distinct values, not over rows."""
    codes, uniques = factorize(column)
    names = [text_of(value) for value in uniques]
    levels = sorted(set(names) - {""})
    return Texts(Texts(codes, tuple(names)).codes_in(levels), tuple(levels))


def cell_texts(column: Column) -> list[str | None]:
    """Return each cell as clients and groups are read, None where it is empty."""
    found = texts(column)
    return [None if code < 0 else found.levels[code] for code in found.codes]


def factorize(column: Column) -> tuple[Any, Any]:
    """Return a code per row, -1 where it is empty, and the distinct values."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:
        raise DataError(
            f"Column {column.name!r} holds lists or other nested values. "
            "Split it into plain columns or drop it."
        ) from None
    return codes, values


def cells_of(column: Column) -> Vector | Texts:
    """Read a column as numbers or text, by what it holds."""
    return numbers(column) if kind_of(column) == "number" else texts(column)


def numbers(column: Column, advice: str = UNKNOWN_IS_EMPTY) -> Vector:
    """Read a column as finite numbers, NaN where the cell is empty.

    Raise `DataError` with the ``advice`` if a cell holds other text.
    """
    if kind_of(column) == "number":
        values = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        found = texts(column)
        values = parsed(found.levels)
        bad = np.flatnonzero(np.isnan(values))
        if bad.size:
            raise DataError(
                f"Column {column.name!r} must hold numbers, got {found.levels[bad[0]]!r}. {advice}"
            )
        values = np.append(values, np.nan)[found.codes]
    n_infinite = int(np.isinf(values).sum())
    if n_infinite:
        raise DataError(
            f"Column {column.name!r} has {n_infinite} infinite "
            f"{'value' if n_infinite == 1 else 'values'}. Replace them by numbers or leave "
            "the cells empty."
        )
    return np.asarray(values, dtype=np.float64)


def parsed(levels: Sequence[str]) -> Vector:
    """Return the numbers that texts stand for, NaN where they are no numbers."""
    values = pd.to_numeric(pd.Series(levels, dtype=object), errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64))


def is_number(column: Column) -> bool:
    """Return whether a column's type is numeric, truth values excepted."""
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(column) and not kinds.is_bool_dtype(column))


# --- cells as people write them -------------------------------------------------------------------


def interpret(
    frame: Frame,
    marks: Sequence[str] | None,
    text: Sequence[str],
    *,
    decimal: str = ".",
    is_typed: bool = False,
) -> Frame:
    """Return the table with marks as empty cells, and columns of written numbers as numbers.

    Notes have the counts and an example of every way in which numbers are written.

    Parameters
    ----------
    frame : DataFrame
    marks : texts, optional
        By default the usual ones, in columns of text. Given ones count in columns of numbers too.
    text : names of columns that stay text
    decimal : "." or ","
        The decimal mark of the file.
    is_typed : bool
        The file declares plain numbers as such, so a column of text such as ``01`` stays text.
    """
    changed: dict[str, object] = {}
    n_marks: dict[str, int] = {}
    seen: set[str] = set()
    written: dict[str, str] = {}
    numeric_marks = [value for value in parsed(tuple(marks or ())) if np.isfinite(value)]
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            if (
                numeric_marks
                and is_number(column)
                and (is_mark := column.isin(numeric_marks)).any()
            ):
                changed[name] = column.mask(is_mark)
                seen |= {f"{float(value):g}" for value in column[is_mark].unique()}
                n_marks[name] = int(is_mark.sum())
            continue
        try:
            codes, uniques = factorize(column)
        except DataError:
            continue  # nested values: an error only if the column is used
        found = Texts(codes, tuple(str(value).strip() for value in uniques))
        known = set(MARKS if marks is None else marks)
        if marks is None and "+" in found.levels:
            known.discard("-")  # beside "+" it is a level
        kept = [level for level in found.levels if level not in known]
        codes = found.codes_in(kept)
        has_marks = len(kept) < len(found.levels)
        if has_marks:
            seen |= known.intersection(found.levels)
            n_marks[name] = int((codes < 0).sum() - (found.codes < 0).sum())
        values, example = (None, None) if name in text else written_numbers(kept, decimal)
        if example is not None:
            written[name] = example
        if values is not None and (example or has_marks or not is_typed):
            changed[name] = np.append(values, np.nan)[codes]
        elif has_marks:
            if {level.lower() for level in kept} <= {"true", "false"}:
                kept = [level.capitalize() for level in kept]
            changed[name] = pd.Categorical(np.array([*kept, None], dtype=object)[codes])
    if changed:
        frame = frame.assign(**changed)
    if n_marks:
        listed = " or ".join(map(repr, sorted(seen)))
        counts = first_of(f"{name!r} {count:,}" for name, count in n_marks.items())
        add_note(frame, f"Cells with {listed} count as empty: {counts} (`missing=` names others).")
    if written:
        examples = first_of(f"{name!r} ({example})" for name, example in written.items())
        add_note(
            frame,
            f"Read as numbers: {examples} (`categorical={list(written)}` keeps the text).",
        )
    return frame


def written_numbers(words: Sequence[str], decimal: str) -> tuple[Vector | None, str | None]:
    """Return the numbers that all ``words`` are, and an example unless they are plain.

    A point or comma before three digits is a thousands mark unless it is the file's decimal mark.
    """
    is_percent = bool(words) and all(word.endswith("%") for word in words)
    bare = [word[:-1].rstrip() for word in words] if is_percent else words
    for spelled, is_plain in _spellings(bare, decimal):
        values = parsed(spelled)
        if not values.size or not np.isfinite(values).all():
            continue
        values = values / 100.0 if is_percent else values
        if is_plain and not is_percent:
            return values, None
        longest = max(range(len(words)), key=lambda place: len(words[place]))
        return values, f"{words[longest]!r} is {values[longest]:.12g}"
    return None, None


def _spellings(words: Sequence[str], decimal: str) -> Iterator[tuple[Sequence[str], bool]]:
    """Yield the words spelled as plain numbers, in each way that they may be written.

    The second value is whether this is how the file writes plain numbers.
    """
    if decimal == ".":
        yield words, True
    elif not any("." in word for word in words):
        yield [word.replace(",", ".") for word in words], True
    for mark in (decimal, _OTHER[decimal]):
        if all(map(_WRITTEN[mark].fullmatch, words)):
            yield [word.translate(_PLAIN[mark]) for word in words], False
        if mark == ",":
            yield words, False
