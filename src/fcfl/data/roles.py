"""Which columns say client, label and group, and what they say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fcfl._checks import did_you_mean, first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from ._cells import Column, Frame, Texts, add_note, kind_of, look_alikes, parsed, text_of, texts
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
_ONE_LABEL = "Add rows with the other value, or choose another label."


@dataclass(frozen=True, slots=True)
class Columns:
    """The part each column plays; all others are features.

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
        seen: dict[str, str] = {}
        for role, name in self.roles():
            if name in seen:
                raise DataError(
                    f"Column {name!r} must have one role, got `{seen[name]}` and `{role}`. "
                    "Name a different column for one of them."
                )
            seen[name] = role

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


@dataclass(frozen=True, slots=True)
class Roles:
    """Per row: client, label and groups; codes point into the sorted names."""

    client: Texts
    y: Vector
    groups: Mapping[str, Codes]
    levels: Mapping[str, tuple[str, ...]]
    labels: tuple[str, str]


def check_roles(frame: Frame, columns: Columns) -> None:
    """Refuse a table without one of the named columns."""
    for role, name in columns.roles():
        if name not in frame.columns:
            raise DataError(
                f"`{role}` must be a column of the table, got {name!r}. "
                f"{did_you_mean(name, frame.columns)}"
            )


def read_roles(
    frame: Frame,
    columns: Columns,
    levels: Mapping[str, Sequence[str]] | None = None,
    labels: tuple[str, str] | None = None,
) -> Roles:
    """Read the columns with a role. ``levels`` and ``labels`` are found unless they are given."""
    client = read_clients(frame[columns.client])
    label = texts(frame[columns.label])
    _check_labelled(label, client, columns.label)
    pair = labels or label_pair(label.levels, columns)
    given = levels or {}
    found = {name: read_groups(frame[name], given.get(name)) for name in columns.sensitive}
    return Roles(
        client,
        _binary(label, pair, columns.label),
        {name: groups.codes for name, groups in found.items()},
        {name: groups.levels for name, groups in found.items()},
        pair,
    )


def read_clients(column: Column) -> Texts:
    """Whose row it is; nobody's is refused."""
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


def cell_texts(column: Column) -> list[str | None]:
    """Each cell as clients and groups are read, None where it is empty."""
    found = texts(column)
    return [None if code < 0 else found.levels[code] for code in found.codes]


def _check_labelled(label: Texts, client: Texts, name: str) -> None:
    empty = np.bincount(client.codes[label.codes < 0], minlength=len(client.levels))
    if empty.any():
        worst = int(empty.argmax())
        others = int(empty.sum() - empty[worst])
        elsewhere = f" and in {_rows(others)} of other clients" if others else ""
        raise DataError(
            f"Label column {name!r} is empty in {_rows(int(empty[worst]))} of client "
            f"{client.levels[worst]!r}{elsewhere}. Fill them in or remove these rows; "
            "to train, `--drop-unlabelled` leaves them out."
        )


def labelled_rows(frame: Frame, label: str) -> Frame:
    """Return the rows with a label; a note has the number of the others."""
    is_empty = texts(frame[label]).codes < 0
    if not is_empty.any():
        return frame
    if is_empty.all():
        raise DataError(f"Label column {label!r} is empty in every row. Choose another.")
    kept = frame[~is_empty].reset_index(drop=True)
    add_note(kept, f"Left out {_rows(int(is_empty.sum()))} without a label {label!r}.")
    return kept


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def label_pair(values: tuple[str, ...], columns: Columns) -> tuple[str, str]:
    """Return the negative and the positive value of the label."""
    alike = look_alikes(values)
    if alike:
        raise DataError(
            f"Label column {columns.label!r} must have two values, got {len(values)}: {alike}. "
            "Write equal values alike."
        )
    if len(values) != 2:
        raise DataError(
            f"Label column {columns.label!r} must have two values, got {len(values)}: "
            f"{first_of(map(repr, values), 5)}. "
            + ("Map them to 0 and 1." if len(values) > 2 else _ONE_LABEL)
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
    negative, positive = pair_by_meaning(values) or sorted(values, key=_number_or_text)
    return negative, positive


def pair_by_meaning(values: Sequence[str]) -> tuple[str, str] | None:
    """Return (negative, positive) where words such as yes, denied or "not …" show it."""
    for negative, positive in (values, values[::-1]):
        no, yes = negative.casefold(), positive.casefold()
        if (no in _NO and yes in _YES) or no in [prefix + yes for prefix in _NOT]:
            return negative, positive
    return None


def _number_or_text(value: str) -> tuple[float, str]:
    """Return a key that sorts numbers by size and texts, which are 0, by letters."""
    number = float(parsed([value])[0])
    return (0.0 if np.isnan(number) else number), value


def _binary(label: Texts, pair: tuple[str, str], name: str) -> Vector:
    strange = [value for value in label.levels if value not in pair]
    if strange:
        raise DataError(
            f"Label column {name!r} must hold {pair[0]!r} or {pair[1]!r}, got {strange[0]!r}."
        )
    is_positive = np.array([value == pair[1] for value in label.levels], dtype=np.float64)
    return is_positive[label.codes]


def read_groups(column: Column, given: Sequence[str] | None = None) -> Texts:
    """The groups of one sensitive column, as codes into ``given`` where these are agreed."""
    kind_of(column)  # raises on dates
    found = texts(column)
    if not found.levels and given is None:
        raise DataError(f"Sensitive column {column.name!r} is empty in every row. Choose another.")
    if len(found.levels) > MAX_NUMERIC_GROUPS and _all_numbers(found.levels):
        raise DataError(
            f"Sensitive column {column.name!r} is a number with {len(found.levels)} distinct "
            f"values, more than {MAX_NUMERIC_GROUPS}. Bin it first, for example into age bands."
        )
    return found if given is None else _recode(found, tuple(given), str(column.name))


def _all_numbers(levels: tuple[str, ...]) -> bool:
    return not np.isnan(parsed(levels)).any()


def _recode(found: Texts, levels: tuple[str, ...], name: str) -> Texts:
    """Return the same texts as codes into the agreed ``levels``."""
    for level in found.levels:
        if level not in levels:
            raise DataError(
                f"Sensitive column {name!r} has the unknown group {level!r}. "
                f"{did_you_mean(level, levels)}"
            )
    lookup = np.array([levels.index(level) for level in found.levels] + [-1], dtype=np.int32)
    return Texts(lookup[found.codes], levels)
