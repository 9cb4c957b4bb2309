"""A trained linear model as one JSON file: the encoding of a row, the weights, the labels."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from fcfl._files import replace_file
from fcfl._types import Vector
from fcfl.data import Category, Schema, read_table
from fcfl.errors import DataError, FCFLError
from fcfl.models.linear import linear_logits
from fcfl.models.rates import hard_selection

_KIND = "fcfl-linear-1"


@dataclass(frozen=True)
class LinearModel:
    """Weights and intercept of a linear model, with the schema of its inputs."""

    params: Vector
    schema: Schema
    labels: tuple[str, str]
    label_column: str

    def scores(self, frame: Any) -> Vector:
        """Probability of the positive label for each row."""
        probabilities: Vector = expit(linear_logits(self.schema.transform(frame), self.params))
        return probabilities

    def predict(self, frame: Any) -> Any:
        """The table with two more columns: ``score`` and ``prediction``."""
        for name in ("score", "prediction"):
            if name in frame.columns:
                raise DataError(
                    f"The table already has a column {name!r}; rename it, predictions go there."
                )
        logits = linear_logits(self.schema.transform(frame), self.params)
        answers = np.where(hard_selection(logits), self.labels[1], self.labels[0])
        return frame.assign(score=expit(logits), prediction=answers)

    def save(self, path: Path) -> None:
        """Write the model."""
        names = _distinct((*self.schema.feature_names, "(intercept)"))
        content = {
            "kind": _KIND,
            "label": self.label_column,
            "labels": list(self.labels),
            "weights": dict(zip(names, self.params.tolist(), strict=True)),
            "schema": self.schema.to_dict(),
        }
        replace_file(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _distinct(names: Iterable[str]) -> list[str]:
    """The names, a number added where one has occurred before: level ``b=c`` of column ``a``."""
    apart: dict[str, None] = {}
    for name in names:
        unused, count = name, 1
        while unused in apart:
            count += 1
            unused = f"{name} ({count})"
        apart[unused] = None
    return list(apart)


def load_model(folder: Path) -> LinearModel:
    """Read the model of a run's folder (or the file itself)."""
    path = folder / "model.json" if folder.is_dir() else folder
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Train one with `fcfl train … --out`.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != _KIND:
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        params = np.array(list(content["weights"].values()), dtype=np.float64)
        negative, positive = map(str, content["labels"])
        schema = Schema.from_dict(content["schema"])
        label = str(content["label"])
    except FCFLError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{str(path)!r} is not a whole model written by fcfl ({why}).") from None
    if params.size != schema.n_features + 1 or not np.isfinite(params).all():
        raise DataError(f"{str(path)!r} is not a whole model: its weights do not fit its schema.")
    return LinearModel(params, schema, (negative, positive), label)


def predict_file(folder: Path, table: Path) -> Any:
    """Predictions for a table on disk, as the table with two more columns."""
    model = load_model(folder)
    return model.predict(read_table(table, text=_text_columns(model.schema)))


def _text_columns(schema: Schema) -> list[str]:
    """Categories that CSV gave as text: there ``01`` stays ``01`` though no letter is in sight."""
    return [
        column.name
        for column in schema.columns
        if isinstance(column, Category) and any(map(_is_plain_text, column.levels))
    ]


def _is_plain_text(level: str) -> bool:
    """Whether the level would not be read as a number or a truth value."""
    try:
        float(level)
    except ValueError:
        return level.lower() not in ("true", "false")
    return False


def check_out(path: Path) -> None:
    """Refuse a file that cannot be written, before any row is read."""
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; `--out` needs the name of a file.")
    if not path.parent.is_dir():
        raise DataError(
            f"There is no folder {str(path.parent)!r} to write {str(path)!r} to. Make it first."
        )


def write_predictions(predictions: Any, path: Path) -> None:
    """Write a table as Parquet or CSV, by its name, in one step."""
    draft = path.with_name(f".draft-{path.name}")  # keeps the suffix, which says how to compress
    try:
        if path.suffix.lower() == ".parquet":
            predictions.to_parquet(draft, index=False)
        else:
            predictions.to_csv(draft, index=False)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
