"""A site's encoded rows, kept on its disk: every message is answered by a fresh process.

That process pays for what it imports, so nothing of the server is imported here.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fcfl.data import ClientData, OwnTable, Schema, Statistics
from fcfl.data.coded_features import CodedFeatures
from fcfl.data.declared_rows import Declared, federate_declared
from fcfl.data.schema import Category, CategorySummary, NumberSummary, Summary
from fcfl.data.table import open_own_table
from fcfl.errors import DataError
from fcfl.federation.serialise import WIRE, Array, Serialiser, WireError, digest, seal, unseal
from fcfl.sites.messages import Agreement, Terms
from fcfl.sites.settings import SiteSettings

Arrays = dict[str, Array]

_ROWS = Serialiser(Arrays)

Part = Literal["train", "test"]


def table_checksum(settings: SiteSettings) -> str:
    """Identifies the site's files."""
    digest = hashlib.sha256()
    for path in (settings.table, settings.test_table):
        if path is not None and path.is_file():
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def rows_checksum(table: str, terms: Terms) -> str:
    """Identifies the site's files, by their checksum, and how they are split."""
    return digest((terms, table))


def open_rows(settings: SiteSettings, terms: Terms) -> OwnTable:
    """Read and split the site's table."""
    return open_own_table(
        settings.table,
        settings.name,
        terms.columns,
        test_path=settings.test_table,
        test_size=terms.test_size,
        seed=terms.seed,
        drop_unlabelled=terms.drop_unlabelled,
    )


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """The rows of both parts as the arrays of one file."""

    stored: Arrays

    def part(self, name: Part, agreement: Agreement) -> ClientData:
        """Training or held-out rows."""
        groups = {
            attribute: self.stored[f"{name}-group-{position}"]
            for position, attribute in enumerate(agreement.terms.sensitive)
        }
        X, y = _features(self.stored, name, agreement.schema), self.stored[f"{name}-y"]
        return ClientData(X, y, groups, agreement.levels)


def encoded_rows(settings: SiteSettings, agreement: Agreement, checksum: str) -> EncodedRows:
    """The rows as agreed: from the disk if they are whole there, else encoded and kept there.

    A site with a privacy budget reads each row by itself, and holds out those of its second file.
    """
    folder = settings.cache_folder
    whose = hashlib.sha256(repr((settings.name, str(settings.table))).encode()).hexdigest()[:12]
    encoding = (agreement.schema, agreement.labels, agreement.levels, _thresholds(settings))
    path = folder / f"{whose}-{digest((WIRE, checksum, encoding))[:32]}.rows"
    stored = _read(path)
    if stored is None:
        stored = (
            _encode_singly(settings, agreement)
            if settings.privacy
            else _encode(settings, agreement)
        )
        _write(path, stored)
        for other in folder.glob(f"{whose}-*"):
            if other != path:
                other.unlink(missing_ok=True)
    return EncodedRows(stored)


def _read(path: Path) -> Arrays | None:
    """Return the arrays of a whole file, or None."""
    try:
        content = unseal(path.read_bytes())
        return None if content is None else dict(_ROWS.load(content))
    except (OSError, WireError):
        return None


def _encode(settings: SiteSettings, agreement: Agreement) -> Arrays:
    """The rows as agreed, without levels and groups that too few rows here have.

    They were not named to the server; one that it guessed must not be confirmed.
    """
    table, least = open_rows(settings, agreement.terms), settings.read_policy.withhold_below
    federation = table.encode(agreement.schema, agreement.levels, agreement.labels)
    told = told_features(agreement.schema, withheld_statistics(table.statistics(), least))
    groups = named_groups(table, settings)
    parts = {}
    for name, data in (("train", federation.train), ("test", federation.test)):
        rows = data[table.name]
        codes = {
            attribute: np.where(np.isin(own, _absent(rows.levels[attribute], named)), -1, own)
            for attribute, named in groups.items()
            for own in [rows.groups[attribute]]
        }
        X = rows.X if least == 1 else _only_told(rows.X, told)
        parts[name] = replace(rows, X=X, groups=codes)
    return _arrays(parts, agreement)


def named_groups(table: OwnTable, settings: SiteSettings) -> dict[str, tuple[str, ...]]:
    """Return the groups that the site names: those of fewer rows are not compared."""
    return table.groups(max(_thresholds(settings)))


def _thresholds(settings: SiteSettings) -> tuple[int, int]:
    policy = settings.read_policy
    return policy.withhold_below, policy.min_group_rows


def _absent(levels: Sequence[str], named: Sequence[str]) -> list[int]:
    return [code for code, level in enumerate(levels) if level not in named]


def _encode_singly(settings: SiteSettings, agreement: Agreement) -> Arrays:
    """The rows as declared; nothing of it depends on other rows."""
    terms = agreement.terms
    table = federate_declared(
        settings.table,
        terms.columns,
        Declared(agreement.labels, agreement.levels, agreement.schema),
        client=settings.name,
        test_path=settings.test_table,
        drop_unlabelled=terms.drop_unlabelled,
    )
    parts = {"train": table.train[settings.name], "test": table.test[settings.name]}
    return _arrays(parts, agreement)


def _arrays(parts: Mapping[str, ClientData], agreement: Agreement) -> Arrays:
    arrays: Arrays = {}
    for name, rows in parts.items():
        X = rows.X
        if isinstance(X, CodedFeatures):
            arrays |= {f"{name}-slots": X.slots, f"{name}-numbers": X.numbers}
        else:
            arrays[f"{name}-X"] = X
        arrays[f"{name}-y"] = rows.y
        for position, attribute in enumerate(agreement.terms.sensitive):
            arrays[f"{name}-group-{position}"] = rows.groups[attribute]
    return arrays


def _only_told(X: Any, told: NDArray[np.bool_]) -> Any:
    """Return the features with columns that are not named set to zero."""
    if told.all():
        return X
    if isinstance(X, CodedFeatures):
        return X.without(~told)
    X = X.copy()
    X[:, ~told] = 0.0
    return X


def _write(path: Path, arrays: Arrays) -> None:
    """Keep the arrays, readable by this account only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(seal(_ROWS.dump(arrays)))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _features(stored: Arrays, name: Part, schema: Schema) -> Any:
    if f"{name}-X" in stored:
        return stored[f"{name}-X"]
    return CodedFeatures(schema.layout, stored[f"{name}-slots"], stored[f"{name}-numbers"])


def withheld_statistics(statistics: Statistics, least: int) -> Statistics:
    """Return the statistics without levels and numbers of fewer than ``least`` rows.

    The size of the rest follows from the others; its names do not.
    """
    columns = {name: _withheld(part, least) for name, part in statistics.columns.items()}
    return Statistics(columns)


def _withheld(summary: Summary, least: int) -> Summary:
    if isinstance(summary, CategorySummary):
        kept = {level: count for level, count in summary.counts.items() if count >= least}
        return CategorySummary(kept, summary.missing if summary.missing >= least else 0)
    n_rows = summary.n + summary.missing
    if summary.n < least:
        return NumberSummary(missing=n_rows)
    if 0 < summary.missing < least:  # as if the empty cells held the mean
        return replace(summary, n=n_rows, missing=0)
    return summary


def told_features(schema: Schema, told: Statistics) -> NDArray[np.bool_]:
    """Return which features of an encoding are of levels and numbers that the site has named."""
    features: list[bool] = []
    for column in schema.columns:
        summary = told.columns.get(column.name)
        if summary is None:
            raise DataError(f"Column {column.name!r} is no feature here.")
        if summary.n and summary.kind != column.kind:
            raise DataError(
                f"Column {column.name!r} is a {summary.kind} here, not a {column.kind}."
            )
        if isinstance(column, Category):
            known = summary.counts if isinstance(summary, CategorySummary) else {}
            features += [level in known for level in column.levels]
        else:
            features.append(summary.n > 0)
        if column.has_missing:
            features.append(summary.missing > 0)
    return np.array(features, dtype=np.bool_)
