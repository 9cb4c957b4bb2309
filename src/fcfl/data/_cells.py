"""The cells of a table: a column is numbers or text, whatever its pandas type."""

import numbers as abstract
import re
import unicodedata
from collections.abc import Iterable, Sequence
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

_NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "empty"}
_TEXT = {"string", "boolean", "categorical", "mixed", "mixed-integer"}
_WHOLE_FLOAT = re.compile(r"(-?\d+)\.0+")


@dataclass(frozen=True, slots=True)
class Texts:
    """A column as text: one code per row into sorted ``levels``, -1 where the cell is empty."""

    codes: Codes
    levels: tuple[str, ...]


def add_note(frame: Frame, sentence: str) -> None:
    """Keep a sentence about the table for the user."""
    frame.attrs[NOTES] = (*frame.attrs.get(NOTES, ()), sentence)


def named_columns(frame: Frame) -> Frame:
    """Return the frame with its column names as text without outer spaces, all different."""
    renamed = frame.rename(columns=lambda name: str(name).strip())
    check_names(renamed.columns)
    return renamed


def check_names(names: Iterable[str], path: Path | None = None) -> None:
    """Raise if two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            where = "the table" if path is None else repr(str(path))
            raise DataError(f"Column {name!r} occurs twice in {where}. Rename one.")
        seen.add(name)


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


def check_columns(frame: Frame, names: Sequence[str]) -> None:
    """Refuse a frame without one of the named columns."""
    absent = [name for name in names if name not in frame.columns]
    if absent:
        listed = ", ".join(repr(name) for name in absent)
        what = "column" if len(absent) == 1 else "columns"
        raise DataError(f"The table has no {what} {listed}. {did_you_mean(absent[0], frame)}")


def kind_of(column: Column) -> Kind:
    """Say whether a column holds numbers or text; true-or-false columns count as text."""
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
    what = "dates or times" if re.match("date|time|period", content) else f"{content} values"
    raise DataError(
        f"Column {column.name!r} holds {what}, which cannot be used as they are. "
        "Convert it to a number, for example days since a fixed day, or drop it."
    )


def text_of(value: object) -> str:
    """Return the text of one cell, without spaces around it; whole floats lose their ``.0``.

    Text that is a whole float does too, so that ``0`` and ``0.0`` are one level in any table.
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
    position = {level: code for code, level in enumerate(levels)}
    # The last entry is where a code of -1, an empty cell, points.
    lookup = np.array([position.get(name, -1) for name in names] + [-1], dtype=np.int32)
    return Texts(lookup[codes], tuple(levels))


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


def cells_of(column: Column) -> "Vector | Texts":
    """Read a column as what it holds, numbers or text."""
    return numbers(column) if kind_of(column) == "number" else texts(column)


UNKNOWN_IS_EMPTY = "Leave the cell empty if the value is unknown."


def numbers(column: Column, advice: str = UNKNOWN_IS_EMPTY) -> Vector:
    """Read a column as finite numbers, NaN where the cell is empty.

    Raise with the ``advice`` if a cell holds other text.
    """
    if kind_of(column) == "number":
        values = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = _parse(column, advice)
    n_infinite = int(np.isinf(values).sum())
    if n_infinite:
        raise DataError(
            f"Column {column.name!r} has {n_infinite} infinite "
            f"{'value' if n_infinite == 1 else 'values'}. Replace them by numbers or leave "
            "the cells empty."
        )
    return np.asarray(values, dtype=np.float64)


def parsed(levels: Sequence[str]) -> Vector:
    """The numbers that texts stand for, NaN where they stand for none."""
    values = pd.to_numeric(pd.Series(levels, dtype=object), errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64))


def _parse(column: Column, advice: str) -> Vector:
    found = texts(column)
    values = parsed(found.levels)
    bad = np.flatnonzero(np.isnan(values))
    if bad.size:
        raise DataError(
            f"Column {column.name!r} must hold numbers, got {found.levels[bad[0]]!r}. {advice}"
        )
    return np.append(values, np.nan)[found.codes]
