r"""The protocol of models, decisions and group rates, and the file ``model.json``.

Any object with the members of `Model` can be trained. The package has two models, `Linear` and
`TorchModule`. The file stores the kind of the model, its weights or the name of their file, and its
`Inputs`. Each kind of model writes and reads its own entries.

A group rate is the mean of a selection score ``s(z)`` over the rows of one group. Training uses the
smooth score :math:`s(z) = \sigma(10 (z - c))`, which for c = 0 is the paper's
:math:`1/(1+((1-h)/h)^{10})` with :math:`h = \sigma(z)`. Results report the hard score
:math:`s(z) = [z \ge c]`. A sharper score is closer to the hard score, but has a large slope on
fewer rows. The cut c is `Model.cut`, plus the threshold of the group with `GroupThresholds`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import MsgspecError
from numpy.typing import NDArray

from fcfl._checks import is_number
from fcfl._files import replace_file
from fcfl._types import ROW_SIGNS, SHARPNESS, ClientId, Matrix, Point, RateId, Report, Vector
from fcfl.data.cells import Number, Schema
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError, FCFLError
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss, sigmoid


def smooth_selection(logits: Vector, cut: Vector | float, sharpness: float = SHARPNESS) -> Vector:
    r"""Return the smooth selection score :math:`\sigma(10 (z - c))`, in [0, 1]."""
    score: Vector = sigmoid(sharpness * (logits - cut))
    return score


def smooth_selection_slope(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Return the derivative of the smooth score with respect to the logit, given the score."""
    return sharpness * score * (1.0 - score)


def smooth_selection_bend(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Return the second derivative of the smooth score with respect to the logit."""
    return sharpness**2 * score * (1.0 - score) * (1.0 - 2.0 * score)


def selection_score(logits: Vector, point: Point, cut: float) -> Vector:
    """Return the score of each row in the requested rates: smooth, or the hard decision."""
    if point.want == "decisions":
        return hard_selection(logits, cut).astype(np.float64)
    return smooth_selection(logits, cut, point.sharpness)


def hard_selection(logits: Vector, cut: Vector | float) -> NDArray[np.bool_]:
    """Return the hard decisions: a row is selected if its logit is at least the cut."""
    return logits >= cut


def confusion_of(selected: Vector, row_counts: Vector, positive_counts: Vector) -> Vector:
    """Return true negatives, false positives, false negatives and true positives.

    ``selected`` is 1 for each selected item. ``row_counts`` are the numbers of rows of the items,
    and ``positive_counts`` the numbers of these rows with label 1.
    """
    positives, rows = float(positive_counts.sum()), float(row_counts.sum())
    true_positive, chosen = selected @ positive_counts, selected @ row_counts
    false_positive, false_negative = chosen - true_positive, positives - true_positive
    true_negative = rows - positives - false_positive
    return np.array([true_negative, false_positive, false_negative, true_positive])


def rate_members(
    data: ClientData, rates: Sequence[RateId], client: ClientId | None = None
) -> Matrix:
    """Return the sign of each row in each rate, shape (rows, rates): see `ROW_SIGNS`.

    A group that occurs only at other clients has no rows.
    """
    members = np.zeros((data.n_rows, len(rates)))
    for column, rate in enumerate(rates):
        if rate.attribute not in data.levels:
            known = ", ".join(map(repr, data.levels)) or "none"
            who = "A client" if client is None else f"Client {client!r}"
            raise ValueError(f"{who} has no attribute {rate.attribute!r}; it has {known}.")
        if rate.group not in data.levels[rate.attribute]:
            continue
        code = data.levels[rate.attribute].index(rate.group)
        signs = np.where(data.y == 1.0, *ROW_SIGNS[rate.kind][::-1])
        members[:, column] = signs * (data.groups[rate.attribute] == code)
    return members


def rows_behind(members: Matrix) -> Vector:
    """Return the number of rows of each rate, given signs times weights."""
    count: Vector = np.abs(members).sum(axis=0)
    return count


def score_of_none(members: Matrix) -> Vector:
    """Return the sum of the row scores of each rate if no row is selected."""
    total: Vector = np.maximum(-members, 0.0).sum(axis=0)
    return total


def score_sums(selection: Vector, members: Matrix) -> Vector:
    """Return the sum of the row scores of each rate; ``selection`` is smooth or hard."""
    total: Vector = selection @ members + score_of_none(members)
    return total


Thresholds = Literal["common", "group"]
THRESHOLDS: tuple[Thresholds, Thresholds] = ("common", "group")

UNLAWFUL = (
    "Thresholds by group use {attribute!r} of each person for the decision itself. In some places "
    "that is unlawful: in the United States, for example, it may be disparate treatment in "
    "employment and in credit. Ask a lawyer before such a model decides about people."
)


@dataclass(frozen=True)
class GroupThresholds:
    """Thresholds by client and by group of one attribute, relative to the cut of the model.

    A row is selected if its logit minus the cut is at least its threshold. Rows of an unknown
    client or group, and rows without a group, have the threshold 0.
    """

    attribute: str
    by_client: Mapping[ClientId, Mapping[str, float]]

    def for_client(self, name: ClientId) -> "GroupThresholds":
        """Return the thresholds of one client only."""
        own = self.by_client.get(name)
        return GroupThresholds(self.attribute, {} if own is None else {name: own})

    def of_data(self, name: ClientId, data: ClientData) -> Vector:
        """Return the threshold of each row of one client."""
        own = self.by_client.get(name, {})
        levels = [own.get(level, 0.0) for level in data.levels[self.attribute]]
        thresholds: Vector = np.array([*levels, 0.0])[data.groups[self.attribute]]  # -1: no group
        return thresholds

    def of_rows(
        self, clients: Sequence[ClientId | None], groups: Sequence[str | None]
    ) -> tuple[Vector, NDArray[np.bool_]]:
        """Return the threshold of each row, and a mask of rows without one, which have 0."""
        found = [
            None if client is None or group is None else self.by_client.get(client, {}).get(group)
            for client, group in zip(clients, groups, strict=True)
        ]
        unknown = np.array([value is None for value in found], dtype=bool)
        return np.array([value or 0.0 for value in found], dtype=np.float64), unknown

    @property
    def sentence(self) -> str:
        """Warning for users of thresholds by group."""
        return UNLAWFUL.format(attribute=self.attribute)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "GroupThresholds":
        """Return the thresholds stored by `to_json`."""
        return msgspec.convert(content, cls)

    def to_json(self) -> dict[str, object]:
        """Return the entry of ``model.json``."""
        return dict(msgspec.to_builtins(self))


MODEL = "model.json"
Label = str | int | float | bool


@dataclass(frozen=True)
class Inputs:
    """Input columns of a model, and names of its labels.

    ``labels`` are the negative and the positive label. With ``is_plain``, as for classifiers in
    Python, columns are unscaled numbers and empty cells raise an error. With ``thresholds``,
    decisions also depend on the client and group of the row, which are read from the columns
    ``client_column`` and ``thresholds.attribute``. ``missing`` are the texts of empty cells, by
    default those of `fcfl.data.rows.MARKS`.
    """

    schema: Schema
    labels: tuple[Label, Label]
    label_column: str | None = None
    is_plain: bool = False
    thresholds: GroupThresholds | None = None
    client_column: str | None = None
    missing: tuple[str, ...] | None = None

    @classmethod
    def plain(cls, names: Iterable[str], labels: tuple[Label, Label]) -> "Inputs":
        """Return inputs of unscaled numbers."""
        columns = tuple(Number(name, 0.0, 1.0) for name in names)
        return cls(Schema(columns), labels, None, True)

    def to_json(self) -> dict[str, object]:
        """Return the entries of ``model.json`` that describe the inputs."""
        written: dict[str, object] = {
            "label": self.label_column,
            "labels": list(self.labels),
            "plain": self.is_plain,
            "schema": self.schema.to_dict(),
        }
        if self.thresholds is not None:
            written["client"] = self.client_column
            written["thresholds"] = self.thresholds.to_json()
        if self.missing is not None:
            written["missing"] = list(self.missing)
        return written

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Inputs":
        """Return the inputs stored in the content of ``model.json``."""
        negative, positive = content["labels"]
        label, client = content["label"], content.get("client")
        thresholds, missing = content.get("thresholds"), content.get("missing")
        return cls(
            Schema.from_dict(content["schema"]),
            (negative, positive),
            None if label is None else str(label),
            bool(content.get("plain", False)),
            None if thresholds is None else GroupThresholds.from_json(thresholds),
            None if client is None else str(client),
            None if missing is None else tuple(map(str, missing)),
        )


def write_model_file(
    folder: Path, kind: str, content: Mapping[str, object], inputs: Inputs | None
) -> None:
    """Write ``model.json`` atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {"kind": kind, **content, **({} if inputs is None else inputs.to_json())}
    text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
    replace_file(folder / MODEL, text.encode())


def model_path(place: Path) -> Path:
    """Return the path of ``model.json``, given its folder or the file itself."""
    path = place / MODEL if place.is_dir() else place
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Train one with `fcfl train … --out`.")
    return path


def read_model_file(path: Path) -> dict[str, Any]:
    """Return the content of ``model.json``."""
    with whole_model(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content["kind"], str):
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        return dict(content)


@contextmanager
def whole_model(path: Path) -> Iterator[None]:
    """Convert errors from missing or invalid entries of a model file to `DataError`."""
    try:
        yield
    except FCFLError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, MsgspecError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        if isinstance(error, json.JSONDecodeError):
            why = "cut off, or not JSON"
        sentence = f"{str(path)!r} is not a whole model written by fcfl ({why})."
        raise DataError(sentence) from None


def distinct_names(names: Iterable[str]) -> list[str]:
    """Return unique names by numbering repeated names, such as "a=b=c" and "a=b=c (2)"."""
    apart: dict[str, None] = {}
    for name in names:
        unused, count = name, 1
        while unused in apart:
            count += 1
            unused = f"{name} ({count})"
        apart[unused] = None
    return list(apart)


PARAMS = "params.txt"
AnyMethod = TypeVar("AnyMethod")
T = TypeVar("T")


class ModelRows(Protocol):
    """Protocol of the rows of a client under a model.

    An optional method ``report_into(point, total)`` adds the curvature to a `CurvatureSum` and
    leaves it out of the report. Extras of a request may require further members: see `Extra`.
    """

    @property
    def n_params(self) -> int: ...  # noqa: D102

    def report(self, point: Point) -> Report:
        """Return loss and smooth rates at ``point``, with gradients and extras if requested."""
        ...

    def with_groups_of(self, least: float) -> "ModelRows":
        """Return the rows with counts and rates of groups of fewer than ``least`` rows set to 0."""
        ...


class Model(Protocol):
    """Protocol of a model: initial parameters, reports on rows, logits and the loss."""

    @property
    def n_params(self) -> int: ...  # noqa: D102
    @property
    def loss(self) -> Loss: ...  # noqa: D102

    @property
    def threshold(self) -> float:
        """Decision threshold: smallest score at which a row is selected."""
        ...

    @property
    def cut(self) -> float:
        """Decision threshold as a logit, which all rates and decisions use."""
        ...

    @property
    def default_l2(self) -> float | None:
        """Default L2 weight, or None to choose it from the data."""
        ...

    @property
    def default_starts(self) -> int:
        """Default number of starts to compare."""
        ...

    @property
    def default_confidence(self) -> float:
        """Default confidence level at which budgets should hold on new rows."""
        ...

    def start(self) -> Vector:
        """Return the first parameters."""
        ...

    def other_starts(self, count: int, seed: int) -> Mapping[str, Vector]:
        """Return at most ``count`` other initial parameters, by name."""
        ...

    def neutral_start(self) -> Vector:
        """Return initial parameters for fits that are only compared with each other."""
        ...

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """Return the rows of a client, prepared for reports with the rates in this order."""
        ...

    def logits(self, params: Vector, X: Any) -> Vector:
        """Return the logit of each row of ``X``; rows are selected from `cut` upwards."""
        ...

    def adapt_method(self, method: AnyMethod) -> AnyMethod:
        """Return the method with unset options set to values suitable for this model."""
        ...

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the trained model to a folder; ``inputs`` are its input columns."""
        ...


def check_threshold(threshold: object, loss: Loss) -> float:
    """Convert a decision threshold to a logit; raise `ValueError` if it is not between 0 and 1."""
    if not (is_number(threshold) and 0.0 < threshold < 1.0):
        raise ValueError(
            f"`threshold` must lie strictly between 0 and 1, got {threshold!r}. It is the "
            "probability from which on a row is selected."
        )
    return loss.cut_at(float(threshold))


def at_threshold(model: T, threshold: float | None) -> T:
    """Return the model with another decision threshold, or unchanged if it is None."""
    if threshold is None:
        return model
    given: Any = model
    if "threshold" not in getattr(type(given), "__dataclass_fields__", {}):
        raise ValueError(
            f"`threshold` must be left out, got {threshold!r}: the model {type(model).__name__} "
            "has a fixed `cut`."
        )
    if given.threshold == threshold:
        return model
    changed: T = replace(given, threshold=threshold)
    return changed


@dataclass(frozen=True, eq=False)
class Opaque:
    """A model that only its clients can evaluate. The server has only its initial parameters.

    Use it with custom clients that compute their losses and rates themselves.
    """

    first: Vector
    loss: Loss = CROSS_ENTROPY
    default_l2: float | None = 0.0
    default_starts: int = 1
    default_confidence: float = 0.0
    threshold: float = HALF

    def __post_init__(self) -> None:
        check_threshold(self.threshold, self.loss)

    @property
    def cut(self) -> float:
        """Smallest logit at which clients should select a row."""
        return self.loss.cut_at(self.threshold)

    @property
    def n_params(self) -> int:
        """Number of trained parameters."""
        return int(self.first.size)

    def start(self) -> Vector:
        """Return the first parameters."""
        return self.first

    neutral_start = start

    def other_starts(self, count: int, seed: int) -> Mapping[str, Vector]:
        """Return an empty mapping, because only the clients can interpret parameters."""
        return {}

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """Raise `TypeError`, because only a client can evaluate this model."""
        raise TypeError(f"Client {client!r} must report by itself: the server has no model.")

    def logits(self, params: Vector, X: Any) -> Vector:
        """Raise `TypeError`, because only a client can evaluate this model."""
        raise TypeError("This model has no logits: only its clients can evaluate it.")

    def adapt_method(self, method: AnyMethod) -> AnyMethod:
        """Return the method unchanged."""
        return method

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the parameters to ``params.txt``, one per line."""
        text = "\n".join(repr(float(value)) for value in params)
        replace_file(folder / PARAMS, (text + "\n").encode())
