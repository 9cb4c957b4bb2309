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

import numpy as np
import pandas as pd
import pyarrow as pa

from fcfl.errors import DataError

from ._cells import Frame, add_note
from .arrow_frames import arrow_to_pandas
from .missing_marks import without_marks

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


def read_csv(path: Path, text: Sequence[str], marks: Sequence[str] | None) -> Frame:
    """Read a CSV file; the columns in ``text`` stay as they stand, ``marks`` count as empty."""
    form = _form_of(path)
    twice = [name for place, name in enumerate(form.names) if name and name in form.names[:place]]
    if twice:
        raise DataError(f"Column {twice[0]!r} occurs twice in {str(path)!r}. Rename one.")
    try:
        frame = _parse(path, form, text)
    except UnicodeDecodeError:
        form = replace(form, encoding="cp1252")
        frame = _parse(path, form, text)
    frame = without_marks(frame, marks, text)
    if form.separator == ";":
        frame = _with_decimal_commas(frame, text)
    if form.encoding == "cp1252":
        add_note(
            frame,
            f"The file {path.name!r} is not UTF-8 and was read as Windows-1252. If names look "
            "wrong, save it as UTF-8.",
        )
    return frame


def read_csv_text(path: Path) -> Frame:
    """Every cell as it stands in the file."""
    form = _form_of(path)
    read = partial(
        pd.read_csv, path, sep=form.separator, dtype=str, keep_default_na=False, index_col=False
    )
    try:
        return read(encoding=form.encoding, low_memory=False)
    except UnicodeDecodeError:
        return read(encoding="cp1252", low_memory=False)


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
    return arrow_to_pandas(table)


def _is_bytes(kind: Any) -> bool:
    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(content))


def _arrow_table(path: Path, form: _Form, names: list[str], types: dict[str, object]) -> Any:
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
