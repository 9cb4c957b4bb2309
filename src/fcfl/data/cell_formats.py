"""Cells of text columns as people write them: marks for "unknown", numbers with ``%`` or ``1,000``.

Every column is judged by its distinct values, so that reading is linear in the rows.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fcfl._checks import first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from ._cells import Column, Frame, add_note, factorize, parsed

USUAL = ("?", "??", "-", "--", ".", "..", "na", "n.a.", "N.A.", "#NULL!", "(null)", "missing")
"""Marks beside those of pandas (an empty cell, NA, N/A, NaN, null, None …), which always count."""
_TRUTH = {"true": "True", "false": "False"}
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
        The file declares plain numbers as such, so that a column of text such as ``01`` stays text.
    """
    changed: dict[str, object] = {}
    found: dict[str, int] = {}
    seen: set[str] = set()
    written: dict[str, str] = {}
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            is_mark = _in_numbers(column, marks)
            if is_mark.any():
                changed[name] = column.mask(is_mark)
                seen |= {f"{float(value):g}" for value in column[is_mark].unique()}
                found[str(name)] = int(is_mark.sum())
            continue
        try:
            codes, levels = factorize(column)
        except DataError:
            continue  # nested values: an error only if the column is used
        words = [one.strip() if isinstance(one, str) else one for one in np.asarray(levels, object)]
        known = _marks_of(words, marks)
        is_level = np.array([word not in known for word in words], dtype=bool)
        kept = [str(word) for word in words if word not in known]
        if not is_level.all():
            seen |= {str(word) for word in words if word in known}
            found[str(name)] = int((~is_level)[codes][codes >= 0].sum())
        place = np.append(np.where(is_level, np.cumsum(is_level) - 1, -1), -1)[codes]
        numbers, example = (None, None) if name in text else written_numbers(kept, decimal)
        if example is not None:
            written[str(name)] = example
        if numbers is not None and (example or not is_typed or not is_level.all()):
            changed[name] = np.append(numbers, np.nan)[place]
        elif not is_level.all():
            changed[name] = _levels(kept, place)
    if changed:
        frame = frame.assign(**changed)
    if found:
        listed = " or ".join(repr(mark) for mark in sorted(seen))
        counts = first_of(f"{name!r} {count:,}" for name, count in found.items())
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
    """Yield the words as plain numbers would be spelled, in each way that they may be written.

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


def _marks_of(words: Sequence[object], marks: Sequence[str] | None) -> set[str]:
    """Return the marks that count in a column; beside ``+``, a ``-`` is a level like it."""
    if marks is not None:
        return set(marks)
    return set(USUAL) - {"-"} if "+" in words else set(USUAL)


def _in_numbers(column: Column, marks: Sequence[str] | None) -> Any:
    numbers = [value for value in parsed(tuple(marks or ())) if np.isfinite(value)]
    is_plain = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return column.isin(numbers) if numbers and is_plain else np.zeros(len(column), dtype=bool)


def _levels(names: Sequence[str], place: Any) -> Any:
    """Return a column of text, or of truth values where all cells are such."""
    if all(name.lower() in _TRUTH for name in names):
        names = [_TRUTH[name.lower()] for name in names]
    codes, levels = pd.factorize(np.array(names, dtype=object))
    return pd.Categorical.from_codes(np.append(codes, -1).astype(np.int32)[place], levels)
