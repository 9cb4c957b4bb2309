"""CSV files as people have them: their separator, encoding and decimal comma are recognised."""

import codecs
import csv
import gzip
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from fcfl.errors import DataError

from ._cells import Frame, add_note, check_names
from .arrow_frames import arrow_to_pandas
from .cell_formats import interpret

_CODES = pa.dictionary(pa.int32(), pa.string())
_MOST_CODES = 100_000  # distinct texts of a column; with more it is read as plain text
_HEAD = 1 << 16  # bytes by which the dialect is recognised
_LEGACY = "cp1252"
_EMPTY = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""What counts as an empty cell: the list of pandas."""
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written, and the names in its header.

    ``is_plain`` is false where Arrow and pandas differ: Arrow does not skip spaces after a
    separator, nor lines before the header, and takes a quote that is never closed for text.
    """

    encoding: str = "utf-8"
    separator: str = ","
    decimal: str = "."
    names: tuple[str, ...] = ()
    is_plain: bool = True
    has_quotes: bool = False


def read_csv(path: Path, text: Sequence[str], marks: Sequence[str] | None) -> Frame:
    """Read a CSV file; the columns in ``text`` stay as they stand, ``marks`` count as empty."""
    dialect = dialect_of(path)
    check_names(dialect.names, path)
    try:
        frame = _parse(path, dialect, text)
    except UnicodeDecodeError:
        dialect = replace(dialect, encoding=_LEGACY)
        frame = _parse(path, dialect, text)
    frame = interpret(frame, marks, text, decimal=dialect.decimal)
    if dialect.encoding == _LEGACY:
        add_note(
            frame,
            f"The file {path.name!r} is not UTF-8 and was read as Windows-1252. If names look "
            "wrong, save it as UTF-8.",
        )
    return frame


def read_csv_text(path: Path) -> tuple[Frame, Dialect]:
    """Return every cell as it stands in the file, and how the file is written."""
    dialect = dialect_of(path)
    options = {"sep": dialect.separator, "dtype": str, "keep_default_na": False}
    read = partial(pd.read_csv, path, **options, index_col=False, low_memory=False)
    try:
        return read(encoding=dialect.encoding), dialect
    except UnicodeDecodeError:
        return read(encoding=_LEGACY), replace(dialect, encoding=_LEGACY)
    except pd.errors.ParserError:  # a quote after a space
        return read(encoding=dialect.encoding, skipinitialspace=True), dialect


def _parse(path: Path, dialect: Dialect, text: Sequence[str]) -> Frame:
    if dialect.is_plain:
        try:
            return _by_arrow(path, dialect, text)
        except pa.ArrowInvalid:
            pass  # pandas allows short rows, and names the line of long ones and the wrong byte
    return _by_pandas(path, dialect, text)


def dialect_of(path: Path) -> Dialect:
    """Recognise encoding, separator and decimal mark by the beginning of a file."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        head = file.read(_HEAD)
        rest = iter(partial(file.read, _HEAD), b"")
        n_quotes = head.count(b'"') + sum(part.count(b'"') for part in rest)
    is_utf_16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in head and not is_utf_16:
        raise DataError(
            f"Cannot read {str(path)!r}: it holds zero bytes and is no UTF-16 with a mark; save it "
            "as UTF-8."
        )
    has_mark = head.startswith(codecs.BOM_UTF8)
    encoding = "utf-16" if is_utf_16 else "utf-8-sig" if has_mark else "utf-8"
    lines = head.decode(encoding, errors="replace").splitlines(keepends=True)
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise DataError(f"The file {str(path)!r} has no header, only empty lines.")
    counts = {mark: len(next(csv.reader([filled[0]], delimiter=mark))) for mark in ",;\t|"}
    separator = max(counts, key=lambda mark: counts[mark])  # the first of equal ones: a comma
    rows = list(csv.reader(filled, delimiter=separator))
    has_commas = any(_DECIMAL_COMMA.fullmatch(cell.strip()) for row in rows for cell in row)
    has_spaces = any(cell[:1].isspace() for row in rows for cell in row)
    is_one_line = bool(lines[0].strip()) and lines[0].count('"') % 2 == 0
    return Dialect(
        encoding,
        separator,
        "," if has_commas and separator != "," else ".",
        tuple(name.strip() for name in rows[0]),
        is_plain=is_one_line and not has_spaces and n_quotes % 2 == 0,
        has_quotes=n_quotes > 0,
    )


def _by_arrow(path: Path, dialect: Dialect, text: Sequence[str]) -> Frame:
    names = _column_names(dialect)
    asked = {name: _CODES for name in text if name in names}
    table = _arrow_table(path, dialect, names, asked)
    if any(_is_bytes(field.type) for field in table.schema):
        raise pa.ArrowInvalid("text that is not UTF-8 became bytes")
    dates = [field.name for field in table.schema if pa.types.is_temporal(field.type)]
    if dates:  # Arrow takes texts such as 2020-01-31 for dates; they stay as they stand
        table = _arrow_table(path, dialect, names, asked | dict.fromkeys(dates, _CODES))
    return arrow_to_pandas(table)


def _is_bytes(kind: Any) -> bool:
    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(content))


def _arrow_table(path: Path, dialect: Dialect, names: list[str], types: dict[str, object]) -> Any:
    from pyarrow import csv as arrow_csv  # here and below: `import fcfl` is to stay quick

    encoding = dialect.encoding.removesuffix("-sig")  # Arrow reads UTF-8 itself, others by Python
    return arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(column_names=names, skip_rows=1, encoding=encoding),
        arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=dialect.has_quotes),
        arrow_csv.ConvertOptions(
            column_types=types,
            decimal_point=dialect.decimal,
            null_values=list(_EMPTY),
            strings_can_be_null=True,
            auto_dict_encode=True,
            auto_dict_max_cardinality=_MOST_CODES,
        ),
    )


def _column_names(dialect: Dialect) -> list[str]:
    """The header's names; columns without one are called as pandas calls them."""
    return [name or f"Unnamed: {place}" for place, name in enumerate(dialect.names)]


def _by_pandas(path: Path, dialect: Dialect, text: Sequence[str]) -> Frame:
    with warnings.catch_warnings():
        # pandas would drop the cells of a row longer than the header, with only a warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path,
            sep=dialect.separator,
            decimal=dialect.decimal,
            encoding=dialect.encoding,
            header=0,
            names=_column_names(dialect),
            dtype=dict.fromkeys(text, str),
            index_col=False,
            skipinitialspace=True,
            low_memory=False,
        )
