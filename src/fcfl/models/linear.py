"""A linear model. Parameters are the feature weights followed by the intercept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from fcfl._types import ClientId, RateId, Vector
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.models.linear_rows import LinearRows, linear_rows
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss, loss_from_json, loss_to_json
from fcfl.models.model import check_threshold
from fcfl.models.model_file import Inputs, distinct_names, whole_model, write_model_file

M = TypeVar("M")
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
        check_threshold(self.threshold, self.loss)

    @cached_property
    def cut(self) -> float:
        """The logit from which on a row is selected."""
        return self.loss.cut_at(self.threshold)

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return self.n_features + 1

    def neutral_start(self) -> Vector:
        """Zero weights, where every group is treated alike; the intercept is the cut."""
        return np.append(np.zeros(self.n_features), self.cut)

    def start(self) -> Vector:
        """The first parameters."""
        first = self.neutral_start()
        if self.first == "uniform":
            spread = 1.0 / np.sqrt(max(self.n_features, 1))
            first += np.random.default_rng(self.seed).uniform(-spread, spread, self.n_params)
        return first

    def other_starts(self, count: int, seed: int) -> dict[str, Vector]:
        """The intercept up and down, from which other optima are found; then random ones."""
        shifts = {"intercept +1": 1.0, "intercept -1": -1.0}
        neutral = self.neutral_start()
        starts = {name: np.append(neutral[:-1], neutral[-1] + by) for name, by in shifts.items()}
        for index in range(count - len(starts)):
            drawn = replace(self, first="uniform", seed=seed + index + 1)
            starts[f"random {index + 1}"] = drawn.start()
        return dict(list(starts.items())[: max(count, 0)])

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> LinearRows:
        """A client's rows, ready to be reported on."""
        return linear_rows(client, data, rates, self.loss, self.cut)

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
        content = {
            "loss": loss_to_json(self.loss), "threshold": self.threshold, "weights": weights
        }  # fmt: skip
        write_model_file(folder, KIND, content, inputs)

    @classmethod
    def read(cls, content: Mapping[str, Any], path: Path) -> "tuple[Linear, Vector]":
        """The model in the content of ``model.json``, and its parameters."""
        if content["kind"] != KIND:
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        with whole_model(path):
            n_features = Inputs.from_json(content).schema.n_features
            params = np.array(list(content["weights"].values()), dtype=np.float64)
            loss = loss_from_json(content["loss"])
            model = cls(n_features, loss=loss, threshold=content["threshold"])
        if params.size != n_features + 1 or not np.isfinite(params).all():
            raise DataError(
                f"{str(path)!r} is not a whole model: its weights do not fit its schema."
            )
        return model, params


def linear_logits(X: Any, params: Vector) -> Vector:
    """Logits :math:`z = X w + b` for ``params = [w, b]``."""
    logits: Vector = X @ params[:-1] + params[-1]
    return logits
