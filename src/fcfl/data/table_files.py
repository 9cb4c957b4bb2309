"""Tables on disk, read by Arrow: text becomes codes into its distinct values, never objects."""

import codecs
import csv
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fcfl.errors import DataError

from ._cells import Frame, named_columns

NOTES = "notes"  # key in a frame's `attrs`: sentences about how the file was read

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    zlib.error,
    pd.errors.ParserWarning,
    pa.ArrowException,
)
_CODES = pa.dictionary(pa.int32(), pa.string())
_MOST_CODES = 100_000  # distinct texts of a column; with more it is read as plain text
_HEAD = 1 << 16  # bytes by which separator and encoding are told
_SOME_LINES = 50  # and lines
_EMPTY = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""What counts as an empty cell: the list of pandas."""
_COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)?")


def read_table(path: str | os.PathLike[str], *, text: Sequence[str] = ()) -> Frame:
    """Read a table from a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

    A CSV file's cells may be separated by commas, semicolons, tabs or bars, as its header is. It is
    UTF-8, or UTF-16 with a byte order mark; other files are taken as Windows-1252, with a note in
    ``attrs["notes"]`` of the frame.

    Parameters
    ----------
    path : str or path
    text : names of columns
        Read from CSV as they stand, so that the client ``007`` is not the client ``7``. Names
        that the file does not have are passed over.
    """
    path = Path(path)
    read = _reader(path)
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r}. Check the path.")
    if path.stat().st_size == 0:
        raise DataError(f"The file {str(path)!r} is empty. It needs a header and rows.")
    try:
        frame = read(path, text)
    except DataError:
        raise
    except _UNREADABLE as error:
        raise DataError(f"Cannot read {str(path)!r}: {_reason(error)}.") from None
    if not len(frame):
        raise DataError(f"The file {str(path)!r} has no rows, only a header.")
    return named_columns(frame)


def _reader(path: Path) -> Callable[[Path, Sequence[str]], Frame]:
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return _read_csv
    if name.endswith(".parquet"):
        return _read_parquet
    raise DataError(
        f"The file {str(path)!r} must end in .csv, .csv.gz or .parquet. Convert or rename it."
    )


# --- CSV ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """How a CSV file is written, and the names in its header.

    ``is_plain`` says that Arrow reads it as pandas would: it does not pass over spaces after a
    separator, nor lines before the header.
    """

    encoding: str
    separator: str
    names: tuple[str, ...]
    is_plain: bool


def _read_csv(path: Path, text: Sequence[str]) -> Frame:
    form = _form_of(path)
    twice = [name for place, name in enumerate(form.names) if name and name in form.names[:place]]
    if twice:
        raise DataError(f"Column {twice[0]!r} occurs twice in {str(path)!r}. Rename one.")
    try:
        frame = _parse(path, form, text)
    except UnicodeDecodeError:
        form = replace(form, encoding="cp1252")
        frame = _parse(path, form, text)
    if form.separator == ";":
        frame = _with_decimal_commas(frame, text)
    if form.encoding == "cp1252":
        frame.attrs[NOTES] = (
            f"The file {path.name!r} is not UTF-8 and was read as Windows-1252. If names look "
            "wrong, save it as UTF-8.",
        )
    return frame


def _parse(path: Path, form: _Form, text: Sequence[str]) -> Frame:
    if form.is_plain:
        try:
            return _by_arrow(path, form, text)
        except pa.ArrowInvalid:
            pass  # pandas allows short rows, names the line of long ones, and the wrong byte
    return _by_pandas(path, form, text)


def _form_of(path: Path) -> _Form:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        head = file.read(_HEAD)
    is_utf_16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in head and not is_utf_16:
        raise ValueError("it holds zero bytes and is no UTF-16 with a mark; save it as UTF-8")
    encoding = "utf-16" if is_utf_16 else "utf-8"
    start = head.decode(encoding, errors="replace").lstrip("\ufeff")
    lines = start.splitlines()
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise ValueError("it has no header")
    counts = {mark: len(next(csv.reader([filled[0]], delimiter=mark))) for mark in ",;\t|"}
    separator = max(counts, key=lambda mark: counts[mark])  # the first of equal ones: a comma
    rows = list(csv.reader(filled[:_SOME_LINES], delimiter=separator))
    spaces = any(cell[:1].isspace() for row in rows for cell in row)
    is_one_line = bool(lines[0].strip()) and lines[0].count('"') % 2 == 0
    names = tuple(name.strip() for name in rows[0])
    return _Form(encoding, separator, names, is_plain=is_one_line and not spaces)


def _by_arrow(path: Path, form: _Form, text: Sequence[str]) -> Frame:
    names = _column_names(form)
    asked = {name: _CODES for name in text if name in names}
    table = _arrow_table(path, form, names, asked)
    if any(_is_bytes(field.type) for field in table.schema):
        raise pa.ArrowInvalid("text that is not UTF-8 became bytes")
    dates = [field.name for field in table.schema if pa.types.is_temporal(field.type)]
    if dates:  # Arrow takes texts such as 2020-01-31 for dates; they stay as they stand
        table = _arrow_table(path, form, names, asked | dict.fromkeys(dates, _CODES))
    return _to_pandas(table)


def _is_bytes(kind: Any) -> bool:
    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(content))


def _arrow_table(path: Path, form: _Form, names: list[str], types: dict[str, Any]) -> Any:
    from pyarrow import csv as arrow_csv  # here and below: `import fcfl` is to stay quick

    return arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(column_names=names, skip_rows=1, encoding=form.encoding),
        arrow_csv.ParseOptions(delimiter=form.separator),
        arrow_csv.ConvertOptions(
            column_types=types,
            null_values=list(_EMPTY),
            strings_can_be_null=True,
            auto_dict_encode=True,
            auto_dict_max_cardinality=_MOST_CODES,
        ),
    )


def _column_names(form: _Form) -> list[str]:
    """The header's names; columns without one are called as pandas calls them."""
    return [name or f"Unnamed: {place}" for place, name in enumerate(form.names)]


def _by_pandas(path: Path, form: _Form, text: Sequence[str]) -> Frame:
    with warnings.catch_warnings():
        # pandas would drop the cells of a row longer than the header, with only a warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path,
            sep=form.separator,
            encoding=form.encoding,
            dtype=dict.fromkeys(text, str),
            index_col=False,
            skipinitialspace=True,
            low_memory=False,
        )


def _with_decimal_commas(frame: Frame, text: Sequence[str]) -> Frame:
    """Columns of texts such as ``1,5`` as numbers: so spreadsheets write them beside semicolons."""
    changed = {}
    for name in frame.columns:
        column = frame[name]
        if name in text or pd.api.types.is_numeric_dtype(column):
            continue
        codes, levels = pd.factorize(column)
        found = [str(level).strip() for level in levels]
        if found and all(map(_COMMA_NUMBER.fullmatch, found)):
            values = [float(level.replace(",", ".")) for level in found]
            changed[name] = np.array([*values, np.nan])[codes]
    return frame.assign(**changed) if changed else frame


# --- Parquet --------------------------------------------------------------------------------------


def _read_parquet(path: Path, text: Sequence[str]) -> Frame:
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    twice = [name for place, name in enumerate(schema.names) if name in schema.names[:place]]
    if twice:
        raise DataError(f"Column {twice[0]!r} occurs twice in {str(path)!r}. Rename one.")
    texts = [field.name for field in schema if _is_text(field.type)]
    frame = _to_pandas(parquet.read_table(path, read_dictionary=texts))
    is_plain = all(name is None for name in frame.index.names)
    return frame if is_plain else frame.reset_index()


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _to_pandas(table: Any) -> Frame:
    """The table as a frame, which takes over its memory column by column.

    Truth values with gaps and empty columns get types of their own: pandas would make objects.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            empty = table.column(place).cast(pa.float64())
            table = table.set_column(place, field.name, empty)
    frame = table.to_pandas(
        split_blocks=True,
        self_destruct=True,
        types_mapper={pa.bool_(): pd.BooleanDtype()}.get,
    )
    del table
    pa.default_memory_pool().release_unused()
    return frame


def _reason(error: BaseException) -> str:
    """What is wrong with the file, in our words where pandas' are about its own workings."""
    way_out = "; a cell with a comma in it needs quotes"
    if isinstance(error, UnicodeDecodeError):
        return "it is neither UTF-8 nor Windows-1252; save it as UTF-8"
    if isinstance(error, pd.errors.ParserWarning):
        return f"its first row has more cells than the header{way_out}"
    long_row = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if long_row:
        expected, line, found = long_row.groups()
        return f"line {line} has {found} cells instead of {expected}{way_out}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
