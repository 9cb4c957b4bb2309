"""A table with a client column becomes a federation: training and test rows of each client."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._random import client_seed
from fcfl._types import ClientId, Vector
from fcfl.errors import DataError

from ._cells import NOTES, Frame, Texts, cells_of, named_columns
from ._notes import data_notes
from .client_data import ClientData, Index, stable_order, stratified_split
from .encoding import MAX_LEVELS, Cells, Schema
from .roles import Columns, Roles, check_roles, read_roles
from .statistics import (
    NumberSummary,
    Statistics,
    Summary,
    merge_numbers,
    summarise,
    summarise_cells,
)

_MANY_STRATA = 1 << 20
_UNNAMED = re.compile(r"Unnamed: \d+|__index_level_\d+__|")


@dataclass(frozen=True, slots=True, eq=False)
class FederatedTable:
    """Every client's rows, encoded alike.

    ``test`` has an entry for every client, of zero rows where nothing was held out. ``labels``
    are the negative and the positive value. ``notes`` are sentences for the user. ``checksum``
    identifies the rows, their split and their columns. ``held_out`` marks the test rows of the
    table, row by row as they came.
    """

    train: dict[ClientId, ClientData]
    test: dict[ClientId, ClientData]
    schema: Schema
    columns: Columns
    labels: tuple[str, str]
    levels: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    checksum: str
    held_out: NDArray[np.bool_]

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Names of the clients, sorted as text."""
        return tuple(self.train)


@dataclass(frozen=True, slots=True)
class _Part:
    """Training or test rows, ordered by client; client i has rows ``bounds[i]:bounds[i+1]``."""

    rows: Index
    bounds: Index

    def of_client(self, code: int) -> Index:
        return self.rows[self.bounds[code] : self.bounds[code + 1]]


def feature_columns(frame: Frame, columns: Columns) -> list[str]:
    """Names of the columns without a role; columns without a name are left out."""
    roles = set(columns.names)
    names = (str(name) for name in frame.columns)
    return [name for name in names if name not in roles and not _UNNAMED.fullmatch(name)]


def federate(
    frame: Frame,
    columns: Columns,
    *,
    test_size: float = 0.3,
    seed: int = 0,
    test_frame: Frame | None = None,
    schema: Schema | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
    labels: tuple[str, str] | None = None,
    max_levels: int = MAX_LEVELS,
) -> FederatedTable:
    """Split a table by client, hold out test rows, and encode the features.

    Parameters
    ----------
    frame : DataFrame
    columns : Columns
    test_size : share of each client's rows to hold out, stratified by label and groups
    seed : seed of the split; a client's split does not depend on the other clients
    test_frame : DataFrame, optional
        The test rows; then nothing is held out of ``frame``.
    schema : Schema, optional
        By default agreed from the clients' statistics of their training rows.
    levels, labels : optional
        Groups of each sensitive column, and (negative, positive), where they are agreed already.
    max_levels : how many levels of a column become features, the most frequent ones
        Others count as unknown, which a note says.
    """
    frames = [named_columns(part) for part in (frame, test_frame) if part is not None]
    for part in frames:
        check_roles(part, columns)
    roles_frame = pd.concat([part[columns.names] for part in frames], ignore_index=True)
    roles = read_roles(roles_frame, columns, levels, labels)
    in_test = _in_test(roles, len(frames[0]), None if test_frame is not None else test_size, seed)
    train, test = _trained_part(roles, ~in_test), _part(roles, np.flatnonzero(in_test))
    known: dict[str, Vector | Texts] = {}
    if schema is None:
        names = feature_columns(frames[0], columns)
        known, statistics = _read_features(frames[0], names, roles, train)
        schema = _agree_schema(statistics, names, max_levels)
        del statistics
    else:
        _check_schema(schema, columns)
    parts = [schema.read(frames[0], known), *map(schema.read, frames[1:])]
    del known
    cells = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
    notes = [note for part in frames for note in part.attrs.get(NOTES, ())]
    notes += data_notes(roles, columns, np.diff(train.bounds), ~in_test)
    unnamed = [name for name in frames[0].columns if _UNNAMED.fullmatch(name)]
    notes += [f"Column {name!r} has no name in the file and was left out." for name in unnamed]
    return FederatedTable(
        _client_data(roles, cells, schema, train),
        _client_data(roles, cells, schema, test),
        schema,
        columns,
        roles.labels,
        dict(roles.levels),
        (*notes, *schema.notes),
        _checksum(roles, cells, schema, (train, test)),
        in_test,
    )


def _in_test(roles: Roles, n_given: int, test_size: float | None, seed: int) -> NDArray[np.bool_]:
    """Mark the test rows: those of the second table, or each client's share of the only one."""
    marked = np.arange(roles.y.size) >= n_given
    if test_size is None:
        return marked
    strata = strata_of(roles)
    everyone = _part(roles, np.arange(roles.y.size))
    for code, client in enumerate(roles.client.levels):
        rows = everyone.of_client(code)
        _, held_out = stratified_split(strata[rows], test_size, client_seed(seed, client))
        marked[rows[held_out]] = True
    return marked


def strata_of(roles: Roles) -> Index:
    """One code for each combination of label and groups."""
    code = roles.y.astype(np.intp)
    most = 2
    for name, groups in roles.groups.items():
        code = code * (len(roles.levels[name]) + 1) + groups + 1
        most *= len(roles.levels[name]) + 1
        if most > _MANY_STRATA:  # keeps many attributes from overflowing
            code = np.unique(code, return_inverse=True)[1]
            most = int(code.max(initial=0)) + 1
    return code


def _part(roles: Roles, rows: Index) -> _Part:
    codes = roles.client.codes[rows]
    sizes = np.bincount(codes, minlength=len(roles.client.levels))
    return _Part(rows[stable_order(codes)], np.append(0, np.cumsum(sizes)))


def _trained_part(roles: Roles, mask: NDArray[np.bool_]) -> _Part:
    """The training rows, of which every client has some."""
    train = _part(roles, np.flatnonzero(mask))
    idle = np.flatnonzero(np.diff(train.bounds) == 0)
    if idle.size:
        raise DataError(
            f"Client {roles.client.levels[idle[0]]!r} has test rows but no training rows. "
            "Remove it from the test table or add training rows."
        )
    return train


def _check_schema(schema: Schema, columns: Columns) -> None:
    """Refuse a given schema that would learn from the label, the client or a group."""
    for column in schema.columns:
        if column.name in columns.names:
            raise DataError(
                f"`schema` must not use column {column.name!r}, which has a role of its own."
            )


def _read_features(
    frame: Frame, names: list[str], roles: Roles, train: _Part
) -> tuple[dict[str, Vector | Texts], dict[ClientId, Statistics]]:
    """The feature columns, each read once, and what the training rows say about them.

    Only what clients must be told apart for is done client by client: columns of Python objects,
    which may be numbers at one and text at another, and columns that cannot be read.
    """
    if all(frame[name].dtype != object for name in names):
        try:
            known = {name: cells_of(frame[name]) for name in names}
            pooled = {name: _pooled(name, cells, train) for name, cells in known.items()}
            return known, {"all clients": Statistics(pooled)}
        except DataError:
            pass  # told below, with the client's name
    statistics = {
        client: _summarise(frame.iloc[train.of_client(code)], names, client)
        for code, client in enumerate(roles.client.levels)
    }
    return {}, statistics


def _pooled(name: str, cells: Vector | Texts, train: _Part) -> Summary:
    """Summary of all clients' cells: of numbers client by client, as sites would send them."""
    if isinstance(cells, Texts):
        return summarise_cells(name, Texts(cells.codes[train.rows], cells.levels))
    values = cells[train.rows]
    sizes = zip(train.bounds[:-1], train.bounds[1:], strict=True)
    summaries = [summarise_cells(name, values[first:last]) for first, last in sizes]
    return merge_numbers(part for part in summaries if isinstance(part, NumberSummary))


def _agree_schema(
    statistics: Mapping[ClientId, Statistics], names: list[str], max_levels: int
) -> Schema:
    schema = Schema.from_statistics(statistics, max_levels)
    if not schema.columns:
        raise DataError(
            "The table must have at least one feature column that varies, besides client, "
            f"label, sensitive and dropped columns, got {names or 'none'}."
        )
    return schema


def _summarise(rows: Frame, features: list[str], client: ClientId) -> Statistics:
    try:
        return summarise(rows, features)
    except DataError as error:
        raise DataError(f"Client {client!r}: {error}") from None


def _client_data(
    roles: Roles, cells: Sequence[Cells], schema: Schema, part: _Part
) -> dict[ClientId, ClientData]:
    X = schema.encode([column[part.rows] for column in cells], part.rows.size)
    clients = {}
    for code, client in enumerate(roles.client.levels):
        rows = part.of_client(code)
        groups = {name: codes[rows] for name, codes in roles.groups.items()}
        within = slice(part.bounds[code], part.bounds[code + 1])
        clients[client] = ClientData(X[within], roles.y[rows], groups, roles.levels)
    return clients


def _checksum(
    roles: Roles, cells: Sequence[Cells], schema: Schema, parts: tuple[_Part, _Part]
) -> str:
    """Hash the cells before scaling, whose last digit may differ between machines."""
    names = [column.feature_names for column in schema.columns]
    head = (names, roles.client.levels, roles.labels, sorted(roles.levels.items()))
    digest = hashlib.sha256(repr(head).encode())
    groups = [codes for _, codes in sorted(roles.groups.items())]
    for part in parts:
        digest.update(part.bounds.astype("<i8").tobytes())
        columns: list[Cells] = [roles.y, *groups, *cells]
        for column in columns:
            kind = "<f8" if column.dtype.kind == "f" else "<i8"
            digest.update((column[part.rows] + 0).astype(kind, copy=False).data)
    return digest.hexdigest()
