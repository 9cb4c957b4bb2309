"""Sentences for the user about what the table holds."""

import re
import shlex
from ast import literal_eval

import numpy as np
from numpy.typing import NDArray

from fcfl._checks import first_of

from ._cells import alike_notes, parsed
from .client_data import Index
from .roles import Columns, Roles, pair_by_meaning

_OPTION = re.compile(r"`(\w+)=(\[.*?\])?`")
_ADVICE = re.compile(r" \(`\w+=.*\)")


def on_command_line(note: str) -> str:
    """Return a note with Python's arguments, such as `max_levels=`, as options."""
    return _OPTION.sub(_as_option, note)


def without_advice(note: str) -> str:
    """Return a note for a command that has none of the options in it."""
    return _ADVICE.sub("", note)


def _as_option(found: re.Match[str]) -> str:
    flag = "--" + found[1].replace("_", "-")
    try:
        names = literal_eval(found[2] or "[]")
    except (SyntaxError, ValueError):  # a name with a bracket and a backtick in it
        return found[0]
    return f"`{flag} {shlex.quote(','.join(names))}`" if names else f"`{flag}`"


def data_notes(
    roles: Roles, columns: Columns, train_rows: Index, in_train: NDArray[np.bool_]
) -> list[str]:
    """Return which label is positive, and where rows, labels or groups are missing or alike."""
    notes = [label_note(roles.labels, columns), *alike_notes("Client", roles.client.levels)]
    for name in columns.sensitive:
        notes += alike_notes(f"Column {name!r}: groups", roles.levels[name])
        notes += _about_groups(roles, name, in_train)
    one_class = _distinct(roles, roles.y.astype(np.intp), in_train) == 1
    notes += _listed(roles, one_class, "Only one label value among the training rows of client")
    notes += _listed(roles, train_rows == 1, "Only one training row at client")
    return notes


def label_note(labels: tuple[str, str], columns: Columns) -> str:
    """Return which label is positive, and why where nothing but its letters decides."""
    negative, positive = labels
    note = f"Label {columns.label!r}: {positive!r} is the positive value, {negative!r} the other"
    is_known = columns.positive is not None or pair_by_meaning(labels)
    if is_known or np.isfinite(parsed(labels)).all():
        return f"{note}."
    return f"{note}, because it is the last in sorted order (`positive=` chooses)."


def _about_groups(roles: Roles, name: str, in_train: NDArray[np.bool_]) -> list[str]:
    codes = roles.groups[name]
    unknown = np.bincount(roles.client.codes[codes < 0], minlength=len(roles.client.levels))
    pairs = zip(roles.client.levels, unknown.tolist(), strict=True)
    counts = [f"{client!r} {count}" for client, count in pairs if count]
    what = f"Rows without a value in {name!r} count for the loss and belong to no group"
    notes = [f"{what}: {first_of(counts)}."] if counts else []
    one_group = _distinct(roles, codes, in_train & (codes >= 0)) == 1
    what = f"Only one group of {name!r} among the training rows of client"
    return notes + _listed(roles, one_group, what)


def _distinct(roles: Roles, codes: NDArray[np.integer], mask: NDArray[np.bool_]) -> Index:
    """How many different codes each client has among the masked rows."""
    shape = (len(roles.client.levels), int(codes.max(initial=0)) + 1)
    seen = np.zeros(shape, dtype=bool)
    seen[roles.client.codes[mask], codes[mask]] = True
    return np.asarray(seen.sum(axis=1), dtype=np.intp)


def _listed(roles: Roles, flags: NDArray[np.bool_], what: str) -> list[str]:
    """A sentence that begins with ``what``, up to the word client, and names the flagged ones."""
    names = [repr(roles.client.levels[code]) for code in np.flatnonzero(flags)]
    plural = "s" if len(names) > 1 else ""
    return [f"{what}{plural} {first_of(names)}."] if names else []
