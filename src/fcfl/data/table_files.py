"""Tables on disk, read by Arrow: text becomes codes into its distinct values, never objects."""

import os
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from fcfl.errors import DataError

from ._cells import Frame, add_note, check_names, named_columns
from .arrow_frames import arrow_to_pandas
from .cell_formats import interpret
from .csv_files import Dialect, read_csv, read_csv_text

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".xlsx")
_Reader: TypeAlias = Callable[[Path, Sequence[str], Sequence[str] | None], Frame]
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zlib.error,
    zipfile.BadZipFile,
    pd.errors.ParserWarning,
    pa.ArrowException,
)


def read_table(
    path: str | os.PathLike[str],
    *,
    text: Sequence[str] = (),
    missing: Sequence[str] | None = None,
) -> Frame:
    """Read a table from a ``.csv``, ``.csv.gz``, ``.parquet`` or ``.xlsx`` file.

    A CSV file's cells may be separated by commas, semicolons, tabs or bars, as its header is. It is
    UTF-8, or UTF-16 with a byte order mark; other files are taken as Windows-1252. Of a workbook
    the first sheet is read (extra ``fcfl[xlsx]``). What the user should know is in
    ``attrs["notes"]`` of the frame.

    Parameters
    ----------
    path : str or path
    text : names of columns
        Read from CSV as they stand, so that the client ``007`` is not the client ``7``. Names
        that the file does not have are passed over.
    missing : texts
        Cells that count as empty. By default ``?`` and the other usual marks.
    """
    path = Path(path)
    read = _reader(path)
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r}. Check the path.")
    if path.stat().st_size == 0:
        raise DataError(f"The file {str(path)!r} is empty. It needs a header and rows.")
    try:
        frame = read(path, text, missing)
    except DataError:
        raise
    except _UNREADABLE as error:
        raise DataError(f"Cannot read {str(path)!r}: {_reason(error, path)}.") from error
    if not len(frame):
        raise DataError(f"The file {str(path)!r} has no rows, only a header.")
    return named_columns(frame)


def read_as_written(path: Path) -> tuple[Frame, Dialect]:
    """Return the cells of a file that `read_table` has read, with marks such as ``?`` and ``N/A``.

    Those of a CSV file are text, as are columns of a workbook with both numbers and text. The
    second value is the dialect in which to write the table as CSV.
    """
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return read_csv_text(path)
    if name.endswith(".parquet"):
        return named_columns(_read_parquet(path, (), ())), Dialect()
    frame = named_columns(
        pd.read_excel(path, engine="openpyxl", keep_default_na=False, na_values=[""])
    )
    mixed = {
        name: frame[name].map(str, na_action="ignore")
        for name in frame.columns
        if pd.api.types.infer_dtype(frame[name], skipna=True).startswith("mixed")
    }
    return frame.assign(**mixed), Dialect()


def _reader(path: Path) -> _Reader:
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return read_csv
    if name.endswith(".parquet"):
        return _read_parquet
    if name.endswith(".xlsx"):
        return _read_workbook
    raise DataError(
        f"The file {str(path)!r} must end in .csv, .csv.gz, .parquet or .xlsx. Convert or rename "
        "it."
    )


def _read_parquet(path: Path, text: Sequence[str], marks: Sequence[str] | None) -> Frame:
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    check_names(schema.names, path)
    texts = [field.name for field in schema if _is_text(field.type)]
    frame = arrow_to_pandas(parquet.read_table(path, read_dictionary=texts))
    is_plain = all(name is None for name in frame.index.names)
    return interpret(frame if is_plain else frame.reset_index(), marks, text, is_typed=True)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _read_workbook(path: Path, text: Sequence[str], marks: Sequence[str] | None) -> Frame:
    """The first sheet; its texts as codes, as those of other files."""
    try:
        book = pd.ExcelFile(path, engine="openpyxl")
    except ImportError:
        raise DataError(
            f"Reading {str(path)!r} needs openpyxl: pip install 'fcfl[xlsx]'. Or save it as CSV."
        ) from None
    with book:
        sheets = book.sheet_names
        header = _header(pd.read_excel(book, sheets[0], header=None, nrows=1), path)
        as_text = {cell: str for cell in header if str(cell) in text}
        frame = named_columns(pd.read_excel(book, sheets[0], dtype=as_text))
    words = [
        name
        for name in frame.columns
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "string"
    ]
    frame = interpret(frame.astype(dict.fromkeys(words, "category")), marks, text, is_typed=True)
    if len(sheets) > 1:
        add_note(frame, f"The file {path.name!r} has {len(sheets)} sheets; {sheets[0]!r} was read.")
    return frame


def _header(first: Frame, path: Path) -> list[Any]:
    """The names in a sheet's first row, all different: pandas would rename the second of two."""
    cells = [cell for row in first.to_numpy(dtype=object) for cell in row if not pd.isna(cell)]
    check_names(map(str, cells), path)
    return cells


def _reason(error: BaseException, path: Path) -> str:
    """Return what is wrong with the file, without the words of the library that found it."""
    way_out = "a cell with a separator in it needs quotes"
    if isinstance(error, UnicodeDecodeError):
        return "it is neither UTF-8 nor Windows-1252; save it as UTF-8"
    if isinstance(error, pd.errors.ParserWarning):
        return f"its first row has more cells than the header; {way_out}"
    long_row = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if long_row:
        expected, line, found = long_row.groups()
        return f"line {line} has {found} cells instead of {expected}; {way_out}"
    open_quote = re.search(r"EOF inside string starting at row (\d+)", str(error))
    if open_quote:
        return f"a quote in row {int(open_quote[1]):,} is never closed; close or remove it"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it is damaged or not a {path.suffix.lower()} file; save it again"
