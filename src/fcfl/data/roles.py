"""Columns with a role (client, label, sensitive) and their cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._checks import did_you_mean, first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from .cells import (
    Column,
    Frame,
    Texts,
    add_note,
    check_columns,
    kind_of,
    look_alikes,
    parsed,
    text_of,
    texts,
)
from .client_data import Codes

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


@dataclass(frozen=True, slots=True)
class Columns:
    """The role of each column; all others are features.

    Parameters
    ----------
    client, label : names of columns
    sensitive : names of the columns whose groups are compared
    drop : names of columns to leave out
    positive : the label value that counts as 1
        By default that which means yes (true, approved, …), the larger number, or the last text.
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
        """Every column with a role."""
        return [name for _, name in self.roles()]


def check_one_role(roles: Iterable[tuple[str, str]]) -> None:
    """Raise `DataError` if a column has several of these (role, column)."""
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
    """Client, label and groups of each row; codes point into the sorted names."""

    client: Texts
    y: Vector
    groups: Mapping[str, Codes]
    levels: Mapping[str, tuple[str, ...]]
    labels: tuple[str, str]


def check_roles(frame: Frame, columns: Columns) -> None:
    """Raise `DataError` if the table lacks one of the named columns."""
    for role, name in columns.roles():
        check_columns(frame, [name], role)


def read_roles(
    frame: Frame,
    columns: Columns,
    levels: Mapping[str, Sequence[str]] | None = None,
    labels: tuple[str, str] | None = None,
) -> Roles:
    """Read the columns with a role; ``levels`` and ``labels`` come from the cells unless given."""
    client, label = read_clients(frame[columns.client]), texts(frame[columns.label])
    if empty := rows_by_client(client, label.codes < 0):
        raise DataError(
            f"Label column {columns.label!r} is empty in rows of these clients: {empty}. Fill them "
            "in or remove these rows; to train, `--drop-unlabelled` leaves them out."
        )
    pair = labels or label_pair(label.levels, columns)
    strange = [value for value in label.levels if value not in pair]
    if strange:
        raise DataError(
            f"Label column {columns.label!r} must hold {pair[0]!r} or {pair[1]!r}, got "
            f"{strange[0]!r}."
        )
    groups, names = read_groups({name: frame[name] for name in columns.sensitive}, levels)
    return Roles(client, label.codes_in(pair).astype(np.float64), groups, names, pair)


def rows_by_client(client: Texts, rows: NDArray[np.bool_]) -> str:
    """Return the clients that have some of these rows, each with their number."""
    counts = Texts(client.codes[rows], client.levels).counts()
    return first_of(f"{name!r} {count:,}" for name, count in counts.items() if count)


def read_clients(column: Column) -> Texts:
    """Read the client of each row; raise `DataError` if a cell is empty."""
    clients = texts(column)
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
    """Return codes and group names of each sensitive column.

    With ``levels`` the names are those given, and a row of any other group has code -1.
    """
    codes: dict[str, Codes] = {}
    names: dict[str, tuple[str, ...]] = {}
    for name, column in columns.items():
        kind_of(column)  # raises on dates
        found = texts(column)
        names[name] = found.levels if levels is None else tuple(levels[name])
        codes[name] = found.codes_in(names[name])
        if not names[name]:
            raise DataError(f"Sensitive column {name!r} is empty in every row. Choose another.")
        if len(found.levels) > MAX_NUMERIC_GROUPS and not np.isnan(parsed(found.levels)).any():
            raise DataError(
                f"Sensitive column {name!r} is a number with {len(found.levels)} distinct values, "
                f"more than {MAX_NUMERIC_GROUPS}. Bin it first, for example into age bands."
            )
    return codes, names


def labelled_rows(frame: Frame, label: str) -> Frame:
    """Return the rows with a label; a note has the number of the others."""
    is_empty = texts(frame[label]).codes < 0
    if not is_empty.any():
        return frame
    if is_empty.all():
        raise DataError(f"Label column {label!r} is empty in every row. Choose another.")
    kept = frame[~is_empty].reset_index(drop=True)
    add_note(kept, f"Rows without a label {label!r}, left out: {is_empty.sum():,}.")
    return kept


# --- which label is positive ----------------------------------------------------------------------


def label_pair(values: tuple[str, ...], columns: Columns) -> tuple[str, str]:
    """Return the negative and the positive value of the label."""
    alike = look_alikes(values)
    if alike or len(values) != 2:
        what = alike or first_of(map(repr, values), 5)
        advice = "Write equal values alike" if alike else "Correct the cells or choose another"
        raise DataError(
            f"Label column {columns.label!r} must have two values, got {len(values)}: {what}. "
            f"{advice}."
        )
    if columns.positive is None:
        return ordered_pair(values)
    positive = text_of(columns.positive)
    if positive not in values:
        raise DataError(
            f"`positive` must be a value of label column {columns.label!r}, got "
            f"{columns.positive!r}. {did_you_mean(positive, values)}"
        )
    return next(value for value in values if value != positive), positive


def ordered_pair(values: Sequence[str]) -> tuple[str, str]:
    """Return two values, the positive one last: by meaning, else by size, else by letters."""

    def size_and_letters(value: str) -> tuple[float, str]:
        number = float(parsed([value])[0])
        return (0.0 if np.isnan(number) else number), value

    negative, positive = pair_by_meaning(values) or sorted(values, key=size_and_letters)
    return negative, positive


def pair_by_meaning(values: Sequence[str]) -> tuple[str, str] | None:
    """Return (negative, positive) if words such as yes, denied or "not …" show it."""
    for negative, positive in (values, values[::-1]):
        no, yes = negative.casefold(), positive.casefold()
        if (no in _NO and yes in _YES) or no in [prefix + yes for prefix in _NOT]:
            return negative, positive
    return None
