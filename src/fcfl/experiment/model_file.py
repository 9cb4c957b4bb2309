"""A trained linear model as one JSON file: the encoding of a row, the weights, the labels."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from fcfl._types import Vector
from fcfl.client.linear import linear_logits
from fcfl.client.rates import hard_selection
from fcfl.data import Schema, read_table
from fcfl.errors import DataError, FCFLError
from fcfl.runtime.checkpoint import replace_file

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
        names = (*self.schema.feature_names, "(intercept)")
        content = {
            "kind": _KIND,
            "label": self.label_column,
            "labels": list(self.labels),
            "weights": dict(zip(names, self.params.tolist(), strict=True)),
            "schema": self.schema.to_dict(),
        }
        replace_file(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def load_model(folder: Path) -> LinearModel:
    """Read the model of a run's folder (or the file itself)."""
    path = folder / "model.json" if folder.is_dir() else folder
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Train one with `fcfl train … --out`.")
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != _KIND:
            raise DataError(f"{str(path)!r} holds a model of kind {content['kind']!r}.")
        params = np.array(list(content["weights"].values()), dtype=np.float64)
        negative, positive = content["labels"]
        schema = Schema.from_dict(content["schema"])
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
        if isinstance(error, FCFLError):
            raise
        raise DataError(f"{str(path)!r} is not a model written by fcfl ({error}).") from None
    if params.size != schema.n_features + 1 or not np.isfinite(params).all():
        raise DataError(f"{str(path)!r} is not a whole model: its weights do not fit its schema.")
    return LinearModel(params, schema, (negative, positive), content["label"])


def predict_file(folder: Path, table: Path) -> Any:
    """Predictions for a table on disk, as the table with two more columns."""
    return load_model(folder).predict(read_table(table))
