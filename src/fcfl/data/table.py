"""Split a table with a client column into training and test rows of each client."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._types import ClientId, client_seed
from fcfl.errors import DataError

from . import cells
from .cells import (
    MAX_LEVELS,
    NOTES,
    Cells,
    Column,
    Frame,
    NumberSummary,
    Schema,
    Statistics,
    Summary,
    Texts,
)
from .client_data import ClientData, Index, stable_order, stratified_split
from .columns import (
    UNNAMED,
    Columns,
    Roles,
    check_one_role,
    check_roles,
    data_notes,
    feature_columns,
    labelled_rows,
    read_roles,
    unsuitable_columns,
)
from .rows import read_table

SITE = "(site)"  # client column added to the table of a single site


@dataclass(frozen=True, slots=True, eq=False)
class FederatedTable:
    """Training and test rows of all clients, in one encoding.

    ``test`` has an entry for every client, with zero rows if none were held out. ``labels`` are
    the negative and the positive value. ``notes`` are sentences for the user. ``checksum``
    identifies the rows, their split and their columns. ``held_out`` marks the test rows, in the
    row order of the table.
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
        The test rows. If given, all rows of ``frame`` are training rows.
    schema : Schema, optional
        By default computed from the clients' statistics of their training rows.
    levels, labels : optional
        Groups of each sensitive column, and (negative, positive), by default read from the cells.
        A row of a group not in ``levels`` belongs to no group.
    max_levels : maximum number of levels of a column that become features, by frequency
        Other levels are unknown, and a note lists them.
    """
    frames = [cells.named_columns(part) for part in (frame, test_frame) if part is not None]
    for part in frames:
        check_roles(part, columns)
    notes = [note for part in frames for note in part.attrs.get(NOTES, ())]
    with_roles = pd.concat([part[columns.names] for part in frames], ignore_index=True)
    roles = read_roles(with_roles, columns, levels, labels)
    in_test = np.arange(roles.y.size) >= len(frames[0])
    if test_frame is None:
        in_test |= _held_out(roles, test_size, seed)
    train, test = (_rows_of_clients(roles, np.flatnonzero(part)) for part in (~in_test, in_test))
    train_rows = np.array(list(map(len, train)))
    if not train_rows.all():
        raise DataError(
            f"Client {roles.client.levels[train_rows.argmin()]!r} has test rows but no training "
            "rows. Remove it from the test table or add training rows."
        )
    if schema is None:
        names = feature_columns(frames[0], columns)
        statistics = Statistics({name: _summary(frames[0][name], train) for name in names})
        schema = Schema.from_statistics({"all clients": statistics}, max_levels)
        if not schema.columns:
            raise DataError(
                "The table must have at least one feature column that varies, besides client, "
                f"label, sensitive and dropped columns, got {names or 'none'}."
            )
    check_one_role([*columns.roles(), *(("schema", column.name) for column in schema.columns)])
    encoded = schema.read(frames[0])
    if test_frame is not None:
        pairs = zip(encoded, schema.read(frames[1]), strict=True)
        encoded = [np.concatenate(pair) for pair in pairs]
    notes += data_notes(roles, columns, train_rows, ~in_test)
    unnamed = [name for name in frames[0].columns if UNNAMED.fullmatch(name)]
    notes += [f"Column {name!r} has no name in the file and was left out." for name in unnamed]
    return FederatedTable(
        _client_data(roles, encoded, schema, train),
        _client_data(roles, encoded, schema, test),
        schema,
        columns,
        roles.labels,
        dict(roles.levels),
        (*notes, *schema.notes),
        _checksum(roles, encoded, schema, (train, test)),
        in_test,
    )


def _rows_of_clients(roles: Roles, rows: Index) -> list[Index]:
    """Split the row positions ``rows`` by client, preserving their order."""
    codes = roles.client.codes[rows]
    ends = np.cumsum(np.bincount(codes, minlength=len(roles.client.levels)))
    return np.split(rows[stable_order(codes)], ends[:-1])


def _held_out(roles: Roles, test_size: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the test rows, drawn for each client separately."""
    marked = np.zeros(roles.y.size, dtype=bool)
    strata, of_clients = _strata(roles), _rows_of_clients(roles, np.arange(roles.y.size))
    for client, rows in zip(roles.client.levels, of_clients, strict=True):
        _, held_out = stratified_split(strata[rows], test_size, client_seed(seed, client))
        marked[rows[held_out]] = True
    return marked


def _strata(roles: Roles) -> Index:
    """Return the stratum of each row: one code per combination of label and groups."""
    code = roles.y.astype(np.intp)
    for name, groups in roles.groups.items():
        code, _ = pd.factorize(code * (len(roles.levels[name]) + 1) + groups + 1, sort=True)
    return code


def _summary(column: Column, train: Sequence[Index]) -> Summary:
    """Summarise the training cells of a column, merging numbers client by client as sites do."""
    read = cells.cells_of(column)
    if isinstance(read, Texts):
        codes = read.codes[np.concatenate(train)]
        return cells.summarise_cells(column.name, Texts(codes, read.levels))
    summaries = [cells.summarise_cells(column.name, read[rows]) for rows in train]
    return cells.merge_numbers(part for part in summaries if isinstance(part, NumberSummary))


def _client_data(
    roles: Roles, encoded: Sequence[Cells], schema: Schema, parts: Sequence[Index]
) -> dict[ClientId, ClientData]:
    """Return the data of each client, with the features of all clients encoded at once."""
    all_rows = np.concatenate(parts)
    X = schema.encode([column[all_rows] for column in encoded], all_rows.size)
    clients, first = {}, 0
    for client, rows in zip(roles.client.levels, parts, strict=True):
        groups = {name: codes[rows] for name, codes in roles.groups.items()}
        features = X[first : first + rows.size]
        clients[client] = ClientData(features, roles.y[rows], groups, roles.levels)
        first += rows.size
    return clients


def _checksum(
    roles: Roles, encoded: Sequence[Cells], schema: Schema, splits: Sequence[Sequence[Index]]
) -> str:
    """Return a hash of the unscaled cells; scaled cells may differ in rounding between machines."""
    names = [column.feature_names for column in schema.columns]
    head = (names, roles.client.levels, roles.labels, sorted(roles.levels.items()))
    digest = hashlib.sha256(repr(head).encode())
    groups = [codes for _, codes in sorted(roles.groups.items())]
    for parts in splits:
        digest.update(np.cumsum([0, *map(len, parts)]).astype("<i8").tobytes())
        rows = np.concatenate(parts)
        columns: list[Cells] = [roles.y, *groups, *encoded]
        for column in columns:
            kind = "<f8" if column.dtype.kind == "f" else "<i8"
            digest.update((column[rows] + 0).astype(kind, copy=False).data)
    return digest.hexdigest()


# --- the table of one site ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OwnTable:
    """Training and held-out rows of one site, not yet encoded.

    ``labels`` are the label values in these rows. ``levels`` maps each sensitive column to its
    groups and their numbers of rows.
    """

    name: ClientId
    columns: Columns
    train: Frame
    test: Frame
    labels: tuple[str, ...]
    levels: Mapping[str, Mapping[str, int]]

    def statistics(self) -> Statistics:
        """Summarise the feature columns of the training rows."""
        return cells.summarise(self.train, feature_columns(self.train, self.columns))

    def unsuitable(self) -> tuple[str, ...]:
        """Return warnings about identifiers, dates and columns that give the label away."""
        try:
            return unsuitable_columns(pd.concat([self.train, self.test]), self.columns)
        except DataError:
            return ()  # unusable cells raise an error when they are encoded

    def groups(self, min_rows: int = 1) -> dict[str, tuple[str, ...]]:
        """Return the groups of each sensitive column with at least ``min_rows`` rows."""
        return {
            name: tuple(level for level, rows in counts.items() if rows >= min_rows)
            for name, counts in self.levels.items()
        }

    def encode(
        self, schema: Schema, levels: Mapping[str, Sequence[str]], labels: tuple[str, str]
    ) -> FederatedTable:
        """Encode the rows by the schema, groups and labels that all sites share."""
        return federate(
            self.train,
            self.columns,
            test_size=0.0,
            test_frame=self.test if len(self.test) else None,
            schema=schema,
            levels=levels,
            labels=labels,
        )


def open_own_table(
    path: str | os.PathLike[str],
    name: ClientId,
    columns: Columns,
    *,
    test_path: str | os.PathLike[str] | None = None,
    test_size: float = 0.3,
    seed: int = 0,
    drop_unlabelled: bool = False,
) -> OwnTable:
    """Read the table of a site and hold out test rows.

    The test rows are the same as if the table were part of a larger one (`federate`). With
    ``test_path``, only the rows of that file are held out. ``columns.client`` must be `SITE`.
    """
    frames = []
    for place in (path, test_path):
        if place is not None:
            frame = read_table(place, text=columns.sensitive)
            if SITE in frame.columns:
                raise DataError(f"Column {SITE!r} must not be in the table. Rename it.")
            frame = frame.assign(**{SITE: name})
            check_roles(frame, columns)
            frames.append(labelled_rows(frame, columns.label) if drop_unlabelled else frame)
    roles_frame = pd.concat([frame[columns.names] for frame in frames], ignore_index=True)
    labels = cells.texts(roles_frame[columns.label]).levels
    levels = {column: cells.texts(roles_frame[column]).counts() for column in columns.sensitive}
    if test_path is not None:
        return OwnTable(name, columns, frames[0], frames[1], labels, levels)
    # If the site has only one label value, the split does not depend on which one it is.
    pair = (labels[0], "") if len(labels) == 1 else None
    roles = read_roles(frames[0], columns, labels=pair)
    train, test = stratified_split(_strata(roles), test_size, client_seed(seed, name))
    return OwnTable(name, columns, frames[0].iloc[train], frames[0].iloc[test], labels, levels)
