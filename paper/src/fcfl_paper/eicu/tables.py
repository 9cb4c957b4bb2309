"""The published tables on disk: found by name in any letter case, read in one stream of batches."""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as arrow_csv

from fcfl._checks import did_you_mean
from fcfl.errors import DataError

OnProgress: TypeAlias = Callable[[str, float], None]  # name of a table, share of it read
ColumnType: TypeAlias = Any  # a pyarrow.DataType
Batch: TypeAlias = Any  # a pyarrow.RecordBatch; pyarrow is untyped
Frame: TypeAlias = Any  # a pandas.DataFrame

BLOCK = 1 << 20  # bytes of text in a batch; the reader holds up to 32 of them ahead
WHOLE, NUMBER, TEXT = pa.int64(), pa.float64(), pa.string()
LEVELS = pa.dictionary(pa.int32(), pa.string())  # text of which few values differ
_WORDS = {WHOLE: "whole numbers", NUMBER: "numbers"}
_DAMAGED = "The table is cut short or damaged; download it again."


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its published name, its file, and the header's own spelling of each column."""

    name: str
    path: Path
    header: tuple[str, ...]

    def spelling(self, column: str) -> str:
        """Return how the header writes ``column``, whatever its letter case."""
        found = [name for name in self.header if name.lower() == column]
        if not found:
            known = [name.lower() for name in self.header]
            raise DataError(
                f"The table {str(self.path)!r} has no column {column!r}. "
                f"{did_you_mean(column, known)}"
            )
        return found[0]


def find_tables(
    folder: Path, needed: Mapping[str, str], optional: Iterable[str] = ()
) -> dict[str, Table]:
    """Find tables in a folder, as ``.csv.gz`` or ``.csv``.

    ``needed`` maps a table to the end of the message where it is missing; ``optional`` tables are
    used if they exist.
    """
    if not folder.is_dir():
        raise DataError(f"There is no folder {str(folder)!r}. Give the one with the eICU tables.")
    files = _tables_in(folder)
    if not any(name.lower() in files for name in needed):
        raise DataError(
            f"The folder {str(folder)!r} holds none of the eICU tables that are needed: "
            f"{', '.join(needed)}. Give the folder with patient.csv.gz and the others."
        )
    for name, words in needed.items():
        if name.lower() not in files:
            raise DataError(
                f"The folder {str(folder)!r} has no table {name} ({name}.csv.gz or {name}.csv), "
                f"{words}."
            )
    found = [name for name in (*needed, *optional) if name.lower() in files]
    return {name: _open_table(name, files[name.lower()]) for name in found}


def _tables_in(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = re.fullmatch(r"(.+?)\.csv(\.gz)?", path.name.lower())
        if not name:
            continue
        if name[1] in files:
            raise DataError(
                f"The folder {str(folder)!r} holds {files[name[1]].name!r} and {path.name!r}, "
                "which are the same table. Keep one of them."
            )
        files[name[1]] = path
    return files


def _open_table(name: str, path: Path) -> Table:
    opener = gzip.open if _is_compressed(path) else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            header = next(csv.reader(file), [])
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"Cannot read {str(path)!r}: {error}. {_DAMAGED}") from None
    if not header:
        raise DataError(f"The table {str(path)!r} is empty, without even a header. {_DAMAGED}")
    return Table(name, path, tuple(header))


def _is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def read_batches(
    table: Table, columns: Mapping[str, ColumnType], on_progress: OnProgress | None = None
) -> Iterator[Batch]:
    """Yield the named columns batch by batch; memory is that of a batch, whatever the file's size.

    Parameters
    ----------
    table : Table
    columns : lower-case name -> pyarrow type; batches have the columns in this order
    on_progress : called after each batch with the share of the file read so far
    """
    as_spelled = {table.spelling(name): kind for name, kind in columns.items()}
    raw = pa.OSFile(str(table.path))
    size = max(raw.size(), 1)
    try:
        stream = pa.CompressedInputStream(raw, "gzip") if _is_compressed(table.path) else raw
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(block_size=BLOCK, column_names=table.header, skip_rows=1),
            arrow_csv.ParseOptions(newlines_in_values=True),
            # Free text is never shown, and some of it may not be UTF-8.
            arrow_csv.ConvertOptions(
                check_utf8=False, include_columns=list(as_spelled), column_types=as_spelled,
                null_values=[""], strings_can_be_null=True,
            ),
        )  # fmt: skip
        for batch in reader:
            yield batch
            if on_progress:
                on_progress(table.name, raw.tell() / size)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(_describe_error(table, as_spelled, error)) from None
    finally:
        raw.close()
    if on_progress:
        on_progress(table.name, 1.0)


def read_frame(table: Table, columns: Mapping[str, ColumnType]) -> Frame:
    """Read the named columns of a table that fits in memory; the first one is its key."""
    schema = pa.schema(list(columns.items()))
    read = read_batches(table, columns)
    batches = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in read]
    frame = pa.Table.from_batches(batches, schema=schema).to_pandas()
    key = next(iter(columns))
    if frame[key].isna().any():
        raise DataError(
            f"Column {key!r} of {str(table.path)!r} is empty in {int(frame[key].isna().sum())} "
            f"rows. {_DAMAGED}"
        )
    return frame


def _describe_error(table: Table, types: Mapping[str, ColumnType], error: Exception) -> str:
    """Return one sentence for the reader's error, without the content of the row."""
    text, path = str(error), str(table.path)
    short = re.search(r"Expected (\d+) columns, got (\d+)", text)
    if short:
        expected, found = int(short[1]), int(short[2])
        lost = f", without column {table.header[found].lower()!r}" if found < expected else ""
        return f"A row of {path!r} has {found} cells instead of {expected}{lost}. {_DAMAGED}"
    cell = re.search(r"In CSV column #(\d+): .*invalid value '(.*)'", text, re.DOTALL)
    if cell:
        column = table.header[int(cell[1])]
        rule = _WORDS.get(types.get(column), "readable values")
        return f"Column {column.lower()!r} of {path!r} must hold {rule}, got {cell[2][:40]!r}."
    if "Truncated" in text or "zlib" in text:
        needed = ", ".join(repr(name.lower()) for name in types)
        return (
            f"The file {path!r} is cut short: its compressed content ends before its end mark, so "
            f"rows of {needed} are missing. Download it again."
        )
    reason = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    return f"Cannot read {path!r}: {reason}."
