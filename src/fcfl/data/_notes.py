"""Sentences for the user about what the table holds."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .client_data import Index
from .roles import Columns, Roles

_SHOWN = 8


def data_notes(
    roles: Roles, columns: Columns, train_rows: Index, in_train: NDArray[np.bool_]
) -> list[str]:
    """Say which label is positive, and where rows, labels or groups are wanting."""
    negative, positive = roles.labels
    notes = [
        f"Label {columns.label!r}: {positive!r} is the positive value, {negative!r} the other."
    ]
    for name in columns.sensitive:
        notes += _about_groups(roles, name, in_train)
    one_class = _distinct(roles, roles.y.astype(np.intp), in_train) == 1
    notes += _listed(roles, one_class, "Only one label value among the training rows of client")
    notes += _listed(roles, train_rows == 1, "Only one training row at client")
    return notes


def _about_groups(roles: Roles, name: str, in_train: NDArray[np.bool_]) -> list[str]:
    codes = roles.groups[name]
    unknown = np.bincount(roles.client.codes[codes < 0], minlength=len(roles.client.levels))
    pairs = zip(roles.client.levels, unknown.tolist(), strict=True)
    counts = [f"{client!r} {count}" for client, count in pairs if count]
    what = f"Rows without a value in {name!r} count for the loss and belong to no group"
    notes = [f"{what}: {_some(counts)}."] if counts else []
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
    return [f"{what}{plural} {_some(names)}."] if names else []


def _some(items: Iterable[str]) -> str:
    items = list(items)
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
