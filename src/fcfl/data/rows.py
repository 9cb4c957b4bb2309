"""Read tables from files or memory as pandas frames.

A table is a CSV, Parquet or xlsx file, several such files, or a folder of them. CSV and Parquet are
read by Arrow, with text stored as codes into its distinct values. Notes for the user are stored in
``attrs["notes"]`` of the frame.
"""

import codecs
import csv
import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype, union_categoricals

from fcfl._checks import first_of
from fcfl._types import Vector
from fcfl.errors import DataError

from . import cells
from .cells import NOTES, Frame, Texts

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".xlsx")
FILE = "(file)"  # client column of a table in several files, one for each client

_CODES = pa.dictionary(pa.int32(), pa.string())
_MAX_CODES = 100_000  # a column with more distinct texts is read as plain text
_HEAD = 1 << 16  # bytes from which separator and decimal mark are detected
_LEGACY = "cp1252"
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
MARKS = ("?", "??", "-", "--", ".", "..", "na", "n.a.", "N.A.", "#NULL!", "(null)", "missing")
"""Texts that mark an empty cell, in addition to those of pandas (NA, N/A, NaN, null, None …)."""
_BETWEEN = "'\u2019 \u00a0\u202f"  # thousands separators, in addition to comma and point
_OTHER = {".": ",", ",": "."}
_WRITTEN = {
    decimal: re.compile(rf"[+-]?(\d+|\d{{1,3}}([{other}{_BETWEEN}]\d{{3}})+)([{decimal}]\d+)?")
    for decimal, other in _OTHER.items()
}
_PLAIN = {
    ".": str.maketrans("", "", _BETWEEN + ","),
    ",": str.maketrans(",", ".", _BETWEEN + "."),
}
_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, zlib.error, zipfile.BadZipFile, pa.ArrowException),
)


@dataclass(frozen=True)
class Dialect:
    """Format of a CSV file, and the names of its columns. Unnamed columns are named as in pandas.

    ``is_plain`` is False if Arrow would misread the file. Arrow uses an empty first line as the
    header, keeps spaces after a separator, and reads an unclosed quote as text.
    """

    encoding: str = "utf-8"
    separator: str = ","
    decimal: str = "."
    names: tuple[str, ...] = ()
    is_plain: bool = True
    has_quotes: bool = False


# --- one file -------------------------------------------------------------------------------------


def read_table(
    path: str | os.PathLike[str],
    *,
    text: Sequence[str] = (),
    missing: Sequence[str] | None = None,
) -> Frame:
    """Read a table from a ``.csv``, ``.csv.gz``, ``.parquet`` or ``.xlsx`` file.

    The separator of a CSV file (comma, semicolon, tab or bar) is detected from its header. CSV
    files are UTF-8, or UTF-16 with a byte order mark; others are read as Windows-1252. For a
    workbook, the first sheet is read (requires ``fcfl[xlsx]``).

    Parameters
    ----------
    path : str or path
    text : names of columns
        CSV columns to read as unchanged text, so that clients ``007`` and ``7`` differ. Names of
        absent columns are ignored.
    missing : texts
        Texts that mark an empty cell, by default `MARKS`.
    """
    path = Path(path)
    suffix = suffix_of(path)
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r}. Check the path.")
    if path.stat().st_size == 0:
        raise DataError(f"The file {str(path)!r} is empty. It needs a header and rows.")
    try:
        if suffix == ".parquet":
            frame = interpret(read_parquet(path), missing, text, is_typed=True)
        elif suffix == ".xlsx":
            frame = _read_workbook(path, text, missing)
        else:
            frame = _read_csv(path, text, missing)
    except DataError:
        raise
    except _UNREADABLE as error:
        raise DataError(f"Cannot read {str(path)!r}: {_reason(error, path)}.") from error
    if not len(frame):
        raise DataError(f"The file {str(path)!r} has no rows, only a header.")
    return cells.named_columns(frame)


def read_as_written(path: Path) -> tuple[Frame, Dialect]:
    """Return the unconverted cells of a file, including marks such as ``?``, and its dialect.

    The file must have been read by `read_table`. Cells of CSV files, and of workbook columns with
    both numbers and text, are returned as text. Use the dialect to write the table as CSV.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return cells.named_columns(read_parquet(path)), Dialect()
    if suffix == ".xlsx":
        frame, _ = _read_sheet(path, keep_default_na=False, na_values=[""])
        mixed = [name for name in frame if infer_dtype(frame[name], skipna=True)[:5] == "mixed"]
        return frame.assign(**{n: frame[n].map(str, na_action="ignore") for n in mixed}), Dialect()
    dialect = dialect_of(path)
    as_text = dict.fromkeys(dialect.names, pa.string())
    return arrow_to_pandas(_parse_csv(path, dialect, as_text, as_written=True)), dialect


def suffix_of(path: Path) -> str:
    """Return the suffix of a file name; raise `DataError` if it is not in `SUFFIXES`."""
    found = [end for end in SUFFIXES if path.name.lower().endswith(end)]
    if not found:
        raise DataError(
            f"The file {str(path)!r} must end in .csv, .csv.gz, .parquet or .xlsx. Convert or "
            "rename it."
        )
    return max(found, key=len)


def read_parquet(path: Path) -> Frame:
    """Read a Parquet file, with text as codes."""
    from pyarrow import parquet  # imported late to keep `import fcfl` fast

    schema = parquet.read_schema(path)
    cells.check_names(schema.names, path)
    texts = [
        field.name
        for field in schema
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    frame = arrow_to_pandas(parquet.read_table(path, read_dictionary=texts))
    is_plain = all(name is None for name in frame.index.names)
    return frame if is_plain else frame.reset_index()


def _read_workbook(path: Path, text: Sequence[str], missing: Sequence[str] | None) -> Frame:
    """Read the first sheet of a workbook, with text as codes."""
    frame, sheets = _read_sheet(path, text)
    words = [name for name in frame if infer_dtype(frame[name], skipna=True) == "string"]
    frame = interpret(frame.astype(dict.fromkeys(words, "category")), missing, text, is_typed=True)
    if len(sheets) > 1:
        cells.add_note(
            frame, f"The file {path.name!r} has {len(sheets)} sheets; {sheets[0]!r} was read."
        )
    return frame


def _read_sheet(path: Path, text: Sequence[str] = (), **options: Any) -> tuple[Frame, list[str]]:
    """Return the first sheet, with columns in ``text`` as text, and the names of all sheets."""
    try:
        book = pd.ExcelFile(path, engine="openpyxl")
    except ImportError:
        raise DataError(
            f"Reading {str(path)!r} needs openpyxl: pip install 'fcfl[xlsx]'. Or save it as CSV."
        ) from None
    with book:
        first = pd.read_excel(book, book.sheet_names[0], header=None, nrows=1)
        header = [cell for row in first.to_numpy(dtype=object) for cell in row if not pd.isna(cell)]
        cells.check_names(map(str, header), path)  # pandas would rename duplicates
        as_text = {cell: str for cell in header if str(cell) in text}
        frame = pd.read_excel(book, book.sheet_names[0], dtype=as_text, **options)
    return cells.named_columns(frame), book.sheet_names


def _reason(error: BaseException, path: Path) -> str:
    """Return why the file cannot be read, without the message of the library that raised."""
    if isinstance(error, UnicodeDecodeError):
        return "it is neither UTF-8 nor Windows-1252; save it as UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it is damaged or not a {path.suffix.lower()} file; save it again"


# --- CSV files ------------------------------------------------------------------------------------


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its name ends in ``.gz``."""
    return gzip.open(path) if path.name.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def dialect_of(path: Path) -> Dialect:
    """Detect the format of a CSV file; encoding and quotes are detected from the whole file."""
    with open_bytes(path) as file:
        head = file.read(_HEAD)
        encoding = "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        elif b"\0" in head:
            raise DataError(
                f"Cannot read {str(path)!r}: it contains zero bytes but no UTF-16 byte order mark; "
                "save it as UTF-8."
            )
        decoder, n_quotes = codecs.getincrementaldecoder(encoding)(), 0
        for block in chain([head], iter(partial(file.read, _HEAD), b""), [b""]):
            n_quotes += block.count(b'"')
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                encoding, decoder = _LEGACY, codecs.getincrementaldecoder(_LEGACY)()
    lines = head.decode(encoding, errors="replace").splitlines(keepends=True)
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise DataError(f"The file {str(path)!r} has no header, only empty lines.")
    separator = separator_of(filled[0])
    rows = list(csv.reader(filled, delimiter=separator))
    has_commas = any(_DECIMAL_COMMA.fullmatch(cell.strip()) for row in rows for cell in row)
    has_spaces = any(cell[:1].isspace() for row in rows for cell in row)
    return Dialect(
        encoding,
        separator,
        "," if has_commas and separator != "," else ".",
        tuple(name.strip() or f"Unnamed: {place}" for place, name in enumerate(rows[0])),
        is_plain=bool(lines[0].strip()) and not has_spaces and n_quotes % 2 == 0,
        has_quotes=n_quotes > 0,
    )


def separator_of(header: str) -> str:
    """Return the separator that splits a header into the most cells; by default a comma.

    `csv.Sniffer` returns the same separators, but takes seconds on quoted cells.
    """
    return max(",;\t|", key=lambda mark: len(next(csv.reader([header], delimiter=mark))))


def csv_rows(
    path: Path, file: IO[str], separator: str, *, one_line: bool = False, spaces: bool = False
) -> Iterator[list[str]]:
    """Yield the header and rows of a CSV file, with short rows padded by empty cells.

    Spaces after separators are removed, unless ``spaces`` is true. Raise `DataError`, with the
    line, if a row is longer than the header, if a quote is not closed, or, with ``one_line``, if a
    quoted cell extends over several lines.
    """
    reader = csv.reader(file, delimiter=separator, skipinitialspace=not spaces, strict=True)
    n_columns = n_rows = line = 0
    try:
        for row in reader:
            before, line = line, reader.line_num
            if len(row) < 2 and not any(row):
                continue
            if one_line and line > before + 1:
                raise DataError(
                    f"Cannot read {str(path)!r}: line {before + 1} has a quote that is not closed "
                    "on the same line; close or remove it."
                )
            n_columns = n_columns or len(row)
            if len(row) > n_columns:
                raise DataError(
                    f"Cannot read {str(path)!r}: line {line} has {len(row)} cells instead of "
                    f"{n_columns}; a cell with a separator in it needs quotes."
                )
            yield row + [""] * (n_columns - len(row))
            n_rows += 1
    except csv.Error:
        raise DataError(
            f"Cannot read {str(path)!r}: a quote in row {n_rows:,} is never closed, or text "
            "follows it; correct or remove it."
        ) from None


def _read_csv(path: Path, text: Sequence[str], missing: Sequence[str] | None) -> Frame:
    dialect = dialect_of(path)
    cells.check_names(dialect.names, path)
    as_text = {name: _CODES for name in text if name in dialect.names}
    table = _parse_csv(path, dialect, as_text)
    dates = [field.name for field in table.schema if pa.types.is_temporal(field.type)]
    if dates:  # keep texts such as 2020-01-31 unchanged
        table = _parse_csv(path, dialect, as_text | dict.fromkeys(dates, _CODES))
    frame = interpret(arrow_to_pandas(table), missing, text, decimal=dialect.decimal)
    if dialect.encoding == _LEGACY:
        cells.add_note(
            frame,
            f"The file {path.name!r} is not UTF-8 and was read as Windows-1252. If names look "
            "wrong, save it as UTF-8.",
        )
    return frame


def _parse_csv(
    path: Path,
    dialect: Dialect,
    types: Mapping[str, Any],
    *,
    as_written: bool = False,
) -> Any:
    """Parse a file by Arrow; if Arrow rejects it, parse it again with rows of equal length.

    With ``as_written``, empty cells and spaces after separators are kept.
    """
    from pyarrow import csv as arrow_csv

    # The marks of empty cells in pandas.
    empty = [*arrow_csv.ConvertOptions().null_values, "<NA>", "None"]

    def parse(source: Any, encoding: str) -> Any:
        return arrow_csv.read_csv(
            source,
            arrow_csv.ReadOptions(
                column_names=dialect.names, skip_rows_after_names=1, encoding=encoding
            ),
            arrow_csv.ParseOptions(
                delimiter=dialect.separator, newlines_in_values=dialect.has_quotes
            ),
            arrow_csv.ConvertOptions(
                column_types=types,
                decimal_point=dialect.decimal,
                null_values=[] if as_written else empty,
                strings_can_be_null=True,
                auto_dict_encode=True,
                auto_dict_max_cardinality=_MAX_CODES,
            ),
        )

    if dialect.is_plain:
        try:
            return parse(path, dialect.encoding.removesuffix("-sig"))
        except pa.ArrowInvalid:
            pass
    even = io.StringIO(newline="")
    with io.TextIOWrapper(open_bytes(path), dialect.encoding, newline="") as file:
        csv.writer(even, delimiter=dialect.separator).writerows(
            csv_rows(path, file, dialect.separator, spaces=as_written)
        )
    return parse(io.BytesIO(even.getvalue().encode()), "utf-8")


# --- marks of empty cells, and formatted numbers --------------------------------------------------


def interpret(
    frame: Frame,
    marks: Sequence[str] | None,
    text: Sequence[str],
    *,
    decimal: str = ".",
    is_typed: bool = False,
) -> Frame:
    """Replace marks by empty cells, and convert columns of formatted numbers to numbers.

    Notes report the number of marks, and an example of the conversion of each column.

    Parameters
    ----------
    frame : DataFrame
    marks : texts, optional
        By default `MARKS`, in text columns only. Marks given by the user apply to all columns.
    text : names of columns that stay text
    decimal : "." or ","
        The decimal mark of the file.
    is_typed : bool
        Whether the file declares types, so that text such as ``01`` is not converted to numbers.
    """
    changed: dict[str, object] = {}
    n_marks: dict[str, int] = {}
    seen: set[str] = set()
    written: dict[str, str] = {}
    numeric_marks = [value for value in cells.parsed(tuple(marks or ())) if np.isfinite(value)]
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            is_mark = column.isin(numeric_marks if cells.is_number(column) else [])
            if is_mark.any():
                changed[name] = column.mask(is_mark)
                seen |= {f"{float(value):g}" for value in column[is_mark].unique()}
                n_marks[name] = int(is_mark.sum())
            continue
        try:
            codes, uniques = cells.factorize(column)
        except DataError:
            continue  # nested values raise an error only if the column is used
        found = Texts(codes, tuple(str(value).strip() for value in uniques))
        known = set(MARKS if marks is None else marks)
        if marks is None and "+" in found.levels:
            known.discard("-")  # in a column with "+", "-" is a level
        kept = [level for level in found.levels if level not in known]
        codes = found.codes_in(kept)
        has_marks = len(kept) < len(found.levels)
        if has_marks:
            seen |= known.intersection(found.levels)
            n_marks[name] = int((codes < 0).sum() - (found.codes < 0).sum())
        values, example = (None, None) if name in text else written_numbers(kept, decimal)
        if example is not None:
            written[name] = example
        if values is not None and (example or has_marks or not is_typed):
            changed[name] = np.append(values, np.nan)[codes]
        elif has_marks:
            if {level.lower() for level in kept} <= {"true", "false"}:
                kept = [level.capitalize() for level in kept]
            changed[name] = pd.Categorical(np.array([*kept, None], dtype=object)[codes])
    if changed:
        frame = frame.assign(**changed)
    if n_marks:
        listed = " or ".join(map(repr, sorted(seen)))
        counts = first_of(f"{name!r} {count:,}" for name, count in n_marks.items())
        cells.add_note(
            frame, f"Cells with {listed} count as empty: {counts} (`missing=` names others)."
        )
    if written:
        examples = first_of(f"{name!r} ({example})" for name, example in written.items())
        cells.add_note(
            frame,
            f"Read as numbers: {examples} (`categorical={list(written)}` keeps the text).",
        )
    return frame


def written_numbers(words: Sequence[str], decimal: str) -> tuple[Vector | None, str | None]:
    """Convert ``words`` to numbers if all are numbers; return an example if they are formatted.

    A point or comma before three digits is a thousands separator, unless it is the decimal mark of
    the file.
    """
    is_percent = bool(words) and all(word.endswith("%") for word in words)
    bare = [word[:-1].rstrip() for word in words] if is_percent else words
    for spelled, is_plain in _spellings(bare, decimal):
        values = cells.parsed(spelled)
        if not values.size or not np.isfinite(values).all():
            continue
        values = values / 100.0 if is_percent else values
        if is_plain and not is_percent:
            return values, None
        longest = max(range(len(words)), key=lambda place: len(words[place]))
        return values, f"{words[longest]!r} is {values[longest]:.12g}"
    return None, None


def _spellings(words: Sequence[str], decimal: str) -> Iterator[tuple[Sequence[str], bool]]:
    """Yield the words converted to plain numbers, for each possible decimal mark.

    The second value is whether the words are already plain numbers in the format of the file.
    """
    if decimal == ".":
        yield words, True
    elif not any("." in word for word in words):
        yield [word.replace(",", ".") for word in words], True
    for mark in (decimal, _OTHER[decimal]):
        if all(map(_WRITTEN[mark].fullmatch, words)):
            yield [word.translate(_PLAIN[mark]) for word in words], False
        if mark == ",":
            yield words, False


# --- several files --------------------------------------------------------------------------------


def table_files(table: str) -> list[Path]:
    """Return the files of a table: a file, the sorted files of a folder, or a list after commas."""
    place = Path(table)
    if place.is_dir():
        found = sorted(
            path
            for path in place.iterdir()
            if path.name.lower().endswith(SUFFIXES) and not path.name.startswith((".", "~"))
        )
        if not found:
            raise DataError(f"The folder {table!r} has no file that ends in {', '.join(SUFFIXES)}.")
        return found
    if place.exists() or "," not in table:
        return [place]
    return [Path(part.strip()) for part in table.split(",") if part.strip()]


def client_of(path: Path) -> str:
    """Return the client name of a file: the file name without its suffix."""
    return path.name[: -len(suffix_of(path))]


def read_tables(
    paths: Sequence[Path],
    *,
    text: Sequence[str] = (),
    missing: Sequence[str] | None = None,
    are_clients: bool = True,
) -> Frame:
    """Read and concatenate files; with ``are_clients``, add the column `FILE` with client names."""
    frames = [read_table(path, text=text, missing=missing) for path in paths]
    if len(frames) == 1:
        return frames[0]
    names = [client_of(path) for path in paths]
    twice = [name for name in names if names.count(name) > 1]
    if are_clients and twice:
        raise DataError(
            f"Two files are named {twice[0]!r}, and each file is a client. Rename one, or name a "
            "client column by `--client`."
        )
    for path, frame in zip(paths, frames, strict=True):
        differing = sorted(set(frame.columns) ^ set(frames[0].columns))
        if differing:
            raise DataError(
                f"The files {str(paths[0])!r} and {str(path)!r} must have the same columns, but "
                f"only one of them has {differing[0]!r}."
            )
    notes = dict.fromkeys(note for frame in frames for note in frame.attrs.get(NOTES, ()))
    for frame in frames:
        frame.attrs = {}  # `pd.concat` would compare them
    whole = pd.concat(frames, ignore_index=True)
    for name in frames[0].columns:
        parts = [frame[name] for frame in frames]
        if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
            whole[name] = union_categoricals(parts)
        elif whole[name].dtype == object:
            filled = {n: part for n, part in zip(names, parts, strict=True) if part.notna().any()}
            kinds = {file: cells.kind_of(part) for file, part in filled.items()}
            cells.check_one_kind(name, kinds, "in file")
    if are_clients:
        whole[FILE] = np.repeat(names, [len(frame) for frame in frames])
    whole.attrs[NOTES] = tuple(notes)
    return whole


# --- tables in memory -----------------------------------------------------------------------------


def as_pandas(table: Any) -> Any:
    """Convert a table or column of Arrow, Polars or another Arrow-compatible library to pandas."""
    if isinstance(table, (pd.DataFrame, pd.Series)) or not hasattr(table, "__arrow_c_stream__"):
        return table
    if hasattr(table, "columns"):
        return pa.table(table).to_pandas()  # the caller keeps its table
    column = table if isinstance(table, pa.ChunkedArray) else pa.chunked_array(table)
    return column.to_pandas().rename(getattr(table, "name", None))


def arrow_to_pandas(table: Any) -> Frame:
    """Convert an Arrow table to a frame, releasing the memory of the table column by column.

    Nullable dtypes are used for booleans and empty columns, to avoid columns of Python objects.
    """
    types = {pa.bool_(): pd.BooleanDtype(), pa.null(): pd.Float64Dtype()}
    frame = table.to_pandas(split_blocks=True, self_destruct=True, types_mapper=types.get)
    del table
    pa.default_memory_pool().release_unused()
    return frame
