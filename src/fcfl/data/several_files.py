"""A table in several files, or in a folder with one file for each client."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from fcfl.errors import DataError

from ._cells import NOTES, Frame
from .table_files import SUFFIXES, read_table

FILE = "(file)"  # the column that says from which file a row is


def table_files(table: str) -> list[Path]:
    """The files of a table: itself, those of a folder in sorted order, or several after commas."""
    place = Path(table)
    if place.is_dir():
        found = sorted(path for path in place.iterdir() if _is_table(path))
        if not found:
            raise DataError(f"The folder {table!r} has no file that ends in {', '.join(SUFFIXES)}.")
        return found
    if place.exists() or "," not in table:
        return [place]
    return [Path(part.strip()) for part in table.split(",") if part.strip()]


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and not path.name.startswith((".", "~"))


def client_of(path: Path) -> str:
    """The client whose rows a file has: its name without the suffix of a table."""
    known = [end for end in SUFFIXES if path.name.lower().endswith(end)]
    return path.name[: -max(map(len, known))] if known else path.stem


def read_tables(
    paths: Sequence[Path],
    *,
    text: Sequence[str] = (),
    missing: Sequence[str] | None = None,
    are_clients: bool = True,
) -> Frame:
    """All files' rows, one below the other; if each is a client, column `FILE` says which."""
    frames = [read_table(path, text=text, missing=missing) for path in paths]
    if len(frames) == 1:
        return frames[0]
    names = [client_of(path) for path in paths]
    twice = [name for name in names if names.count(name) > 1]
    if are_clients and twice:
        raise DataError(
            f"Two files are called {twice[0]!r}; rename one: the name is the client, unless "
            "`--client` names a column."
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
        frame.attrs = {}  # pandas would compare them
    whole = pd.concat(frames, ignore_index=True)
    for name in frames[0].columns:
        parts = [frame[name] for frame in frames]
        if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
            whole[name] = union_categoricals(parts)
    if are_clients:
        whole[FILE] = np.repeat(names, [len(frame) for frame in frames])
    whole.attrs[NOTES] = tuple(notes)
    return whole
