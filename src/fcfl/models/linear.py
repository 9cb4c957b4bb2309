"""The linear model, for training and for predictions of a saved model."""

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


CONFIDENCE = 0.9  # default confidence; docs/promise.md explains the choice


@dataclass(frozen=True)
class Linear:
    """Linear model with logits :math:`z = X w + b`.

    ``first`` selects the initial weights: "zero", where all groups have equal rates, or "uniform",
    drawn by ``seed`` as usual for a linear layer. A row is selected if its probability is at least
    ``threshold``. The initial intercept is at this threshold, where smooth rates are steepest.
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
        """Smallest logit at which a row is selected."""
        return self.loss.cut_at(self.threshold)

    @property
    def n_params(self) -> int:
        """Number of parameters: feature weights and one intercept."""
        return self.n_features + 1

    def neutral_start(self) -> Vector:
        """Return zero weights, where all groups have equal rates, and the cut as intercept."""
        return np.append(np.zeros(self.n_features), self.cut)

    def start(self) -> Vector:
        """Return the initial parameters."""
        first = self.neutral_start()
        if self.first == "uniform":
            spread = 1.0 / np.sqrt(max(self.n_features, 1))
            first += np.random.default_rng(self.seed).uniform(-spread, spread, self.n_params)
        return first

    def other_starts(self, count: int, seed: int) -> dict[str, Vector]:
        """Return initial parameters by name: first with shifted intercepts, then random ones."""
        shifts = {"intercept +1": 1.0, "intercept -1": -1.0}
        neutral = self.neutral_start()
        starts = {name: np.append(neutral[:-1], neutral[-1] + by) for name, by in shifts.items()}
        for index in range(count - len(starts)):
            drawn = replace(self, first="uniform", seed=seed + index + 1)
            starts[f"random {index + 1}"] = drawn.start()
        return dict(list(starts.items())[: max(count, 0)])

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> LinearRows:
        """Return the rows of a client, prepared for reports."""
        return linear_rows(client, data, rates, self.loss, self.cut)

    def logits(self, params: Vector, X: Any) -> Vector:
        """Return the logit of each row of ``X``."""
        return linear_logits(X, params)

    def adapt_method(self, method: models.AnyMethod) -> models.AnyMethod:
        """Return the method unchanged, because its defaults suit linear models."""
        return method

    def write(self, params: Vector, folder: Path, inputs: models.Inputs | None) -> None:
        """Write ``model.json`` with the weight of each feature and the encoding of features."""
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
    """A linear model, its parameters, and its input columns."""

    model: Linear
    params: Vector
    inputs: models.Inputs

    def logits(self, frame: Any) -> Vector:
        """Return the logit of each row of a table."""
        if self.inputs.is_plain:
            _refuse_empty_cells(frame, self.inputs)
        return self.model.logits(self.params, self.inputs.schema.transform(frame))

    def scores(self, frame: Any) -> Vector:
        """Return the probability of the positive label, or the logit for a hinge loss, by row."""
        return self.model.loss.scores(self.logits(frame))

    def answers(self, logits: Vector, cuts: Vector | float | None = None) -> NDArray[Any]:
        """Return the predicted label of each row, positive if its logit is at least ``cuts``."""
        selected = models.hard_selection(logits, self.model.cut if cuts is None else cuts)
        return np.array(self.inputs.labels, dtype=object)[selected.astype(np.intp)]

    def check_decides_by_score(self) -> None:
        """Raise `DataError` if decisions depend on client and group besides the score."""
        if self.inputs.thresholds is not None:
            raise DataError(
                "This model has thresholds by client and group, which other formats do not "
                "support: its decisions would differ. Use `fcfl predict`, or train without "
                "`--thresholds group`."
            )


def load_model(place: Path) -> SavedModel:
    """Read a model from the folder of a run or of a classifier, or from its file."""
    path = models.model_path(place)
    content = models.read_model_file(path)
    if content["kind"] == "fcfl-torch-1":
        raise DataError(
            f"The model in {str(place)!r} is a network, and its file has no architecture. Load it "
            "in Python: FCFLClassifier.load(folder, model=module)."
        )
    model, params = Linear.read(content, path)
    with models.whole_model(path):
        return SavedModel(model, params, models.Inputs.from_json(content))


def cells_of(inputs: models.Inputs, frame: Any) -> dict[str, NDArray[Any]]:
    """Return the cells of each column in the form that other programs require.

    Numbers are floats, with NaN for empty cells. Categories are text without outer spaces, with
    empty text for empty cells. All levels unknown in training are replaced by one text that is not
    a level.
    """
    cells = {}
    read = inputs.schema.read(frame)
    for column, values in zip(inputs.schema.columns, read, strict=True):
        if isinstance(column, Category):
            names = np.array([*column.levels, "", _no_level(column)], dtype=object)
            cells[column.name] = names[values]  # -1, an unknown level, selects the last name
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
