"""Which columns become features, and as what: found by looking at them, said before training."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fcfl._checks import did_you_mean
from fcfl._types import Vector
from fcfl.errors import DataError

from ._cells import Column, Frame, Texts, add_note, numbers, texts
from .giveaways import giveaway, listed
from .roles import Columns, check_roles, label_pair

_MANY = 20  # rows from which on a column that never repeats is an identifier
_FEW_VALUES = 20  # distinct whole numbers that may be codes,
_EACH = 10  # each of which stands in so many rows on average
_FIRST = 5_000  # rows by which most columns are found to be neither
_SHOWN = 10
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
        self.frame, self.keep = frame, set(choices.keep)
        kinds = {*choices.categorical, *choices.numeric}
        self.identifiers = [n for n in candidates if _is_identifier(frame[n])]
        self.dates = [n for n in candidates if _is_date(frame[n])]
        rest = [n for n in candidates if n not in (*self.identifiers, *self.dates)]
        y = _labels(frame, columns)
        said = {} if y is None else {n: giveaway(_cells(frame[n]), y) for n in rest}
        self.certain = [n for n, found in said.items() if found == "certain"]
        self.likely = [n for n, found in said.items() if found == "likely"]
        self.codes = [
            n for n in rest if n not in (*kinds, *self.certain) and _may_be_codes(frame[n])
        ]
        self.empty = {n: int(frame[n].isna().sum()) for n in rest if n not in self.left_out}
        self.label = columns.label

    @property
    def left_out(self) -> tuple[str, ...]:
        found = (*self.identifiers, *self.dates, *self.certain)
        return tuple(name for name in found if name not in self.keep)

    def _reasons(self) -> tuple[tuple[list[str], str], ...]:
        return (
            (self.identifiers, "another value in every row: an identifier"),
            (self.dates, "dates"),
            (self.certain, f"a value that says the label {self.label!r} in every row"),
        )

    def warnings(self) -> Iterator[str]:
        """A sentence for each kind of column that is used though it should perhaps not be."""
        likely = f"a value that alone says the label {self.label!r} in nearly every row"
        for names, what in (*self._reasons(), (self.likely, likely)):
            if names:
                yield (
                    f"{_columns(names)} {_has(names, what)}. All columns are used over sites; "
                    f"the run leaves out those in its `drop`."
                )

    def notes(self) -> Iterator[str]:
        """A sentence for each kind of finding."""
        for names, what in self._reasons():
            gone = [name for name in names if name not in self.keep]
            if gone:
                yield (
                    f"{_columns(gone)} {_has(gone, what)}, and {_was(gone)} left out. Keep with "
                    f"`--keep {listed(gone)}`."
                )
        if self.likely:
            yield (
                f"{_columns(self.likely)} alone {_says(self.likely)} the label {self.label!r} in "
                "nearly every row. If that is not known when deciding, leave out with "
                f"`--drop {listed(self.likely)}`."
            )
        if self.codes:
            yield (
                f"{_columns(self.codes)} {_holds(self.codes)} few whole numbers or "
                f"{'is' if len(self.codes) == 1 else 'are'} named like a code, used as numbers. "
                f"If they are codes: `--categorical {listed(self.codes)}`; if not, `--numeric` "
                "says so."
            )
        counts = [f"{name!r} {count:,}" for name, count in self.empty.items() if count]
        if counts:
            more = f" and {len(counts) - _SHOWN} more columns" if len(counts) > _SHOWN else ""
            yield f"Empty cells: {', '.join(counts[:_SHOWN])}{more}. That a cell is empty is used."


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
    if len(column) < _MANY or column[:_FIRST].duplicated().any() or column.isna().any():
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
    """Whether a column of numbers may be one of codes: few whole numbers, or named so."""
    if not _is_number(column):
        return False
    if _is_named(column, _ID_NAMES | _CODE_NAMES):
        return True
    known = column.dropna()
    if len(pd.unique(known[:_FIRST])) > _FEW_VALUES:
        return False
    values = np.asarray(pd.unique(known), dtype=np.float64)
    is_few = 2 < values.size <= _FEW_VALUES and len(known) >= _EACH * values.size
    return bool(is_few and (values == np.floor(values)).all())


def _is_named(column: Column, names: set[str]) -> bool:
    return not names.isdisjoint(word.lower() for word in _WORD.findall(str(column.name)))


def _as_text(column: Column) -> Column:
    found = texts(column)
    return pd.Series(
        pd.Categorical.from_codes(found.codes, list(found.levels)),
        index=column.index,
        name=column.name,
    )


def _columns(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names)
    return f"Column {shown}" if len(names) == 1 else f"Columns {shown}"


def _has(names: Sequence[str], what: str) -> str:
    return f"{'has' if len(names) == 1 else 'have'} {what}"


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"


def _says(names: Sequence[str]) -> str:
    return "says" if len(names) == 1 else "each say"


def _holds(names: Sequence[str]) -> str:
    return "holds" if len(names) == 1 else "hold"
