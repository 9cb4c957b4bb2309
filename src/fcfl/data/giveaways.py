"""Columns that say the label outright, found before anything is trained."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector

from ._cells import Texts

NEARLY = 0.05  # errors of guessing by the column alone, as a share of those of a constant guess
_LEAST_ROWS = 10  # rows with each label, below which agreement may be chance
_SAMPLE = 2_000  # rows by which most columns are found to say little

Giveaway = Literal["certain", "likely"]


def giveaway(cells: Vector | Texts, y: Vector) -> Giveaway | None:
    """Whether a column says the label: in every row, in nearly every row, or not.

    Text is judged by leaving each row out: its label is guessed from the other rows of its level,
    so that an identifier says nothing. A number is judged by its best threshold. An empty cell is
    a level, and a number below all others: what is filled in for one label only says it too.
    """
    positive = int(y.sum())
    fewest = min(positive, y.size - positive)
    if fewest < _LEAST_ROWS:
        return None
    if y.size > 2 * _SAMPLE:
        rows = np.linspace(0, y.size - 1, _SAMPLE).astype(np.intp)
        some = Texts(cells.codes[rows], cells.levels) if isinstance(cells, Texts) else cells[rows]
        errors, _ = _errors(some, y[rows])
        part = int(y[rows].sum())
        if errors > 2 * NEARLY * min(part, _SAMPLE - part) + 1:
            return None
    errors, is_pure = _errors(cells, y)
    if errors > NEARLY * fewest:
        return None
    return "certain" if is_pure else "likely"


def _errors(cells: Vector | Texts, y: Vector) -> tuple[int, bool]:
    """Rows that are guessed wrongly, and whether equal cells always have equal labels."""
    if isinstance(cells, Texts):
        return _by_level(cells.codes + 1, y)
    filled = np.where(np.isnan(cells), -np.inf, cells)
    return _by_threshold(filled, y)


def _by_level(codes: NDArray[np.integer], y: Vector) -> tuple[int, bool]:
    rows = np.bincount(codes)
    ones = np.bincount(codes, weights=y, minlength=rows.size)
    zeros = rows - ones
    others_mostly = float(y.mean() >= 0.5)  # the guess where a level has no other row
    wrong = 0.0
    for own, other, label in ((ones, zeros, 1.0), (zeros, ones, 0.0)):
        left = own - 1  # rows of the level with this label, without the one that is guessed
        alone = (rows == 1) & (own == 1)
        misled = np.where(alone, others_mostly != label, left <= other)
        wrong += float((own * misled).sum())
    return int(wrong), bool(((ones == 0) | (zeros == 0)).all())


def _by_threshold(values: Vector, y: Vector) -> tuple[int, bool]:
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), y.size - 1)
    ones = np.append(0.0, np.cumsum(y[order])[ends])  # at or below each distinct value
    below = np.append(0.0, ends + 1.0)
    rising = ones + (y.size - below) - (ones[-1] - ones)  # ones below, zeros above
    errors = int(min(rising.min(), (y.size - rising).min()))
    return errors, errors == 0
