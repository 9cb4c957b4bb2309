"""A trained model read back from its folder, ready to score tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector
from fcfl.data.schema import Category, Number
from fcfl.errors import DataError
from fcfl.models.linear import Linear
from fcfl.models.model_file import Inputs, model_path, read_model_file, whole_model
from fcfl.models.rates import hard_selection


@dataclass(frozen=True)
class SavedModel:
    """A linear model, its parameters, and the columns that it takes."""

    model: Linear
    params: Vector
    inputs: Inputs

    def logits(self, frame: Any) -> Vector:
        """The logit of each row of a table."""
        if self.inputs.is_plain:
            _refuse_empty_cells(frame, self.inputs)
        return self.model.logits(self.params, self.inputs.schema.transform(frame))

    def scores(self, frame: Any) -> Vector:
        """Probability of the positive label for each row; the logit where the loss has none."""
        return self.model.loss.scores(self.logits(frame))

    def answers(self, logits: Vector, cuts: Vector | float | None = None) -> NDArray[Any]:
        """The label of each row: the positive one from a logit of ``cuts`` on, or the model's."""
        selected = hard_selection(logits, self.model.cut if cuts is None else cuts)
        return np.array(self.inputs.labels, dtype=object)[selected.astype(np.intp)]

    def check_decides_by_score(self) -> None:
        """Refuse to write elsewhere a model that decides by more than its score."""
        if self.inputs.thresholds is not None:
            raise DataError(
                "This model decides by client and group, which other formats have no place for: "
                "its decisions would be other ones there. Use `fcfl predict`, or train without "
                "`--thresholds group`."
            )


def load_model(place: Path) -> SavedModel:
    """Read the model of a folder, of a run or of a classifier (or the file itself)."""
    path = model_path(place)
    content = read_model_file(path)
    if content["kind"] == "fcfl-torch-1":
        raise DataError(
            f"The model in {str(place)!r} is a network, and a file has no architecture. Use it in "
            "Python: FCFLClassifier.load(folder, model=module)."
        )
    model, params = Linear.read(content, path)
    with whole_model(path):
        return SavedModel(model, params, Inputs.from_json(content))


def cells_of(inputs: Inputs, frame: Any) -> dict[str, NDArray[Any]]:
    """Each column's cells as any other program takes them.

    Numbers are floats, NaN where a cell is empty; levels of a category are text without spaces
    around it, empty where the cell is empty. For all levels that training never saw stands one
    text that is no level.
    """
    cells = {}
    read = inputs.schema.read(frame)
    for column, values in zip(inputs.schema.columns, read, strict=True):
        if isinstance(column, Category):
            names = np.array([*column.levels, "", _no_level(column)], dtype=object)
            cells[column.name] = names[values]  # -1, none of the known ones, is the last
        else:
            cells[column.name] = values
    return cells


def _no_level(column: Category) -> str:
    name = "unknown"
    while name in column.levels:
        name += "?"
    return name


def _refuse_empty_cells(frame: Any, inputs: Inputs) -> None:
    for column, values in zip(inputs.schema.columns, inputs.schema.read(frame), strict=True):
        empty = int(np.isnan(values).sum()) if isinstance(column, Number) else 0
        if empty:
            raise DataError(
                f"Column {column.name!r} is empty in {empty} rows, and this model was trained on "
                "numbers only. Fill the cells in."
            )
