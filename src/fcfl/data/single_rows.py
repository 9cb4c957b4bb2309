"""Tables of private runs: every row is read by itself, so that no row changes how others are read.

Nothing is told from the content: a file is UTF-8 with a separator that its header shows, a row is
one line, a number is parsed cell by cell. What is neither a number nor declared is unknown.
"""

import csv
import gzip
import math
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd

from fcfl._types import ClientId
from fcfl.errors import DataError

from ._cells import Column, Frame, check_columns, text_of
from .declared import Declared
from .own_table import SITE, known_groups
from .roles import Columns, labelled_rows
from .table import FederatedTable, federate

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SEPARATORS = ",;\t|"


def federate_declared(
    path: str | os.PathLike[str],
    columns: Columns,
    declared: Declared,
    *,
    client: ClientId | None = None,
    test_path: str | os.PathLike[str] | None = None,
    drop_unlabelled: bool = False,
) -> FederatedTable:
    """The rows as declared, each encoded by itself; held out are those in ``test_path`` only.

    All are those of ``client``, or of whom the client column names.
    """
    frames = [_read(Path(place), columns, declared) for place in (path, test_path) if place]
    if drop_unlabelled:
        frames = [labelled_rows(frame, columns.label) for frame in frames]
    if client is not None:
        frames = [frame.assign(**{SITE: client}) for frame in frames]
    levels = {name: declared.levels[name] for name in columns.sensitive}
    train, *test = (known_groups(frame, levels) for frame in frames)
    return federate(
        train,
        columns,
        test_size=0.0,
        test_frame=test[0] if test else None,
        schema=declared.schema,
        levels=levels,
        labels=declared.labels,
    )


def _read(path: Path, columns: Columns, declared: Declared) -> Frame:
    """The columns with a role and the declared ones: numbers as such, all others as text."""
    numbers = [column.name for column in declared.schema.columns if column.kind == "number"]
    wanted = [*columns.names, *(column.name for column in declared.schema.columns)]
    frame, has_commas = _texts_of(path, [name for name in dict.fromkeys(wanted) if name != SITE])
    if not len(frame):
        raise DataError(f"The file {str(path)!r} has no rows, only a header.")
    return frame.assign(**{name: _numbers(frame[name], has_commas) for name in numbers})


def _texts_of(path: Path, names: Sequence[str]) -> tuple[Frame, bool]:
    """The named columns as text, and whether numbers may have a decimal comma."""
    ending = path.name.lower()
    try:
        if ending.endswith(".parquet"):
            return _parquet(path, names), False
        if ending.endswith((".csv", ".csv.gz")):
            opened = gzip.open if ending.endswith(".gz") else open
            with opened(path, "rb") as raw:
                file = TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")
                return _csv(path, file, names)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"Cannot read {str(path)!r}: {why}.") from None
    raise DataError(
        f"The file {str(path)!r} must end in .csv, .csv.gz or .parquet to be read privately: the "
        "cells of others have types of their own. Save it as CSV."
    )


def _csv(path: Path, file: TextIO, names: Sequence[str]) -> tuple[Frame, bool]:
    head = next(file, "")
    counts = {mark: len(next(csv.reader([head], delimiter=mark))) for mark in _SEPARATORS}
    separator = max(counts, key=lambda mark: counts[mark])  # the first of equal ones: a comma
    header = [name.strip() for name in next(csv.reader([head], delimiter=separator))]
    _check_header(path, header, names)
    places = [header.index(name) for name in names]
    rows = [[cells[place] for place in places] for cells in _rows(path, file, separator, header)]
    return pd.DataFrame(rows, columns=list(names), dtype=object), separator == ";"


def _rows(path: Path, file: TextIO, separator: str, header: Sequence[str]) -> Iterator[list[str]]:
    """One row a line; a quote that is left open would else take in the lines that follow."""
    found = csv.reader(file, delimiter=separator, skipinitialspace=True)
    line = 1
    try:
        for cells in found:
            line += 1
            if found.line_num != line - 1:
                raise DataError(
                    f"Line {line} of {str(path)!r} has a quote that does not end there."
                )
            if len(cells) > len(header):
                raise DataError(
                    f"Line {line} of {str(path)!r} has {len(cells)} cells instead of "
                    f"{len(header)}; a cell with a {separator!r} in it needs quotes."
                )
            if cells:
                yield cells + [""] * (len(header) - len(cells))
    except csv.Error as error:
        raise DataError(f"Cannot read line {line + 1} of {str(path)!r}: {error}.") from None


def _parquet(path: Path, names: Sequence[str]) -> Frame:
    """The file's own types are declared by it; each cell becomes its text."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        _check_header(path, parquet.read_schema(path).names, names)
        table = parquet.read_table(path, columns=list(names))
    except pa.ArrowException as error:
        raise DataError(f"Cannot read {str(path)!r}: {error}.") from None
    cells = {
        name: ["" if value is None else text_of(value) for value in table.column(name).to_pylist()]
        for name in names
    }
    return pd.DataFrame(cells, dtype=object)


def _check_header(path: Path, header: Sequence[str], names: Collection[str]) -> None:
    check_columns(pd.DataFrame(columns=list(header)), list(names))
    twice = [name for name in names if list(header).count(name) > 1]
    if twice:
        raise DataError(f"Column {twice[0]!r} occurs twice in {str(path)!r}. Rename one.")


def _numbers(column: Column, has_commas: bool) -> Column:
    """Each cell as a finite number; what is none is missing."""
    codes, levels = pd.factorize(column)
    texts = [text.strip() for text in levels]
    values = [_number(text.replace(",", ".") if has_commas else text) for text in texts]
    return np.array([*values, math.nan])[codes]


def _number(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan
