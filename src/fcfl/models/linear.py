"""A linear model. Parameters are the feature weights followed by the intercept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from fcfl._types import ClientId, RateId, Vector
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.models.linear_rows import LinearRows, linear_rows
from fcfl.models.loss import CROSS_ENTROPY, Loss, loss_from_json, loss_to_json
from fcfl.models.model_file import Inputs, distinct_names, whole_model, write_model_file

M = TypeVar("M")
KIND = "fcfl-linear-1"


CONFIDENCE = 0.9  # by default; docs/promise.md says how it was chosen


@dataclass(frozen=True)
class Linear:
    """Logits :math:`z = X w + b`.

    ``first`` says where training starts: at zero, where every group is treated alike, or
    uniformly at random by ``seed``, as a linear layer customarily does.
    """

    n_features: int
    first: Literal["zero", "uniform"] = "zero"
    seed: int = 0
    loss: Loss = CROSS_ENTROPY
    default_l2: ClassVar[float | None] = None
    default_starts: ClassVar[int] = 4
    default_confidence: ClassVar[float] = CONFIDENCE

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return self.n_features + 1

    def neutral_start(self) -> Vector:
        """Zero, where every group is treated alike."""
        return np.zeros(self.n_params)

    def start(self) -> Vector:
        """The first parameters."""
        if self.first == "zero":
            return np.zeros(self.n_params)
        spread = 1.0 / np.sqrt(max(self.n_features, 1))
        return np.random.default_rng(self.seed).uniform(-spread, spread, self.n_params)

    def other_starts(self, count: int, seed: int) -> dict[str, Vector]:
        """The intercept up and down, from which other optima are found; then random ones."""
        shifts = {"intercept +1": 1.0, "intercept -1": -1.0}
        starts = {name: np.append(np.zeros(self.n_features), by) for name, by in shifts.items()}
        for index in range(count - len(starts)):
            drawn = replace(self, first="uniform", seed=seed + index + 1)
            starts[f"random {index + 1}"] = drawn.start()
        return dict(list(starts.items())[: max(count, 0)])

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> LinearRows:
        """A client's rows, ready to be reported on."""
        return linear_rows(client, data, rates, self.loss)

    def logits(self, params: Vector, X: Any) -> Vector:
        """The logit of each row of ``X``."""
        return linear_logits(X, params)

    def adapt_method(self, method: M) -> M:
        """A linear model can afford whatever a method asks by default."""
        return method

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write ``model.json``: a weight for each feature, and how a row becomes features."""
        if inputs is None:
            raise TypeError("A linear model is written with its inputs.")
        names = distinct_names((*inputs.schema.feature_names, "(intercept)"))
        weights = dict(zip(names, params.tolist(), strict=True))
        write_model_file(
            folder, KIND, {"loss": loss_to_json(self.loss), "weights": weights}, inputs
        )

    @classmethod
    def read(cls, content: Mapping[str, Any], path: Path) -> "tuple[Linear, Vector]":
        """The model in the content of ``model.json``, and its parameters."""
        if content["kind"] != KIND:
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        with whole_model(path):
            n_features = Inputs.from_json(content).schema.n_features
            params = np.array(list(content["weights"].values()), dtype=np.float64)
            described = content.get("loss")  # files written before there was a choice have none
            loss = CROSS_ENTROPY if described is None else loss_from_json(described)
        if params.size != n_features + 1 or not np.isfinite(params).all():
            raise DataError(
                f"{str(path)!r} is not a whole model: its weights do not fit its schema."
            )
        return cls(n_features, loss=loss), params


def linear_logits(X: Any, params: Vector) -> Vector:
    """Logits :math:`z = X w + b` for ``params = [w, b]``."""
    logits: Vector = X @ params[:-1] + params[-1]
    return logits
