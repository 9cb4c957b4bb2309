"""A folder of simulated tables, with a README that says so."""

import gzip
import os
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from fcfl.errors import DataError
from fcfl_paper.eicu.source_tables import Frame, OnProgress

from .simulated_stays import EFFECT, FLAWS, Truth, draw_stays, truth
from .simulated_tables import COLUMNS, make_tables

README = "README.md"
_TITLE = "# Simulated tables in the schema of eICU"
_FEWEST_STAYS = 2 * len(FLAWS)
_NO_HEADER = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")


def simulate(
    folder: Path,
    hospitals: int = 11,
    stays: int = 2000,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> dict[str, int]:
    """Write simulated tables; the same arguments give the same bytes.

    Parameters
    ----------
    folder : created if missing; must not hold other files
    hospitals : hospitals large enough to be clients; one more is written that is too small
    stays : of each hospital
    seed : seed of the draws
    on_progress : called with the share of the tables written so far

    Returns
    -------
    dict
        Rows of each table.
    """
    check_size(hospitals, stays)
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = truth(hospitals, stays)
    (folder / README).write_text(_page(known, seed), encoding="utf-8")
    rng = np.random.default_rng(seed)
    made = make_tables(draw_stays(known, rng), rng)
    rows: dict[str, int] = {}
    for name, parts in groupby(made, key=itemgetter(0)):
        rows[name] = _write_table(folder, name, (part for _, part in parts))
        if on_progress:
            on_progress(name, len(rows) / len(COLUMNS))
    return rows


def check_size(hospitals: int, stays: int) -> None:
    """Every cohort rule must have stays to remove, which needs a minimum size."""
    for name, value, fewest in (("hospitals", hospitals, 1), ("stays", stays, _FEWEST_STAYS)):
        if value < fewest:
            raise ValueError(f"`{name}` must be at least {fewest}, got {value!r}.")


def _write_table(folder: Path, name: str, parts: Iterable[Frame]) -> int:
    """Write a table part by part to a draft that is renamed when it is complete."""
    path, draft = folder / f"{name}.csv.gz", folder / f".draft-{name}"
    columns = COLUMNS[name].split(",")
    rows = 0
    try:
        # No time stamp: the same arguments give the same bytes.
        with (
            open(draft, "wb") as raw,
            gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as file,
        ):
            file.write((",".join(columns) + "\n").encode())
            for part in parts:
                arrow_csv.write_csv(_published(part, columns, rows), file, _NO_HEADER)
                rows += len(part)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return rows


def _published(part: Frame, columns: list[str], rows_before: int) -> Any:
    """All columns of a table: the first one numbers the rows, absent ones are empty."""
    numbers = np.arange(rows_before + 1, rows_before + len(part) + 1)
    filled = {columns[0]: numbers} | {name: part[name] for name in part.columns}
    empty = pa.nulls(len(part), pa.string())
    arrays = [pa.Array.from_pandas(filled[name]) if name in filled else empty for name in columns]
    return pa.Table.from_arrays(arrays, columns)


def _check_folder(folder: Path) -> None:
    """Never write among files that may be real tables."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"Simulated tables need a folder, got the file {str(folder)!r}.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    page = folder / README
    if not (page.is_file() and page.read_text(encoding="utf-8").startswith(_TITLE)):
        raise DataError(
            f"The folder {str(folder)!r} holds other files, and simulated tables must not be mixed "
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
