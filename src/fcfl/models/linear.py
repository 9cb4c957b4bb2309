"""The linear model, in training and read back from its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, RateId, Vector
from fcfl.data.cells import Category, Number
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.models import model as models
from fcfl.models.linear_rows import LinearRows, linear_rows
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss, loss_from_json, loss_to_json

KIND = "fcfl-linear-1"


CONFIDENCE = 0.9  # by default; docs/promise.md says how it was chosen


@dataclass(frozen=True)
class Linear:
    """Logits :math:`z = X w + b`.

    ``first`` says where training starts: with zero weights, where every group is treated alike, or
    uniformly at random by ``seed``, as a linear layer customarily does. A row is selected from a
    probability of ``threshold`` on; training starts there, where smooth rates have their slope.
    """

    n_features: int
    first: Literal["zero", "uniform"] = "zero"
    seed: int = 0
    loss: Loss = CROSS_ENTROPY
    threshold: float = HALF
    default_l2: ClassVar[float | None] = None
    default_starts: ClassVar[int] = 4
    default_confidence: ClassVar[float] = CONFIDENCE

    def __post_init__(self) -> None:
        models.check_threshold(self.threshold, self.loss)

    @cached_property
    def cut(self) -> float:
        """The logit from which on a row is selected."""
        return self.loss.cut_at(self.threshold)

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return self.n_features + 1

    def neutral_start(self) -> Vector:
        """Return zero weights, where every group is treated alike; the intercept is the cut."""
        return np.append(np.zeros(self.n_features), self.cut)

    def start(self) -> Vector:
        """Return the first parameters."""
        first = self.neutral_start()
        if self.first == "uniform":
            spread = 1.0 / np.sqrt(max(self.n_features, 1))
            first += np.random.default_rng(self.seed).uniform(-spread, spread, self.n_params)
        return first

    def other_starts(self, count: int, seed: int) -> dict[str, Vector]:
        """Shift the intercept up and down, which leads to other optima; then draw at random."""
        shifts = {"intercept +1": 1.0, "intercept -1": -1.0}
        neutral = self.neutral_start()
        starts = {name: np.append(neutral[:-1], neutral[-1] + by) for name, by in shifts.items()}
        for index in range(count - len(starts)):
            drawn = replace(self, first="uniform", seed=seed + index + 1)
            starts[f"random {index + 1}"] = drawn.start()
        return dict(list(starts.items())[: max(count, 0)])

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> LinearRows:
        """Return a client's rows, ready for reports."""
        return linear_rows(client, data, rates, self.loss, self.cut)

    def logits(self, params: Vector, X: Any) -> Vector:
        """The logit of each row of ``X``."""
        return linear_logits(X, params)

    def adapt_method(self, method: models.AnyMethod) -> models.AnyMethod:
        """Return the method unchanged: a linear model can afford its defaults."""
        return method

    def write(self, params: Vector, folder: Path, inputs: models.Inputs | None) -> None:
        """Write ``model.json``: a weight for each feature, and how a row becomes features."""
        if inputs is None:
            raise TypeError("A linear model is written with its inputs.")
        names = models.distinct_names((*inputs.schema.feature_names, "(intercept)"))
        weights = dict(zip(names, params.tolist(), strict=True))
        content = {
            "loss": loss_to_json(self.loss), "threshold": self.threshold, "weights": weights
        }  # fmt: skip
        models.write_model_file(folder, KIND, content, inputs)

    @classmethod
    def read(cls, content: Mapping[str, Any], path: Path) -> "tuple[Linear, Vector]":
        """Return the model in the content of ``model.json``, and its parameters."""
        if content["kind"] != KIND:
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        with models.whole_model(path):
            n_features = models.Inputs.from_json(content).schema.n_features
            params = np.array(list(content["weights"].values()), dtype=np.float64)
            loss = loss_from_json(content["loss"])
            model = cls(n_features, loss=loss, threshold=content["threshold"])
        if params.size != n_features + 1 or not np.isfinite(params).all():
            raise DataError(
                f"{str(path)!r} is not a whole model: its weights do not fit its schema."
            )
        return model, params


def linear_logits(X: Any, params: Vector) -> Vector:
    """Return logits :math:`z = X w + b` for ``params = [w, b]``."""
    logits: Vector = X @ params[:-1] + params[-1]
    return logits


@dataclass(frozen=True)
class SavedModel:
    """A linear model, its parameters, and the columns that it takes."""

    model: Linear
    params: Vector
    inputs: models.Inputs

    def logits(self, frame: Any) -> Vector:
        """The logit of each row of a table."""
        if self.inputs.is_plain:
            _refuse_empty_cells(frame, self.inputs)
        return self.model.logits(self.params, self.inputs.schema.transform(frame))

    def scores(self, frame: Any) -> Vector:
        """Return the probability of the positive label for each row; the logit if there is none."""
        return self.model.loss.scores(self.logits(frame))

    def answers(self, logits: Vector, cuts: Vector | float | None = None) -> NDArray[Any]:
        """Return the label of each row: the positive one from a logit of ``cuts`` on."""
        selected = models.hard_selection(logits, self.model.cut if cuts is None else cuts)
        return np.array(self.inputs.labels, dtype=object)[selected.astype(np.intp)]

    def check_decides_by_score(self) -> None:
        """Raise `DataError` if the model decides by more than its score."""
        if self.inputs.thresholds is not None:
            raise DataError(
                "This model decides by client and group, which other formats have no place for: "
                "its decisions would be other ones there. Use `fcfl predict`, or train without "
                "`--thresholds group`."
            )


def load_model(place: Path) -> SavedModel:
    """Read the model of a folder, of a run or of a classifier (or the file itself)."""
    path = models.model_path(place)
    content = models.read_model_file(path)
    if content["kind"] == "fcfl-torch-1":
        raise DataError(
            f"The model in {str(place)!r} is a network, and a file has no architecture. Use it in "
            "Python: FCFLClassifier.load(folder, model=module)."
        )
    model, params = Linear.read(content, path)
    with models.whole_model(path):
        return SavedModel(model, params, models.Inputs.from_json(content))


def cells_of(inputs: models.Inputs, frame: Any) -> dict[str, NDArray[Any]]:
    """Return each column's cells as other programs take them.

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


def _refuse_empty_cells(frame: Any, inputs: models.Inputs) -> None:
    for column, values in zip(inputs.schema.columns, inputs.schema.read(frame), strict=True):
        empty = int(np.isnan(values).sum()) if isinstance(column, Number) else 0
        if empty:
            raise DataError(
                f"Column {column.name!r} is empty in {empty} rows, and this model was trained on "
                "numbers only. Fill the cells in."
            )
