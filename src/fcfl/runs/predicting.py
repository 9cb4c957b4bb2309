"""Predict the rows of a table on disk: the unchanged table with additional columns."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._checks import did_you_mean, first_of
from fcfl._types import Vector
from fcfl.data import Category, Schema, read_table, table_files
from fcfl.data.cells import NOTES, cell_texts, texts
from fcfl.data.columns import without_advice
from fcfl.data.rows import FILE, Dialect, client_of, read_as_written
from fcfl.errors import DataError
from fcfl.models.linear import SavedModel, load_model
from fcfl.models.model import at_threshold
from fcfl.runs.opening import open_table
from fcfl.runs.run import ROWS, SETTINGS
from fcfl.runs.settings import Experiment

SCORE, PREDICTION, PART = "score", "prediction", "part"
TRAIN, HELD_OUT = "train", "held-out"
_MAX_NAMED = 3  # levels that a note lists
_WRITTEN_AS = (".csv", ".csv.gz", ".parquet")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of formulas in a spreadsheet


@dataclass(frozen=True)
class Predictions:
    """A table with predictions, and notes on them.

    ``decided`` describes which rows are positive. ``dialect`` is the CSV dialect of the table's
    file.
    """

    table: Any
    notes: tuple[str, ...]
    n_positive: int
    decided: str
    dialect: Dialect

    def without_formulas(self) -> "Predictions":
        """Return the predictions with ``'`` before every text that is a spreadsheet formula."""
        escaped = {
            name: [_escaped(cell) for cell in self.table[name]]
            for name in self.table.columns
            if not pd.api.types.is_numeric_dtype(self.table[name].dtype)
        }
        header = [_escaped(name) for name in self.table.columns]
        return replace(self, table=self.table.assign(**escaped).set_axis(header, axis=1))

    def write(self, path: Path) -> None:
        """Write the table as Parquet or CSV, depending on the suffix, in one step."""
        draft = path.with_name(f".draft-{path.name}")  # keeps the suffix, which sets compression
        try:
            if path.suffix.lower() == ".parquet":
                self.table.to_parquet(draft, index=False)
            else:
                self.write_csv(draft)
            os.replace(draft, path)
        except OSError as error:
            error.filename = str(path)  # as the user named it
            raise
        except UnicodeEncodeError as error:
            raise DataError(
                f"Cannot write {error.object[error.start : error.end]!r} to {str(path)!r} in the "
                f"encoding of the table, {self.dialect.encoding}. Save the table as UTF-8, or "
                "write a .parquet file."
            ) from None
        finally:
            draft.unlink(missing_ok=True)

    def write_csv(self, to: Any) -> None:
        """Write the table as CSV in the dialect of the file it was read from."""
        form = self.dialect
        self.table.to_csv(
            to, index=False, sep=form.separator, decimal=form.decimal, encoding=form.encoding
        )


def _escaped(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def check_out(path: Path) -> None:
    """Raise `DataError` unless ``path`` has a known suffix and lies in an existing folder."""
    if path.is_dir():
        raise DataError(f"`--out` must be a file, got the folder {str(path)!r}.")
    if not path.name.lower().endswith(_WRITTEN_AS):
        raise DataError(
            f"`--out` must end in .csv, .csv.gz or .parquet, got {str(path)!r}. Spreadsheet "
            "programs open .csv files."
        )
    if not path.parent.is_dir():
        raise DataError(
            f"`--out` must be in an existing folder, and {str(path.parent)!r} does not exist."
        )


def predict_file(folder: Path, table: Path, threshold: float | None = None) -> Predictions:
    """Predict the rows of a table on disk.

    A row is positive if its probability is at least ``threshold``, by default the threshold that
    the model was trained for. Cells stay as they are in the file: ``007`` stays ``007``. If the
    rows are those of the folder's run, an additional column marks held-out rows.
    """
    model = load_model(folder)
    schema = model.inputs.schema
    by_group: tuple[str, ...] = ()  # columns that decisions depend on
    if model.inputs.thresholds is not None and model.inputs.client_column is not None:
        by_group = (model.inputs.client_column, model.inputs.thresholds.attribute)
    as_text = [  # ``01`` stays ``01``; truth values are not read as text
        column.name
        for column in schema.columns
        if isinstance(column, Category) and not set(column.levels) <= {"True", "False"}
    ]
    frame = read_table(table, text=(*as_text, *by_group), missing=model.inputs.missing)
    logits = model.logits(frame)
    named = frame.assign(**{FILE: client_of(table)}) if FILE in by_group else frame
    cuts, notes = _cuts(model, named, threshold, by_group)
    answers = model.answers(logits, cuts)
    added = {SCORE: model.model.loss.scores(logits), PREDICTION: answers}
    parts, unknown = parts_of_rows(folder, table)
    if parts is not None:
        added[PART] = parts
    for name in added:
        if name in frame.columns:
            raise DataError(
                f"The table already has a column {name!r}. Rename it, because the predictions "
                "add a column of that name."
            )
    if by_group:
        decided = ", by client and group"
    elif not model.model.loss.has_probabilities:
        decided = ", from a logit of 0"
    else:
        used = model.model.threshold if threshold is None else threshold
        decided = f", from a score of {used:g}"
    about = map(without_advice, frame.attrs.get(NOTES, ()))
    written, dialect = read_as_written(table)
    return Predictions(
        (written if written.shape == frame.shape else frame).assign(**added),
        (*about, *_notes(schema, frame, parts), *unknown, *notes),
        int((answers == model.inputs.labels[1]).sum()),
        decided,
        dialect,
    )


# --- thresholds on logits -------------------------------------------------------------------------


def _cuts(
    model: SavedModel, frame: Any, threshold: float | None, by_group: Sequence[str]
) -> tuple[Vector | float, tuple[str, ...]]:
    """Return the smallest positive logit, for all rows or for each, and notes on it."""
    inputs, cut = model.inputs, at_threshold(model.model, threshold).cut
    if inputs.thresholds is None:
        return cut, ()
    if threshold is not None:
        raise DataError(
            f"`--threshold` must be left out, got {threshold:g}: this model has thresholds by "
            "client and group."
        )
    for name in by_group:
        if name not in frame.columns:
            raise DataError(
                f"The table needs a column {name!r}: this model has thresholds by client and "
                f"group. {did_you_mean(name, frame.columns)}"
            )
    cuts, unknown = inputs.thresholds.of_rows(*(cell_texts(frame[name]) for name in by_group))
    notes: tuple[str, ...] = (inputs.thresholds.sentence,)
    if unknown.any():
        notes += (
            f"{_count(int(unknown.sum()), 'row')} of a client or group without its own threshold: "
            f"the common threshold applies, a score of {model.model.threshold:g}.",
        )
    return cut + cuts, notes


# --- held-out rows --------------------------------------------------------------------------------


def parts_of_rows(folder: Path, table: Path) -> tuple[NDArray[np.str_] | None, tuple[str, ...]]:
    """Return the part of each row if the table is the run's own, and notes.

    The parts are None for another table. If files of the run have changed, a note says so.
    """
    settings, rows = folder / SETTINGS, folder / ROWS
    if not (settings.exists() and rows.exists()):
        return None, ()
    experiment = Experiment.from_toml(settings)
    if not (experiment.label and experiment.sensitive):
        return None, ()  # the run used a built-in set
    checksum = rows.read_text(encoding="utf-8").strip()
    try:
        files = table_files(experiment.table)
    except DataError:
        files = []  # the folder is empty now
    if experiment.client is not None and len(files) <= 1:
        return _parts_of_table(replace(experiment, table=str(table)), checksum), ()
    places = [path.resolve() for path in files]
    parts = _parts_of_table(experiment, checksum) if table.resolve() in places else None
    if parts is not None:  # the table is one of several files of the run
        ends = np.cumsum([len(read_table(path)) for path in files])
        return np.split(parts, ends[:-1])[places.index(table.resolve())], ()
    if len(files) > 1 and client_of(table) not in map(client_of, files):
        return None, ()  # another table
    return None, (
        f"The held-out rows of {table.name!r} are not known, because files of the run "
        f"({experiment.table}) have changed or are missing.",
    )


def _parts_of_table(experiment: Experiment, checksum: str) -> NDArray[np.str_] | None:
    """Return the part of each row of a table, or None if the rows are not those of the run."""
    try:
        opened = open_table(experiment)
    except ValueError:
        return None  # another table, for example without labels
    if opened.checksum != checksum:
        return None
    parts = np.where(opened.held_out, HELD_OUT, TRAIN)
    if not experiment.drop_unlabelled:
        return parts
    files = table_files(experiment.table)
    frames = (read_table(path, missing=experiment.missing) for path in files)
    is_used = np.concatenate([texts(frame[experiment.label]).codes >= 0 for frame in frames])
    whole = np.full(is_used.size, "", dtype=parts.dtype)
    whole[is_used] = parts
    return whole


# --- notes ----------------------------------------------------------------------------------------


def _notes(schema: Schema, frame: Any, parts: NDArray[np.str_] | None) -> Iterator[str]:
    """Yield notes on cells without an equivalent in training, and on held-out rows."""
    for column, cells in zip(schema.columns, schema.read(frame), strict=True):
        written = frame[column.name]
        is_empty = (written.isna() | (written.astype(str).str.strip() == "")).to_numpy()
        if isinstance(column, Category) and ((cells < 0) & ~is_empty).any():
            yield _about_levels(column.name, written[(cells < 0) & ~is_empty])
        if is_empty.any() and not column.has_missing:
            taken = "none of the known levels" if isinstance(column, Category) else "the mean"
            yield (
                f"Column {column.name!r} is empty in {_count(int(is_empty.sum()), 'row')}, but had "
                f"no empty cells in training. An empty cell counts as {taken}."
            )
    if parts is not None:
        yield (
            f"These are the rows of the run: {int((parts == HELD_OUT).sum()):,} of "
            f"{parts.size:,} were held out of training and are marked in column {PART!r}."
        )


def _about_levels(name: str, cells: Any) -> str:
    levels = list(dict.fromkeys(str(cell) for cell in cells))
    named = first_of(map(repr, levels), _MAX_NAMED)
    return (
        f"Column {name!r} has {_count(len(levels), 'level')} not seen in training, in "
        f"{_count(len(cells), 'row')}: {named}. Such a cell counts as none of the known levels."
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
