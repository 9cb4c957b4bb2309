"""Tables on disk."""

import os
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from fcfl.errors import DataError

from ._cells import Frame, named_columns

_UNREADABLE = (OSError, ValueError, EOFError, zlib.error, pd.errors.ParserWarning)


def read_table(path: str | os.PathLike[str], *, text: Sequence[str] = ()) -> Frame:
    """Read a table from a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

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


def _read_csv(path: Path, text: Sequence[str]) -> Frame:
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, skipinitialspace=True).loc[0]
    names = header.dropna()
    twice = names[names.duplicated()]
    if len(twice):
        raise DataError(f"Column {twice.iloc[0]!r} occurs twice in {str(path)!r}. Rename one.")
    dtypes = dict.fromkeys(text, str)
    with warnings.catch_warnings():
        # pandas would drop the cells of a row longer than the header, with only a warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path, dtype=dtypes, index_col=False, skipinitialspace=True, low_memory=False
        )


def _read_parquet(path: Path, text: Sequence[str]) -> Frame:
    frame = pd.read_parquet(path)
    is_plain = all(name is None for name in frame.index.names)
    return frame if is_plain else frame.reset_index()


def _reason(error: BaseException) -> str:
    """What is wrong with the file, in our words where pandas' are about its own workings."""
    way_out = "; a cell with a comma in it needs quotes"
    if isinstance(error, pd.errors.ParserWarning):
        return f"its first row has more cells than the header{way_out}"
    long_row = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if long_row:
        expected, line, found = long_row.groups()
        return f"line {line} has {found} cells instead of {expected}{way_out}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
