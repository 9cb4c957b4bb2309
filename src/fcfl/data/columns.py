"""Assign roles to columns, read labels and groups, and choose feature columns.

`choose_columns` selects the feature columns and their types, and adds a note on each decision.
"""

import re
import shlex
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._checks import did_you_mean, first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from . import cells
from .cells import Column, Frame, Texts
from .client_data import Codes, Index

MAX_NUMERIC_GROUPS = 20
_YES = {
    "yes", "y", "true", "t", "positive", "approved", "accepted", "granted", "admitted", "hired",
    "passed", "pass", "success", "present", "case", "ja", "oui", "sí", "si", "sim",
}  # fmt: skip
_NO = {
    "no", "n", "false", "f", "negative", "denied", "rejected", "refused", "declined", "failed",
    "fail", "failure", "absent", "control", "nein", "non", "não", "nao",
}  # fmt: skip
_NOT = ("not ", "not-", "no ", "non-", "non ", "un")
UNNAMED = re.compile(r"Unnamed: \d+|__index_level_\d+__|")
_MIN_ID_ROWS = 20  # minimum number of rows to treat a column without repeated values as identifier
_MAX_CODES = 20  # maximum number of distinct integers that are likely to be codes
_MIN_CODE_ROWS = 10  # minimum average number of rows per code
_SAMPLE = 5_000  # rows of a sample used to rule out most columns quickly
_TAIL, _FILLED = 0.05, 0.5  # quantile that cuts off outliers; share of the range that counts fill
_EXACT = 2.0**53  # float64 represents all integers below this
_NEARLY = 0.05  # maximum errors of a column that gives the label away, relative to a constant guess
_MIN_LABEL_ROWS = 10  # with fewer rows of either label, agreement with a column may be chance

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_ID_NAMES = {
    "id", "ids", "uid", "uuid", "guid", "key", "identifier", "index", "idx", "rowid", "mrn", "ssn",
}  # fmt: skip
_CODE_NAMES = {"code", "codes", "zip", "zipcode", "postcode", "postal", "plz", "icd", "fips", "sic"}
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
)
_OPTION = re.compile(r"`(\w+)=(\[.*?\])?`")
_ADVICE = re.compile(r" \(`\w+=.*\)")


@dataclass(frozen=True, slots=True)
class Columns:
    """Roles of the columns; columns without a role are features.

    Parameters
    ----------
    client, label : names of columns
    sensitive : names of the columns whose groups are compared
    drop : names of columns to leave out
    positive : the label value that is encoded as 1
        By default the value that means yes (true, approved, …), else the larger number, else the
        last value in sorted order.
    """

    client: str
    label: str
    sensitive: tuple[str, ...]
    drop: tuple[str, ...] = ()
    positive: str | None = None

    def __post_init__(self) -> None:
        check_one_role(self.roles())

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield (role, column)."""
        yield "client", self.client
        yield "label", self.label
        yield from (("sensitive", name) for name in self.sensitive)
        yield from (("drop", name) for name in self.drop)

    @property
    def names(self) -> list[str]:
        """Names of the columns with a role."""
        return [name for _, name in self.roles()]


def check_one_role(roles: Iterable[tuple[str, str]]) -> None:
    """Raise `DataError` if a column occurs in more than one of the pairs (role, column)."""
    seen: dict[str, str] = {}
    for role, name in roles:
        if name in seen:
            raise DataError(
                f"Column {name!r} must have one role, got `{seen[name]}` and `{role}`. "
                "Name a different column for one of them."
            )
        seen[name] = role


@dataclass(frozen=True, slots=True)
class Roles:
    """Client, label and groups of each row. Group codes are positions in ``levels``."""

    client: Texts
    y: Vector
    groups: Mapping[str, Codes]
    levels: Mapping[str, tuple[str, ...]]
    labels: tuple[str, str]


def check_roles(frame: Frame, columns: Columns) -> None:
    """Raise `DataError` if a column with a role is not in the table."""
    for role, name in columns.roles():
        cells.check_columns(frame, [name], role)


def read_roles(
    frame: Frame,
    columns: Columns,
    levels: Mapping[str, Sequence[str]] | None = None,
    labels: tuple[str, str] | None = None,
) -> Roles:
    """Read the columns with a role, and ``levels`` and ``labels`` unless they are given."""
    client, label = read_clients(frame[columns.client]), cells.texts(frame[columns.label])
    if empty := rows_by_client(client, label.codes < 0):
        raise DataError(
            f"Label column {columns.label!r} is empty in rows of these clients: {empty}. Fill them "
            "in or remove these rows; to train, `--drop-unlabelled` leaves them out."
        )
    pair = labels or label_pair(label.levels, columns)
    unknown = [value for value in label.levels if value not in pair]
    if unknown:
        raise DataError(
            f"Label column {columns.label!r} must hold {pair[0]!r} or {pair[1]!r}, got "
            f"{unknown[0]!r}."
        )
    groups, names = read_groups({name: frame[name] for name in columns.sensitive}, levels)
    return Roles(client, label.codes_in(pair).astype(np.float64), groups, names, pair)


def rows_by_client(client: Texts, rows: NDArray[np.bool_]) -> str:
    """Return a list, as text, of the clients with rows in the mask ``rows`` and their numbers."""
    counts = Texts(client.codes[rows], client.levels).counts()
    return first_of(f"{name!r} {count:,}" for name, count in counts.items() if count)


def read_clients(column: Column) -> Texts:
    """Read the client of each row; raise `DataError` if a cell is empty."""
    clients = cells.texts(column)
    empty = int((clients.codes < 0).sum())
    if empty:
        raise DataError(
            f"Client column {column.name!r} is empty in {empty} of {len(column)} rows. "
            "Fill it in or remove these rows."
        )
    if not clients.levels:
        raise DataError("The table must have rows of at least one client, got none.")
    return clients


def read_groups(
    columns: Mapping[str, Column], levels: Mapping[str, Sequence[str]] | None = None
) -> tuple[dict[str, Codes], dict[str, tuple[str, ...]]]:
    """Return the codes and the group names of each sensitive column.

    If ``levels`` is given, it defines the group names, and rows of other groups have code -1.
    """
    codes: dict[str, Codes] = {}
    names: dict[str, tuple[str, ...]] = {}
    for name, column in columns.items():
        cells.kind_of(column)  # raises on dates
        found = cells.texts(column)
        names[name] = found.levels if levels is None else tuple(levels[name])
        codes[name] = found.codes_in(names[name])
        if not names[name]:
            raise DataError(f"Sensitive column {name!r} is empty in every row. Choose another.")
        if (
            len(found.levels) > MAX_NUMERIC_GROUPS
            and not np.isnan(cells.parsed(found.levels)).any()
        ):
            raise DataError(
                f"Sensitive column {name!r} is a number with {len(found.levels)} distinct values, "
                f"more than {MAX_NUMERIC_GROUPS}. Bin it first, for example into age bands."
            )
    return codes, names


def labelled_rows(frame: Frame, label: str) -> Frame:
    """Return the rows with a label, and add a note with the number of rows left out."""
    is_empty = cells.texts(frame[label]).codes < 0
    if not is_empty.any():
        return frame
    if is_empty.all():
        raise DataError(f"Label column {label!r} is empty in every row. Choose another.")
    kept = frame[~is_empty].reset_index(drop=True)
    cells.add_note(kept, f"Rows without a label {label!r}, left out: {is_empty.sum():,}.")
    return kept


# --- which label is positive ----------------------------------------------------------------------


def label_pair(values: tuple[str, ...], columns: Columns) -> tuple[str, str]:
    """Return the negative and the positive label value; raise unless there are exactly two."""
    alike = cells.look_alikes(values)
    if alike or len(values) != 2:
        what = alike or first_of(map(repr, values), 5)
        advice = "Write equal values alike" if alike else "Correct the cells or choose another"
        raise DataError(
            f"Label column {columns.label!r} must have two values, got {len(values)}: {what}. "
            f"{advice}."
        )
    if columns.positive is None:
        return ordered_pair(values)
    positive = cells.text_of(columns.positive)
    if positive not in values:
        raise DataError(
            f"`positive` must be a value of label column {columns.label!r}, got "
            f"{columns.positive!r}. {did_you_mean(positive, values)}"
        )
    return next(value for value in values if value != positive), positive


def ordered_pair(values: Sequence[str]) -> tuple[str, str]:
    """Return (negative, positive): by meaning, else by numeric value, else by sorted order."""
    sizes = dict(zip(values, np.nan_to_num(cells.parsed(values)), strict=True))
    in_order = sorted(values, key=lambda value: (sizes[value], value))
    negative, positive = pair_by_meaning(values) or in_order
    return negative, positive


def pair_by_meaning(values: Sequence[str]) -> tuple[str, str] | None:
    """Return (negative, positive) if words such as yes, denied or "not …" imply it, else None."""
    for negative, positive in (values, values[::-1]):
        no, yes = negative.casefold(), positive.casefold()
        if (no in _NO and yes in _YES) or no in [prefix + yes for prefix in _NOT]:
            return negative, positive
    return None


# --- notes in Python and on the command line ------------------------------------------------------


def on_command_line(note: str) -> str:
    """Replace Python arguments in a note, such as `max_levels=`, by command-line options."""

    def as_option(found: re.Match[str]) -> str:
        flag = "--" + found[1].replace("_", "-")
        try:
            names = literal_eval(found[2] or "[]")
        except (SyntaxError, ValueError):  # a column name contains a bracket and a backtick
            return found[0]
        return f"`{flag} {shlex.quote(','.join(names))}`" if names else f"`{flag}`"

    return _OPTION.sub(as_option, note)


def without_advice(note: str) -> str:
    """Remove the option from a note, for commands that do not have this option."""
    return _ADVICE.sub("", note)


# --- labels, clients and groups -------------------------------------------------------------------


def data_notes(
    roles: Roles, columns: Columns, train_rows: Index, in_train: NDArray[np.bool_]
) -> list[str]:
    """Return notes on the positive label, and on clients with few or similar labels and groups."""
    clients = roles.client.levels

    def have_one(codes: NDArray[np.integer], mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        seen = np.zeros((len(clients), int(codes.max(initial=0)) + 1), dtype=bool)
        seen[roles.client.codes[mask], codes[mask]] = True
        return np.asarray(seen.sum(axis=1) == 1)

    def listed(flags: NDArray[np.bool_], what: str) -> list[str]:
        names = [repr(clients[code]) for code in np.flatnonzero(flags)]
        return [f"{what}{'s' * (len(names) > 1)} {first_of(names)}."] if names else []

    notes = [label_note(roles.labels, columns), *cells.alike_notes("Client", clients)]
    for name in columns.sensitive:
        notes += cells.alike_notes(f"Column {name!r}: groups", roles.levels[name])
        codes = roles.groups[name]
        if unknown := rows_by_client(roles.client, codes < 0):
            what = f"Rows without a value in {name!r} belong to no group and count in the loss only"
            notes.append(f"{what}: {unknown}.")
        what = f"Only one group of {name!r} among the training rows of client"
        notes += listed(have_one(codes, in_train & (codes >= 0)), what)
    one_label = have_one(roles.y.astype(np.intp), in_train)
    notes += listed(one_label, "Only one label value among the training rows of client")
    return notes + listed(train_rows == 1, "Only one training row at client")


def label_note(labels: tuple[str, str], columns: Columns) -> str:
    """Return a note on the positive label, with the reason if it was chosen by sorted order."""
    negative, positive = labels
    note = f"Label {columns.label!r}: {positive!r} is the positive value, {negative!r} the other"
    is_known = columns.positive is not None or pair_by_meaning(labels)
    if is_known or np.isfinite(cells.parsed(labels)).all():
        return f"{note}."
    return f"{note}, because it is the last in sorted order (`positive=` chooses)."


# --- which columns become features ----------------------------------------------------------------


@dataclass(frozen=True)
class Choices:
    """Feature columns and column types chosen by the user.

    Parameters
    ----------
    features : columns to use as features, all of them and no others
    keep : columns to use that would be left out otherwise
    categorical, numeric : columns to treat as categories, or as numbers, regardless of their cells
    """

    features: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()

    def check(self, frame: Frame, columns: Columns) -> None:
        """Raise `DataError` if a column is not in the table or has more than one role."""
        for option, names in vars(self).items():
            cells.check_columns(frame, names, option)
            check_one_role([*columns.roles(), *((option, name) for name in dict.fromkeys(names))])
        both = [name for name in self.categorical if name in self.numeric]
        if both:
            raise DataError(f"Column {both[0]!r} is in `categorical` and in `numeric`; name one.")


def feature_columns(frame: Frame, columns: Columns) -> list[str]:
    """Return the names of the columns without a role, excluding unnamed columns."""
    roles = set(columns.names)
    names = (str(name) for name in frame.columns)
    return [name for name in names if name not in roles and not UNNAMED.fullmatch(name)]


def choose_columns(frame: Frame, columns: Columns, choices: Choices) -> tuple[Frame, Columns]:
    """Return the table with converted columns, and the roles with unsuitable columns dropped.

    Identifiers, dates and columns that determine the label in every row are dropped. Notes list the
    dropped columns, possible codes, columns that nearly determine the label, and empty cells.
    """
    check_roles(frame, columns)
    choices.check(frame, columns)
    typed = {name: _as_text(frame[name]) for name in choices.categorical}
    typed |= {name: cells.numbers(frame[name]) for name in choices.numeric}
    frame = frame.assign(**typed) if typed else frame
    candidates = feature_columns(frame, columns)
    if choices.features:
        left_out = [name for name in candidates if name not in choices.features]
        return frame, replace(columns, drop=(*columns.drop, *left_out))
    *certain, likely = _unsuitable(frame, columns).items()
    notes, left_out = [], []
    for what, names in certain:
        if gone := [name for name in names if name not in choices.keep]:
            notes.append(f"Left out as {what}: {_quoted(gone)} (`keep={gone}` uses them).")
            left_out += gone
    if likely[1]:
        notes.append(
            f"Used although they are {likely[0]}: {_quoted(likely[1])}. Leave out what is not "
            f"known when deciding (`drop={likely[1]}`)."
        )
    decided = {*choices.categorical, *choices.numeric}.union(*(names for _, names in certain))
    codes = [name for name in candidates if name not in decided and may_be_codes(frame[name])]
    if codes:
        notes.append(
            f"Used as numbers: {_quoted(codes)}, which may be codes by their name or by few "
            f"integers for their range (`categorical={codes}` makes one feature of each value, "
            f"`numeric={codes}` keeps numbers without this note)."
        )
    n_empty = {name: frame[name].isna().sum() for name in candidates if name not in left_out}
    if counts := [f"{name!r} {count:,}" for name, count in n_empty.items() if count]:
        notes.append(f"Empty cells: {first_of(counts)}. Whether a cell is empty becomes a feature.")
    for note in notes:
        cells.add_note(frame, note)
    return frame, replace(columns, drop=(*columns.drop, *left_out))


def unsuitable_columns(frame: Frame, columns: Columns) -> tuple[str, ...]:
    """Return warnings, for runs over sites, about columns that `choose_columns` would report."""
    return tuple(
        f"Used as features although they are {what}: {_quoted(names)}. A run over sites leaves "
        "out only the columns in its `drop`."
        for what, names in _unsuitable(frame, columns).items()
        if names
    )


def _unsuitable(frame: Frame, columns: Columns) -> dict[str, list[str]]:
    """Return unsuitable columns by kind. Columns of the last kind are used, the others dropped."""
    identifiers, dates = "identifiers, with another value in every row", "dates"
    gives = f"columns that give the label {columns.label!r} away in"
    giveaways = {"certain": f"{gives} every row", "likely": f"{gives} nearly every row"}
    found: dict[str, list[str]] = {kind: [] for kind in (identifiers, dates, *giveaways.values())}
    y = _binary_label(frame, columns)
    for name in feature_columns(frame, columns):
        column = frame[name]
        if _is_identifier(column):
            found[identifiers].append(name)
        elif _is_date(column):
            found[dates].append(name)
        elif y is not None and (certainty := giveaway(_few_values_as_text(column), y)):
            found[giveaways[certainty]].append(name)
    return found


def _quoted(names: Sequence[str]) -> str:
    return first_of(map(repr, names))


def _as_text(column: Column) -> Column:
    found = cells.texts(column)
    categories = pd.Categorical.from_codes(found.codes, list(found.levels))
    return pd.Series(categories, index=column.index, name=column.name)


def _is_identifier(column: Column) -> bool:
    """Return whether all values differ and are text, row numbers, or in a column named as an id."""
    if len(column) < _MIN_ID_ROWS or column.isna().any() or _is_date(column):
        return False
    if cells.is_number(column):
        values = column.to_numpy(dtype=np.float64)
        is_row_number = column.dtype.kind in "iu" and np.ptp(values) == len(values) - 1
        if not (is_row_number or _is_named(column, _ID_NAMES)) or (values % 1 != 0).any():
            return False
    return len(cells.factorize(column)[1]) == len(column)


def _is_named(column: Column, names: set[str]) -> bool:
    return not names.isdisjoint(word.lower() for word in _WORD.findall(str(column.name)))


def _is_date(column: Column) -> bool:
    if pd.api.types.is_datetime64_any_dtype(column):
        return True
    if cells.is_number(column) or pd.api.types.is_bool_dtype(column):
        return False
    values = cells.factorize(column)[1]
    return len(values) > 0 and all(map(_looks_like_date, values))


def _looks_like_date(cell: object) -> bool:
    if isinstance(cell, str):
        return _DATE.fullmatch(cell.strip()) is not None
    return hasattr(cell, "isoformat")


def may_be_codes(column: Column) -> bool:
    """Return whether the numbers in a column may be codes, judging by its name or its values.

    Codes are repeated integers that are few, or that fill less than half of their range. Counts and
    ages fill their range. Amounts rarely repeat, or most of them are 0.
    """
    if not cells.is_number(column):
        return False
    if _is_named(column, _ID_NAMES | _CODE_NAMES):
        return True
    known = column.dropna().to_numpy(dtype=np.float64)
    if (np.abs(known) >= _EXACT).any() or (known % 1 != 0).any():
        return False
    values, counts = np.unique(known, return_counts=True)
    if values.size <= 2 or known.size < _MIN_CODE_ROWS * values.size:
        return False
    if values.size <= _MAX_CODES:
        return True
    if 2 * counts[values == 0].sum() > known.size:
        return False
    low, high = np.quantile(known, [_TAIL, 1 - _TAIL])  # the range without outliers
    steps = np.diff(values[(values >= low) & (values <= high)]).astype(np.int64)
    n_places = steps.sum() / max(np.gcd.reduce(steps), 1) + 1
    return bool(steps.size > 1 and steps.size + 1 < _FILLED * n_places)


# --- columns that give the label away -------------------------------------------------------------


def _binary_label(frame: Frame, columns: Columns) -> Vector | None:
    """Return the label as 0 and 1, or None if it has empty cells or not exactly two values."""
    found = cells.texts(frame[columns.label])
    if len(found.levels) != 2 or (found.codes < 0).any():
        return None
    positive = found.levels.index(label_pair(found.levels, columns)[1])
    return np.asarray(found.codes == positive, dtype=np.float64)


def _few_values_as_text(column: Column) -> Vector | Texts:
    """Return the cells of a column, converting numbers with few distinct values to text."""
    if not cells.is_number(column):
        return cells.texts(column)
    values = cells.numbers(column)
    if len(pd.unique(values[:_SAMPLE])) > _MAX_CODES:
        return values
    found = cells.texts(column)
    return values if len(found.levels) > _MAX_CODES else found


def giveaway(content: Vector | Texts, y: Vector) -> Literal["certain", "likely"] | None:
    """Return "certain" or "likely" if a column predicts the label in all or nearly all rows.

    The label of a row with text is predicted from the other rows of the same level, so identifiers
    predict nothing. For numbers, the best threshold predicts the label. An empty cell is a level of
    its own, or a number below all others. A column filled in for only one label is thus detected.
    """
    n_smaller = int(min(y.sum(), y.size - y.sum()))
    if n_smaller < _MIN_LABEL_ROWS:
        return None
    some = slice(None, None, max(y.size // _SAMPLE, 1))
    part = (
        Texts(content.codes[some], content.levels) if isinstance(content, Texts) else content[some]
    )
    if _errors(part, y[some])[0] > 2 * _NEARLY * min(y[some].sum(), (1 - y[some]).sum()) + 1:
        return None
    errors, is_pure = _errors(content, y)
    if errors > _NEARLY * n_smaller:
        return None
    return "certain" if is_pure else "likely"


def _errors(content: Vector | Texts, y: Vector) -> tuple[int, bool]:
    """Return the number of wrong predictions, and whether equal cells always have equal labels.

    The prediction is that of `giveaway`.
    """
    if isinstance(content, Texts):
        codes = content.codes + 1
        rows, ones = np.bincount(codes)[codes], np.bincount(codes, weights=y)[codes]
        alike = np.where(y == 1.0, ones, rows - ones)  # rows of the level with the row's label
        default = float(y.mean() >= 0.5)  # the prediction where a level has no other row
        wrong = np.where(rows == 1, y != default, alike - 1 <= rows - alike)  # without the row
        return int(wrong.sum()), bool((alike == rows).all())
    values = np.where(np.isnan(content), -np.inf, content)
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), y.size - 1)
    ones = np.append(0.0, np.cumsum(y[order])[ends])  # at or below each distinct value
    below = np.append(0.0, ends + 1.0)
    rising = ones + (y.size - below) - (ones[-1] - ones)  # ones below, zeros above
    errors = int(min(rising.min(), (y.size - rising).min()))
    return errors, errors == 0
