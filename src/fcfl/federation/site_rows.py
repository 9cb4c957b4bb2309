"""A site's encoded rows, kept on its disk: every message is answered by a fresh process.

That process pays for what it imports, so nothing of the server is imported here.
"""

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse

from fcfl.data import ClientData, Columns, OwnTable, open_own_table
from fcfl.data.own_table import SITE
from fcfl.federation.codec import Arrays, encode
from fcfl.federation.messages import Agreement, Terms
from fcfl.federation.site_settings import SiteSettings

_FORM = b"rows-1"
_TORN = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)

Part = Literal["train", "test"]


def rows_checksum(settings: SiteSettings, terms: Terms) -> str:
    """Identifies the site's files and how they are split."""
    digest = hashlib.sha256(json.dumps(encode(terms)[0]).encode())
    for path in (settings.table, settings.test_table):
        if path is not None and path.is_file():
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def open_rows(settings: SiteSettings, terms: Terms) -> OwnTable:
    """Read and split the site's table."""
    return open_own_table(
        settings.table,
        settings.name,
        Columns(SITE, terms.label, terms.sensitive, terms.drop, terms.positive),
        test_path=settings.test_table,
        test_size=terms.test_size,
        seed=terms.seed,
    )


@dataclass(frozen=True)
class EncodedRows:
    """The rows of both parts as one file; a part is read when it is asked for."""

    path: Path

    def part(self, name: Part, agreement: Agreement) -> ClientData:
        """Training or held-out rows."""
        with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            groups = {
                attribute: stored[f"{name}-group-{position}"]
                for position, attribute in enumerate(agreement.terms.sensitive)
            }
            return ClientData(
                _features(stored, name), stored[f"{name}-y"], groups, agreement.levels
            )


def encoded_rows(settings: SiteSettings, agreement: Agreement, checksum: str) -> EncodedRows:
    """The rows as agreed: from the disk if they are there, else encoded and kept there."""
    folder = settings.cache_folder
    whose = hashlib.sha256(repr((settings.name, str(settings.table))).encode()).hexdigest()[:12]
    path = folder / f"{whose}-{_key(agreement, checksum)}.npz"
    if not _is_whole(path):
        _write(path, open_rows(settings, agreement.terms), agreement)
        for other in folder.glob(f"{whose}-*.npz"):
            if other != path:
                other.unlink(missing_ok=True)
    return EncodedRows(path)


def _key(agreement: Agreement, checksum: str) -> str:
    parts = (agreement.schema, agreement.labels, dict(agreement.levels))
    digest = hashlib.sha256(_FORM + checksum.encode())
    digest.update(json.dumps(encode(parts)[0]).encode())
    return digest.hexdigest()[:32]


def _is_whole(path: Path) -> bool:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return bool(stored["whole"])
    except _TORN:
        return False


def _write(path: Path, table: OwnTable, agreement: Agreement) -> None:
    federation = table.encode(agreement.schema, agreement.levels, agreement.labels)
    arrays: Arrays = {"whole": np.array(True)}
    for name, data in (("train", federation.train), ("test", federation.test)):
        rows = data[table.name]
        X = rows.X
        if sparse.issparse(X):
            shape = np.array(X.shape)
            parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": shape}
            arrays |= {f"{name}-X-{key}": part for key, part in parts.items()}
        else:
            arrays[f"{name}-X"] = X
        arrays[f"{name}-y"] = rows.y
        for position, attribute in enumerate(agreement.terms.sensitive):
            arrays[f"{name}-group-{position}"] = rows.groups[attribute]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # a key could be `allow_pickle`
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _features(stored: Any, name: Part) -> Any:
    if f"{name}-X" in stored.files:
        return stored[f"{name}-X"]
    data, indices, indptr, shape = (
        stored[f"{name}-X-{key}"] for key in ("data", "indices", "indptr", "shape")
    )
    return sparse.csr_array((data, indices, indptr), shape=tuple(shape))
