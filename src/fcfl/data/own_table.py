"""One site's own table: split, summarised and encoded where it lies."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fcfl._random import client_seed
from fcfl._types import ClientId
from fcfl.errors import DataError

from ._cells import Frame, named_columns, texts
from .client_data import stratified_split
from .column_choice import unsuitable_columns
from .encoding import Schema
from .roles import Columns, check_roles, labelled_rows, read_roles
from .statistics import Statistics, summarise, withhold
from .table import FederatedTable, feature_columns, federate, strata_of
from .table_files import read_table

SITE = "(site)"  # the column that says whose rows they are; a site's own table needs none


@dataclass(frozen=True, eq=False)
class OwnTable:
    """Training and held-out rows of one site.

    ``labels`` are the label's values here, ``levels`` the groups of each sensitive column with how
    many rows each has.
    """

    name: ClientId
    columns: Columns
    train: Frame
    test: Frame
    labels: tuple[str, ...]
    levels: Mapping[str, Mapping[str, int]]

    def statistics(self, least: int = 1) -> Statistics:
        """What the training rows' features hold; what fewer than ``least`` rows do is left out."""
        return withhold(summarise(self.train, feature_columns(self.train, self.columns)), least)

    def unsuitable(self) -> tuple[str, ...]:
        """Sentences on identifiers, dates and columns that give the label away, for the site."""
        try:
            return unsuitable_columns(pd.concat([self.train, self.test]), self.columns)
        except DataError:
            return ()  # cells that cannot be used are told where they are encoded

    def groups(self, least: int = 1) -> dict[str, tuple[str, ...]]:
        """The groups of each sensitive column that have at least so many rows here."""
        return {
            name: tuple(level for level, rows in counts.items() if rows >= least)
            for name, counts in self.levels.items()
        }

    def encode(
        self, schema: Schema, levels: Mapping[str, Sequence[str]], labels: tuple[str, str]
    ) -> FederatedTable:
        """The rows as all sites have agreed to encode them; a group nobody named is none."""
        train, test = (known_groups(part, levels) for part in (self.train, self.test))
        return federate(
            train,
            self.columns,
            test_size=0.0,
            test_frame=test if len(test) else None,
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
    """Read a site's table and hold out test rows, the same ones as if it were part of a larger one.

    ``columns.client`` must be `SITE`. With ``test_path`` the rows there are held out, and no other.
    """
    frames = [
        _with_site(read_table(place, text=columns.sensitive), name, columns)
        for place in (path, test_path)
        if place is not None
    ]
    if drop_unlabelled:
        frames = [labelled_rows(frame, columns.label) for frame in frames]
    labels, levels = _values(frames, columns)
    if test_path is not None:
        return OwnTable(name, columns, frames[0], frames[1], labels, levels)
    # With one value here, which of the two it is does not matter to the split.
    pair = (labels[0], "") if len(labels) == 1 else None
    roles = read_roles(frames[0], columns, labels=pair)
    train, test = stratified_split(strata_of(roles), test_size, client_seed(seed, name))
    whole = frames[0]
    return OwnTable(name, columns, whole.iloc[train], whole.iloc[test], labels, levels)


def _with_site(frame: Frame, name: ClientId, columns: Columns) -> Frame:
    frame = named_columns(frame)
    if SITE in frame.columns:
        raise DataError(f"Column {SITE!r} must not be in the table. Rename it.")
    frame = frame.assign(**{SITE: name})
    check_roles(frame, columns)
    return frame


def _values(
    frames: Sequence[Frame], columns: Columns
) -> tuple[tuple[str, ...], dict[str, dict[str, int]]]:
    """Values of the label, and groups with their rows, over all of a site's rows."""
    labels: set[str] = set()
    levels: dict[str, dict[str, int]] = {column: {} for column in columns.sensitive}
    for frame in frames:
        labels.update(texts(frame[columns.label]).levels)
        for column, counts in levels.items():
            found = texts(frame[column])
            rows = np.bincount(found.codes[found.codes >= 0], minlength=len(found.levels))
            for level, count in zip(found.levels, rows.tolist(), strict=True):
                counts[level] = counts.get(level, 0) + count
    return tuple(sorted(labels)), levels


def known_groups(frame: Frame, levels: Mapping[str, Sequence[str]]) -> Frame:
    """The frame with the cells of unknown groups emptied."""
    columns = {}
    for name, known in levels.items():
        found = texts(frame[name])
        kept = [level if level in known else None for level in found.levels]
        columns[name] = np.array([*kept, None], dtype=object)[found.codes]
    return frame.assign(**columns)
