"""Which columns become features, and as what: found by looking at them, said before training."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fcfl._checks import did_you_mean, first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from ._cells import Column, Frame, Texts, add_note, factorize, numbers, texts
from .giveaways import giveaway
from .roles import Columns, check_roles, label_pair

_MANY = 20  # rows from which on a column that never repeats is an identifier
_FEW_VALUES = 20  # distinct whole numbers that may be codes,
_EACH = 10  # each of which stands in so many rows on average
_FIRST = 5_000  # rows by which most columns are found to be neither
_TAIL, _FILLED = 0.05, 0.5  # the bulk of a column's values, and the share that counts fill
_EXACT = 2.0**53  # integers that float64 has
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_ID_NAMES = {
    "id", "ids", "uid", "uuid", "guid", "key", "identifier", "index", "idx", "rowid", "mrn", "ssn",
}  # fmt: skip
_CODE_NAMES = {"code", "codes", "zip", "zipcode", "postcode", "postal", "plz", "icd", "fips", "sic"}
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
)


@dataclass(frozen=True)
class Choices:
    """What the user says about columns.

    Parameters
    ----------
    features : the only columns to use; none are left out of them
    keep : columns to use though they would be left out
    categorical, numeric : columns whose values are codes, or numbers, whatever they look like
    """

    features: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()

    def check(self, frame: Frame, columns: Columns) -> None:
        """Refuse names that the table does not have, or that have another role."""
        roles = {name: role for role, name in columns.roles()}
        for option in ("features", "keep", "categorical", "numeric"):
            for name in getattr(self, option):
                if name not in frame.columns:
                    raise DataError(
                        f"`{option}` must name columns of the table, got {name!r}. "
                        f"{did_you_mean(name, frame.columns)}"
                    )
                if name in roles:
                    raise DataError(
                        f"Column {name!r} must have one role, got `{roles[name]}` and `{option}`."
                    )
        both = [name for name in self.categorical if name in self.numeric]
        if both:
            raise DataError(f"Column {both[0]!r} is in `categorical` and in `numeric`; name one.")


def choose_columns(frame: Frame, columns: Columns, choices: Choices) -> tuple[Frame, Columns]:
    """The table with columns as what they are used as, and those left out among the dropped.

    Left out are identifiers, dates and columns that say the label in every row; what else a person
    should know before training is a note, too.
    """
    check_roles(frame, columns)
    choices.check(frame, columns)
    typed = {name: _as_text(frame[name]) for name in choices.categorical}
    typed |= {name: numbers(frame[name]) for name in choices.numeric}
    frame = frame.assign(**typed) if typed else frame
    candidates = [str(name) for name in frame.columns if str(name) not in columns.names]
    if choices.features:
        others = tuple(name for name in candidates if name not in choices.features)
        return frame, replace(columns, drop=(*columns.drop, *others))
    looked = _Look(frame, columns, candidates, choices)
    for sentence in looked.notes():
        add_note(frame, sentence)
    return frame, replace(columns, drop=(*columns.drop, *looked.left_out))


def unsuitable_columns(frame: Frame, columns: Columns) -> tuple[str, ...]:
    """Sentences on what `choose_columns` would leave out or warn of, where all of it is used."""
    names = [str(name) for name in frame.columns if str(name) not in columns.names]
    return tuple(_Look(frame, columns, names, Choices()).warnings())


class _Look:
    """What is found in the columns that could be features."""

    def __init__(
        self, frame: Frame, columns: Columns, candidates: Sequence[str], choices: Choices
    ) -> None:
        self.keep, self.label = set(choices.keep), columns.label
        identifiers = [n for n in candidates if _is_identifier(frame[n])]
        dates = [n for n in candidates if _is_date(frame[n])]
        rest = [n for n in candidates if n not in (*identifiers, *dates)]
        y = _labels(frame, columns)
        told = {} if y is None else {n: giveaway(_cells(frame[n]), y) for n in rest}
        certain = [n for n, found in told.items() if found == "certain"]
        self.likely = [n for n, found in told.items() if found == "likely"]
        self.unsuitable = {
            "identifiers, with another value in every row": identifiers,
            "dates": dates,
            f"columns that give the label {self.label!r} away in every row": certain,
        }
        decided = (*choices.categorical, *choices.numeric, *certain)
        self.codes = [n for n in rest if n not in decided and _may_be_codes(frame[n])]
        self.empty = {n: int(frame[n].isna().sum()) for n in rest if n not in self.left_out}

    @property
    def left_out(self) -> tuple[str, ...]:
        found = (name for names in self.unsuitable.values() for name in names)
        return tuple(name for name in found if name not in self.keep)

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each kind of column that is used but perhaps should not be."""
        likely = f"columns that give the label {self.label!r} away in nearly every row"
        for what, names in {**self.unsuitable, likely: self.likely}.items():
            if names:
                yield (
                    f"Used as features although they are {what}: {_quoted(names)}. A run over "
                    "sites leaves out only the columns in its `drop`."
                )

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each kind of finding."""
        for what, names in self.unsuitable.items():
            gone = [name for name in names if name not in self.keep]
            if gone:
                yield f"Left out as {what}: {_quoted(gone)} (`keep={gone}` uses them)."
        if self.likely:
            yield (
                f"The label {self.label!r} is given away in nearly every row by each of "
                f"{_quoted(self.likely)}. Leave out what is not known when deciding "
                f"(`drop={self.likely}`)."
            )
        if self.codes:
            yield (
                f"Used as numbers: {_quoted(self.codes)}, which may be codes by their name or by "
                f"few integers for their range (`categorical={self.codes}` makes one feature of "
                f"each value, `numeric={self.codes}` keeps numbers without this note)."
            )
        counts = [f"{name!r} {count:,}" for name, count in self.empty.items() if count]
        if counts:
            yield f"Empty cells: {first_of(counts)}. That a cell is empty is used."


def _labels(frame: Frame, columns: Columns) -> Vector | None:
    """The label as 0 and 1; None where it is not fit to be one, which is said elsewhere."""
    found = texts(frame[columns.label])
    if len(found.levels) != 2 or (found.codes < 0).any():
        return None
    positive = found.levels.index(label_pair(found.levels, columns)[1])
    return np.asarray(found.codes == positive, dtype=np.float64)


def _cells(column: Column) -> Vector | Texts:
    if not _is_number(column):
        return texts(column)
    values = numbers(column)
    if len(pd.unique(values[:_FIRST])) > _FEW_VALUES:
        return values
    codes, levels = pd.factorize(values)
    if len(levels) > _FEW_VALUES:
        return values
    return Texts(codes.astype(np.int32), tuple(map(str, levels)))


def _is_number(column: Column) -> bool:
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(column) and not kinds.is_bool_dtype(column))


def _is_identifier(column: Column) -> bool:
    """Text, or whole numbers that count rows or are named so, with no value twice."""
    codes, values = factorize(column[:_FIRST])
    if len(column) < _MANY or len(values) < len(codes) or column.isna().any():
        return False
    if not column.is_unique or pd.api.types.is_datetime64_any_dtype(column):
        return False
    if not _is_number(column):
        return not _is_date(column)
    values = column.to_numpy(dtype=np.float64)
    if not (values == np.floor(values)).all():
        return False
    counts_rows = values.max() - values.min() == len(values) - 1
    return bool(_is_named(column, _ID_NAMES) or (counts_rows and column.dtype.kind in "iu"))


def _is_date(column: Column) -> bool:
    if pd.api.types.is_datetime64_any_dtype(column):
        return True
    if _is_number(column) or pd.api.types.is_bool_dtype(column):
        return False
    first = column[:_FIRST].dropna().unique()
    if not len(first) or not all(map(_looks_like_date, first)):
        return False
    return all(map(_looks_like_date, column.dropna().unique()))


def _looks_like_date(cell: object) -> bool:
    if isinstance(cell, str):
        return _DATE.fullmatch(cell.strip()) is not None
    return hasattr(cell, "isoformat")


def _may_be_codes(column: Column) -> bool:
    """Whether a column of numbers may be one of codes, by its name or by its values.

    The values are few integers, or less than half of those in their range, and recur. Counts and
    ages fill their range; amounts hardly recur, or most of them are 0.
    """
    if not _is_number(column):
        return False
    if _is_named(column, _ID_NAMES | _CODE_NAMES):
        return True
    first = column[:_FIRST].dropna().to_numpy(dtype=np.float64)
    if not (np.abs(first) < _EXACT).all() or (first != np.floor(first)).any():
        return False
    counts = column.value_counts()
    values = counts.index.to_numpy(dtype=np.float64)
    is_whole = (np.abs(values) < _EXACT) & (values == np.floor(values))
    if not is_whole.all() or values.size <= 2 or counts.sum() < _EACH * values.size:
        return False
    if values.size <= _FEW_VALUES:
        return True
    if values[0] == 0 and 2 * counts.iloc[0] > counts.sum():
        return False
    low, high = column.quantile([_TAIL, 1 - _TAIL])  # outliers say nothing of the range
    bulk = np.sort(values[(values >= low) & (values <= high)]).astype(np.int64)
    steps = np.diff(bulk)
    return bool(bulk.size > 2 and bulk.size < _FILLED * (steps.sum() / np.gcd.reduce(steps) + 1))


def _is_named(column: Column, names: set[str]) -> bool:
    return not names.isdisjoint(word.lower() for word in _WORD.findall(str(column.name)))


def _as_text(column: Column) -> Column:
    found = texts(column)
    return pd.Series(
        pd.Categorical.from_codes(found.codes, list(found.levels)),
        index=column.index,
        name=column.name,
    )


def _quoted(names: Sequence[str]) -> str:
    return first_of(map(repr, names))
