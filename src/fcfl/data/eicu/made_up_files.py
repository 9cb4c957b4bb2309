"""A folder of made-up tables, with a page that says so."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from fcfl.errors import DataError

from .made_up import EFFECT, FLAWS, Truth, draw_stays, truth
from .made_up_tables import COLUMNS, make_tables
from .tables import Frame, Watch

README = "README.md"
_TITLE = "# Made-up tables in the schema of eICU"
_FEWEST = 2 * len(FLAWS)


def make_up(
    folder: Path, hospitals: int = 11, stays: int = 2000, seed: int = 0, watch: Watch | None = None
) -> dict[str, int]:
    """Write made-up tables; the same arguments give the same bytes.

    Parameters
    ----------
    folder : made if it is not there; refused where other files lie in it
    hospitals : clients to be; one more hospital is too small to be one
    stays : of each hospital
    seed : seed of the draws
    watch : told of the share of the tables that are written

    Returns
    -------
    dict
        Rows of each table.
    """
    if hospitals < 1:
        raise ValueError(f"`hospitals` must be at least 1, got {hospitals!r}.")
    if stays < _FEWEST:
        raise ValueError(f"`stays` must be at least {_FEWEST} for each hospital, got {stays!r}.")
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = truth(hospitals, stays)
    (folder / README).write_text(_page(known, seed), encoding="utf-8")
    rng = np.random.default_rng(seed)
    made = make_tables(draw_stays(known, rng), rng)
    rows: dict[str, int] = {}
    name, part = next(made)
    while name:
        begun = name
        with _TableWriter(folder, begun) as writer:
            while name == begun:
                writer.add(part)
                name, part = next(made, ("", None))
        rows[begun] = writer.rows
        if watch:
            watch(begun, len(rows) / len(COLUMNS))
    return rows


class _TableWriter:
    """One table, written part by part to a draft that takes its name when it is whole."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.csv.gz"
        self.draft = folder / f".draft-{name}"
        self.columns = COLUMNS[name].split(",")
        self.rows = 0

    def __enter__(self) -> "_TableWriter":
        self._raw = open(self.draft, "wb")
        # No time stamp: the same arguments give the same bytes.
        self._file = gzip.GzipFile("", "wb", compresslevel=1, fileobj=self._raw, mtime=0)
        self._file.write((",".join(self.columns) + "\n").encode())
        return self

    def add(self, part: Frame) -> None:
        """Write some rows; the first column numbers them, absent columns are empty."""
        size = len(part)
        filled: dict[str, Any] = {name: part[name] for name in part.columns}
        key = self.columns[0]
        if key not in filled:
            filled[key] = np.arange(self.rows + 1, self.rows + size + 1)
        arrays = [
            pa.Array.from_pandas(filled[name]) if name in filled else pa.nulls(size, pa.string())
            for name in self.columns
        ]
        options = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
        arrow_csv.write_csv(pa.Table.from_arrays(arrays, self.columns), self._file, options)
        self.rows += size

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self._file.close()
            self._raw.close()
            if kind is None:
                os.replace(self.draft, self.path)
        finally:
            self.draft.unlink(missing_ok=True)


def _check_folder(folder: Path) -> None:
    """Never write among files that may be somebody's real tables."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"Made-up tables need a folder, got the file {str(folder)!r}.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    page = folder / README
    if not (page.is_file() and page.read_text(encoding="utf-8").startswith(_TITLE)):
        raise DataError(
            f"The folder {str(folder)!r} holds other files, and made-up tables must not be mixed "
            "with real ones. Name a new or an empty folder."
        )


def _page(known: Truth, seed: int) -> str:
    lines = [
        f"| {int(row.hospital)} | {int(row.stays)} | {row.caucasian:.2f} | {row.gap:.2f} | "
        f"{row.los7:.2f} | {row.mortality:.2f} |"
        for row in known.frame().itertuples()
    ]
    return (
        f"""{_TITLE}

No patient is behind any row here. A random generator (seed {seed}) wrote these tables so that every
step can be tried without the credentialed database. Figures from them say nothing about hospitals.

What is known about them: severity is normal with spread 1, mean 0 for Caucasian patients and `gap`
for all others; vital signs and labs shift with it. The log-odds of a hospital stay above 7 days are
`los7` + {EFFECT["los7"]} × severity, of death `mortality` + {EFFECT["mortality"]} × severity.
Some stays have one flaw each, so that every cohort rule removes stays of its own. The last hospital
is too small to be a client.

| hospital | stays | share Caucasian | gap | los7 | mortality |
| --- | --- | --- | --- | --- | --- |
"""
        + "\n".join(lines)
        + "\n"
    )
