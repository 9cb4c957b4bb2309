"""A site's encoded rows, cached on its disk: a new process handles each message.

Imports add to its start-up time, so this file imports no server code.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcfl.data import ClientData, OwnTable, Schema, Statistics
from fcfl.data.cells import Category, CategorySummary, NumberSummary, Summary
from fcfl.data.client_data import CodedFeatures
from fcfl.data.declared_rows import Declared, federate_declared, read_declared, split_by_content
from fcfl.data.table import open_own_table
from fcfl.errors import DataError
from fcfl.federation.serialise import WIRE, Array, Serialiser, WireError, digest, seal, unseal
from fcfl.sites.messages import Agreement, Terms
from fcfl.sites.settings import SiteSettings

Stored = dict[str, dict[str, Array]]
"""Arrays by name, for training (``train``) and held-out rows (``test``)."""

_STORED = Serialiser(Stored)


def table_checksum(settings: SiteSettings) -> str:
    """Return the SHA-256 of the site's files."""
    whole = hashlib.sha256()
    for path in (settings.table, settings.test_table):
        if path is not None and path.is_file():
            with open(path, "rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


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


def named_groups(table: OwnTable, settings: SiteSettings) -> dict[str, tuple[str, ...]]:
    """Return the groups that the site reports: those with enough rows for the policy."""
    return table.groups(max(_thresholds(settings)))


def declared_columns(settings: SiteSettings) -> Declared:
    """Return the declared columns of a site with a privacy budget."""
    schema = settings.read_policy.schema
    assert schema is not None  # a policy with [privacy] has one
    return read_declared(schema)


def encoded_rows(
    settings: SiteSettings, agreement: Agreement, checksum: str
) -> tuple[ClientData, ClientData]:
    """Return encoded training and held-out rows, from the cache if its file is intact.

    A site with a privacy budget encodes each row independently of the others. The site holds out
    the rows of its second file or, without one, splits by each row's content.
    """
    folder = settings.cache_folder
    whose = hashlib.sha256(repr((settings.name, str(settings.table))).encode()).hexdigest()[:12]
    encoding = (agreement.schema, agreement.labels, agreement.levels, _thresholds(settings))
    path = folder / f"{whose}-{digest((WIRE, checksum, encoding))[:32]}.rows"
    stored = _read(path)
    if stored is None:
        encode = _encode if settings.privacy is None else _encode_singly
        parts = dict(zip(("train", "test"), encode(settings, agreement), strict=True))
        stored = {name: _arrays(rows) for name, rows in parts.items()}
        _write(path, stored)
        for other in folder.glob(f"{whose}-*"):
            if other != path:
                other.unlink(missing_ok=True)
    train, test = (_part(stored[name], agreement) for name in ("train", "test"))
    if settings.privacy is not None and settings.test_table is None:
        return split_by_content(train, agreement.terms.test_size, agreement.terms.seed)
    return train, test


def _thresholds(settings: SiteSettings) -> tuple[int, int]:
    policy = settings.read_policy
    return policy.withhold_below, policy.min_group_rows


# --- encoding -------------------------------------------------------------------------------------


def _encode(settings: SiteSettings, agreement: Agreement) -> tuple[ClientData, ClientData]:
    """Return the encoded rows, without levels and groups that have too few rows at this site.

    These levels were withheld from the server; encoding them would confirm a server's guess.
    """
    table, min_rows = open_rows(settings, agreement.terms), settings.read_policy.withhold_below
    federation = table.encode(agreement.schema, agreement.levels, agreement.labels)
    named = named_features(agreement.schema, withhold(table.statistics(), min_rows))
    groups = named_groups(table, settings)

    def withheld(rows: ClientData) -> ClientData:
        codes = {
            attribute: np.where(np.isin(own, _absent(rows.levels[attribute], known)), -1, own)
            for attribute, known in groups.items()
            for own in [rows.groups[attribute]]
        }
        return replace(rows, X=rows.X if min_rows == 1 else _only(named, rows.X), groups=codes)

    return withheld(federation.train[table.name]), withheld(federation.test[table.name])


def _encode_singly(settings: SiteSettings, agreement: Agreement) -> tuple[ClientData, ClientData]:
    """Return the rows as declared; no row's encoding depends on another row."""
    terms = agreement.terms
    table = federate_declared(
        settings.table,
        terms.columns,
        Declared(agreement.labels, agreement.levels, agreement.schema),
        client=settings.name,
        test_path=settings.test_table,
        drop_unlabelled=terms.drop_unlabelled,
    )
    return table.train[settings.name], table.test[settings.name]


def _absent(levels: Sequence[str], named: Sequence[str]) -> list[int]:
    return [code for code, level in enumerate(levels) if level not in named]


def withhold(statistics: Statistics, min_rows: int) -> Statistics:
    """Return the statistics without counts from fewer than ``min_rows`` rows.

    1. Levels with fewer rows are omitted.
    2. A numeric column with fewer values is reported as missing in all rows.
    3. Missing cells of a numeric column, if fewer, are counted as values equal to the mean.
    """
    kept: dict[str, Summary] = {}
    for name, one in statistics.columns.items():
        is_common = one.missing >= min_rows or not one.missing
        if isinstance(one, CategorySummary):
            counts = {level: count for level, count in one.counts.items() if count >= min_rows}
            kept[name] = CategorySummary(counts, one.missing if is_common else 0)
        elif one.n < min_rows:
            kept[name] = NumberSummary(missing=one.n + one.missing)
        else:
            kept[name] = one if is_common else replace(one, n=one.n + one.missing, missing=0)
    return Statistics(kept)


def named_features(schema: Schema, statistics: Statistics) -> NDArray[np.bool_]:
    """Return a mask of the features whose level or number is in the site's statistics."""
    features: list[bool] = []
    for column in schema.columns:
        summary = statistics.columns.get(column.name)
        if summary is None:
            raise DataError(f"Column {column.name!r} is not a feature at this site.")
        if summary.n and summary.kind != column.kind:
            raise DataError(
                f"Column {column.name!r} is a {summary.kind} at this site, not a {column.kind}."
            )
        if isinstance(column, Category):
            known = summary.counts if isinstance(summary, CategorySummary) else {}
            features += [level in known for level in column.levels]
        else:
            features.append(summary.n > 0)
        if column.has_missing:
            features.append(summary.missing > 0)
    return np.array(features, dtype=np.bool_)


def _only(named: NDArray[np.bool_], X: Any) -> Any:
    """Return a copy of the features, zero where ``named`` is False."""
    if named.all():
        return X
    return X.without(~named) if isinstance(X, CodedFeatures) else np.where(named, X, 0.0)


# --- the cache ------------------------------------------------------------------------------------


def _arrays(rows: ClientData) -> dict[str, Array]:
    X = rows.X
    coded = isinstance(X, CodedFeatures)
    features = {"slots": X.slots, "numbers": X.numbers} if coded else {"X": X}
    groups = {f"group {attribute}": codes for attribute, codes in rows.groups.items()}
    return {**features, "y": rows.y, **groups}


def _part(stored: dict[str, Array], agreement: Agreement) -> ClientData:
    groups = {name: stored[f"group {name}"] for name in agreement.terms.sensitive}
    X: Any = stored.get("X")
    if X is None:
        X = CodedFeatures(agreement.schema.layout, stored["slots"], stored["numbers"])
    return ClientData(X, stored["y"], groups, agreement.levels)


def _read(path: Path) -> Stored | None:
    """Return the arrays of a file, or None if it is missing or damaged."""
    try:
        content = unseal(path.read_bytes())
        return None if content is None else _STORED.load(content)
    except (OSError, WireError):
        return None


def _write(path: Path, stored: Stored) -> None:
    """Write the arrays, readable by this account only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(seal(_STORED.dump(stored)))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
