"""Cells that say "nothing here": ``?`` and other usual marks count as empty."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ._cells import Column, Frame, add_note, parsed

USUAL = ("?", "??", "-", "--", ".", "..", "na", "n.a.", "N.A.", "#NULL!", "(null)", "missing")
"""Marks beside those of pandas (an empty cell, NA, N/A, NaN, null, None …), which always count."""
_ADVICE = " Others: `--missing TEXT,…`."
_TRUTH = {"true": "True", "false": "False"}


def without_marks(frame: Frame, marks: Sequence[str] | None, text: Sequence[str]) -> Frame:
    """The table with empty cells for marks; by default for the usual ones in columns of text.

    What is left of a column may be numbers, and then is, save for the columns in ``text``. A note
    has the counts. Marks that are given count in columns of numbers too.
    """
    changed: dict[str, object] = {}
    found: dict[str, int] = {}
    seen: set[str] = set()
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            is_mark = _in_numbers(column, marks)
            if is_mark.any():
                changed[name] = column.mask(is_mark)
                seen |= {f"{float(value):g}" for value in column[is_mark].unique()}
                found[str(name)] = int(is_mark.sum())
            continue
        codes, levels = pd.factorize(column)
        words = [level.strip() if isinstance(level, str) else level for level in levels]
        known = _marks_of(words, marks)
        is_level = np.array([word not in known for word in words], dtype=bool)
        if not is_level.all():
            seen |= {str(word) for word in words if word in known}
            found[str(name)] = int((~is_level)[codes][codes >= 0].sum())
            changed[name] = _without(codes, words, is_level, stays=name in text)
    if not changed:
        return frame
    cleaned = frame.assign(**changed)
    listed = " or ".join(repr(mark) for mark in sorted(seen))
    counts = ", ".join(f"{name!r} {count:,}" for name, count in found.items())
    add_note(cleaned, f"Cells with {listed} count as empty: {counts}.{_ADVICE}")
    return cleaned


def without_advice(notes: Iterable[str]) -> tuple[str, ...]:
    """The same notes for a command that has no such option."""
    return tuple(note.removesuffix(_ADVICE) for note in notes)


def _marks_of(words: Sequence[object], marks: Sequence[str] | None) -> set[str]:
    """The marks that count in a column; beside ``+``, a ``-`` is a level like it."""
    if marks is not None:
        return set(marks)
    return set(USUAL) - {"-"} if "+" in words else set(USUAL)


def _in_numbers(column: Column, marks: Sequence[str] | None) -> Any:
    numbers = [value for value in parsed(tuple(marks or ())) if np.isfinite(value)]
    is_plain = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return column.isin(numbers) if numbers and is_plain else np.zeros(len(column), dtype=bool)


def _without(codes: Any, words: Sequence[Any], is_level: Any, *, stays: bool) -> Any:
    """The column without marks; its other cells are numbers or truth values where all are."""
    kept = [word for word, is_kept in zip(words, is_level, strict=True) if is_kept]
    place = np.append(np.where(is_level, np.cumsum(is_level) - 1, -1), -1)[codes]
    values = parsed([str(word) for word in kept])
    if not stays and kept and np.isfinite(values).all():
        return np.append(values, np.nan)[place]
    names = [str(word) for word in kept]
    if all(name.lower() in _TRUTH for name in names):
        names = [_TRUTH[name.lower()] for name in names]
    levels = list(dict.fromkeys(names))
    again = np.array([*(levels.index(name) for name in names), -1], dtype=np.int32)[place]
    return pd.Categorical.from_codes(again, levels)
