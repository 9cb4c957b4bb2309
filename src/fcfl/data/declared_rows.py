"""Read tables for private runs, with declared columns and each row read independently.

No row affects how another row is read, and nothing is detected from the cells. Files are UTF-8;
the separator is detected from the header. Each row is one line, and numbers are parsed cell by
cell. A cell that is neither a number nor a declared level is unknown. Columns are declared in a
TOML file::

    label = ["no", "yes"]            # the negative and the positive value

    [groups]                         # groups of each sensitive column; other rows have no group
    sex = ["Female", "Male"]

    [numbers]                        # centre and scale, from a codebook or from experience
    age = [40, 15]

    [categories]                     # levels, from a codebook; other cells are unknown
    workclass = ["Private", "State-gov"]
"""

import hashlib
import math
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from fcfl import policy
from fcfl._files import parse_toml
from fcfl._types import ClientId
from fcfl.errors import DataError

from .cells import Category, Column, Frame, Number, Schema, check_columns, text_of
from .client_data import ClientData, dense, row_blocks
from .columns import Columns, labelled_rows
from .rows import csv_rows, open_bytes, separator_of
from .table import SITE, FederatedTable, federate

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BLOCK = 8192


# --- the declaration ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declared:
    """Label values, groups and feature encoding, declared independently of the rows."""

    labels: tuple[str, str]
    levels: Mapping[str, tuple[str, ...]]
    schema: Schema


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: tuple[str, str]
    groups: Annotated[
        dict[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=2)]],
        msgspec.Meta(min_length=1),
    ]
    numbers: dict[str, tuple[float, Annotated[float, msgspec.Meta(gt=0)]]] = {}
    categories: dict[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]] = {}


def read_declared(path: str | os.PathLike[str]) -> Declared:
    """Read and validate a file that declares columns."""
    where = f"schema {str(path)!r}"
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read the {where}: {error.strerror}. Check the path.") from None
    found = policy.read_table(_File, parse_toml(content, where), where)
    for key, entries in (("groups", found.groups), ("categories", found.categories)):
        for name, levels in entries.items():
            if len(set(levels)) != len(levels):
                raise DataError(f"In {where}, `{key}.{name}` names a text twice: {levels!r}.")
    columns: list[Number | Category] = [Number(name, *of) for name, of in found.numbers.items()]
    columns += [Category(name, levels) for name, levels in found.categories.items()]
    if not columns:
        raise DataError(f"In {where}: `numbers` or `categories` must declare a column.")
    return Declared(found.label, found.groups, Schema(tuple(columns)))


# --- rows -----------------------------------------------------------------------------------------


def federate_declared(
    path: str | os.PathLike[str],
    columns: Columns,
    declared: Declared,
    *,
    client: ClientId | None = None,
    test_path: str | os.PathLike[str] | None = None,
    drop_unlabelled: bool = False,
) -> FederatedTable:
    """Read tables and encode each row independently by the declared schema.

    Only the rows of ``test_path`` are held out. All rows belong to ``client`` if it is given, and
    otherwise to the client named in the client column.
    """
    frames = [_read(Path(place), columns, declared) for place in (path, test_path) if place]
    if drop_unlabelled:
        frames = [labelled_rows(frame, columns.label) for frame in frames]
    if client is not None:
        frames = [frame.assign(**{SITE: client}) for frame in frames]
    return federate(
        frames[0],
        columns,
        test_size=0.0,
        test_frame=frames[1] if len(frames) > 1 else None,
        schema=declared.schema,
        levels=declared.levels,
        labels=declared.labels,
    )


def split_by_content(
    data: ClientData, test_size: float, seed: int
) -> tuple[ClientData, ClientData]:
    """Split into training and held-out rows by a hash of each row's content and the seed.

    Adding a row therefore never moves another row to the other part. Equal rows stay together.
    """
    key = hashlib.sha256(f"split {seed}".encode()).hexdigest()[:16]
    hashed = np.zeros(data.n_rows, dtype=np.uint64)
    for rows in row_blocks(data.n_rows, _BLOCK):
        codes = [codes[rows] for _, codes in sorted(data.groups.items())]
        lines = (
            np.column_stack([dense(data.X[rows]), data.y[rows], *codes]) + 0.0
        )  # no negative zero
        texts = np.ascontiguousarray(lines).view(f"V{8 * lines.shape[1]}").ravel()
        content = np.array([one.tobytes() for one in texts], dtype=object)
        hashed[rows] = pd.util.hash_array(content, hash_key=key, categorize=False)
    in_test = hashed < np.uint64(min(int(test_size * 2.0**64), 2**64 - 1))
    return data.take(np.flatnonzero(~in_test)), data.take(np.flatnonzero(in_test))


def _read(path: Path, columns: Columns, declared: Declared) -> Frame:
    """Read the declared columns and those with a role: numbers as floats, the others as text."""
    numbers = [column.name for column in declared.schema.columns if column.kind == "number"]
    named = [*columns.names, *(column.name for column in declared.schema.columns)]
    wanted = [name for name in dict.fromkeys(named) if name != SITE]
    try:
        if path.name.lower().endswith(".parquet"):
            frame, decimal = _parquet(path, wanted), "."
        elif path.name.lower().endswith((".csv", ".csv.gz")):
            frame, decimal = _csv(path, wanted)
        else:
            raise DataError(
                f"The file {str(path)!r} must end in .csv, .csv.gz or .parquet to be read "
                "privately, because other formats have their own cell types. Save it as CSV."
            )
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"Cannot read {str(path)!r}: {why}.") from None
    if not len(frame):
        raise DataError(f"The file {str(path)!r} has no rows, only a header.")
    return frame.assign(**{name: _numbers(frame[name], decimal) for name in numbers})


def _csv(path: Path, names: Sequence[str]) -> tuple[Frame, str]:
    """Return the cells as unchanged text, and the decimal mark."""
    with TextIOWrapper(open_bytes(path), "utf-8-sig", errors="replace", newline="") as file:
        separator = separator_of(file.readline())
        file.seek(0)
        rows = csv_rows(path, file, separator, one_line=True)
        header = [name.strip() for name in next(rows, [])]
        _check_header(path, header, names)
        frame = pd.DataFrame(list(rows), columns=header, dtype=object)[list(names)]
    return frame, "," if separator == ";" else "."


def _parquet(path: Path, names: Sequence[str]) -> Frame:
    """Return the cells as text, converted from the types that the file declares."""
    from pyarrow import parquet

    _check_header(path, parquet.read_schema(path).names, names)
    table = parquet.read_table(path, columns=list(names)).to_pydict()
    return pd.DataFrame(
        {name: ["" if v is None else text_of(v) for v in table[name]] for name in names},
        dtype=object,
    )


def _check_header(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    check_columns(pd.DataFrame(columns=list(header)), names)
    twice = [name for name in names if list(header).count(name) > 1]
    if twice:
        raise DataError(f"Column {twice[0]!r} occurs twice in {str(path)!r}. Rename one.")


def _numbers(column: Column, decimal: str) -> Column:
    """Return the cells as numbers, with NaN for cells that are not finite numbers."""
    codes, levels = pd.factorize(column)
    texts = [text.strip().replace(decimal, ".") for text in levels]
    values = np.array([float(text) if _NUMBER.fullmatch(text) else math.nan for text in texts])
    values[~np.isfinite(values)] = math.nan
    return np.append(values, math.nan)[codes]
