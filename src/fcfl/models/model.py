r"""The contract of a model, its decisions and group rates, and ``model.json``, its file.

`Model` is all that the package requires of a model: any object with these members is one. `Linear`
and `TorchModule` come with the package. The file has the kind of the model, its weights or where
they are, and its `Inputs`; each kind writes and reads its own part.

A group rate is the mean of a selection score ``s(z)`` over the rows of one group. Training uses the
smooth score :math:`s(z) = \sigma(10 (z - c))`, which for c = 0 is the paper's
:math:`1/(1+((1-h)/h)^{10})` with :math:`h = \sigma(z)`. Results report the hard score
:math:`s(z) = [z \ge c]`. A sharper score is nearer to the hard one, and its slope is large on fewer
rows. The cut c is the model's (`Model.cut`), or that of `GroupThresholds`; it has no default here.
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
    """Return the derivative of the smooth score with respect to the logit, from the score."""
    return sharpness * score * (1.0 - score)


def smooth_selection_bend(score: Vector, sharpness: float = SHARPNESS) -> Vector:
    """Return the second derivative of the smooth score with respect to the logit."""
    return sharpness**2 * score * (1.0 - score) * (1.0 - 2.0 * score)


def selection_score(logits: Vector, point: Point, cut: float) -> Vector:
    """Return each row's score in the requested rates: smooth, or the decision itself."""
    if point.want == "decisions":
        return hard_selection(logits, cut).astype(np.float64)
    return smooth_selection(logits, cut, point.sharpness)


def hard_selection(logits: Vector, cut: Vector | float) -> NDArray[np.bool_]:
    """Return the hard decisions: a row is selected if its logit is at least the cut."""
    return logits >= cut


def confusion_of(selected: Vector, row_counts: Vector, positive_counts: Vector) -> Vector:
    """Return true negatives, false positives, false negatives and true positives.

    ``selected`` is 1 for each item that is selected, ``row_counts`` the rows behind an item and
    ``positive_counts`` those of them with label 1.
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

    A group that only other clients have has no rows here.
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
    """Return the number of rows behind each rate, from their signs times their weights."""
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
    """Thresholds by client and by group of one attribute, in logits above the model's cut.

    A row is selected if its logit less the cut is at least its threshold. A row of an unknown
    client or group, or without a group, has 0: it is selected from the cut on, as all rows are
    without such thresholds.
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
        """Return the threshold of each row, and for which rows there is none: they have 0."""
        found = [
            None if client is None or group is None else self.by_client.get(client, {}).get(group)
            for client, group in zip(clients, groups, strict=True)
        ]
        unknown = np.array([value is None for value in found], dtype=bool)
        return np.array([value or 0.0 for value in found], dtype=np.float64), unknown

    @property
    def sentence(self) -> str:
        """What whoever uses these thresholds should know."""
        return UNLAWFUL.format(attribute=self.attribute)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "GroupThresholds":
        """Read what `to_json` wrote."""
        return msgspec.convert(content, cls)

    def to_json(self) -> dict[str, object]:
        """Return the entry of ``model.json``."""
        return dict(msgspec.to_builtins(self))


MODEL = "model.json"
Label = str | int | float | bool


@dataclass(frozen=True)
class Inputs:
    """What a model is asked about, and what its two answers are called.

    ``labels`` are the negative and the positive one. With ``is_plain`` the columns are numbers
    that are used as they are, and an empty cell is refused: how a classifier in Python is trained.
    With ``thresholds`` an answer also depends on the row's client and group, which are in the
    columns ``client_column`` and ``thresholds.attribute``. Cells with a text of ``missing`` count
    as empty, by default those with a usual mark.
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
        """Return inputs of numbers that are used as they are."""
        columns = tuple(Number(name, 0.0, 1.0) for name in names)
        return cls(Schema(columns), labels, None, True)

    def to_json(self) -> dict[str, object]:
        """Return the entries of the file that describe inputs."""
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
        """Read that part."""
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
    """Write ``model.json`` in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {"kind": kind, **content, **({} if inputs is None else inputs.to_json())}
    text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
    replace_file(folder / MODEL, text.encode())


def model_path(place: Path) -> Path:
    """Return the file of a model: in a folder, or the file itself."""
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
    """Raise `DataError` that the file is not whole, whatever is missing or wrong in it."""
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
    """Return the names, numbered if one has occurred before: level ``b=c`` of column ``a``."""
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
    """A client's rows under a model.

    Rows may also have ``report_into(point, total)``, which adds the curvature to a `CurvatureSum`
    and leaves it out of the report, and what the extras of a request read: see `Extra`.
    """

    @property
    def n_params(self) -> int: ...  # noqa: D102

    def report(self, point: Point) -> Report:
        """Report loss and smooth rates at ``point``, with gradients and extras as requested."""
        ...

    def with_groups_of(self, least: float) -> "ModelRows":
        """Return the same rows, in which a group of fewer than ``least`` rows has none."""
        ...


class Model(Protocol):
    """First parameters, reports on rows, logits, and the loss."""

    @property
    def n_params(self) -> int: ...  # noqa: D102
    @property
    def loss(self) -> Loss: ...  # noqa: D102

    @property
    def threshold(self) -> float:
        """Decision threshold: the score from which on a row is selected."""
        ...

    @property
    def cut(self) -> float:
        """The same on the scale of the logits. Every rate and every decision uses it."""
        ...

    @property
    def default_l2(self) -> float | None:
        """Default L2 weight; None if it is to be chosen."""
        ...

    @property
    def default_starts(self) -> int:
        """Default number of starts to compare."""
        ...

    @property
    def default_confidence(self) -> float:
        """Default level at which budgets are to hold on new rows."""
        ...

    def start(self) -> Vector:
        """Return the first parameters."""
        ...

    def other_starts(self, count: int, seed: int) -> Mapping[str, Vector]:
        """Return at most ``count`` other parameters to start from, by name."""
        ...

    def neutral_start(self) -> Vector:
        """Return parameters at which fits begin that are only compared with each other."""
        ...

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """Return a client's rows, ready for reports; rates in this order."""
        ...

    def logits(self, params: Vector, X: Any) -> Vector:
        """Return the logit of each row of ``X``; a row is selected from `cut` on."""
        ...

    def adapt_method(self, method: AnyMethod) -> AnyMethod:
        """Return the method with its unset options set to what this model can afford."""
        ...

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the trained model to a folder; ``inputs`` are the columns that it takes."""
        ...


def check_threshold(threshold: object, loss: Loss) -> float:
    """Return the cut of a decision threshold on the scale of a loss's logits."""
    if not (is_number(threshold) and 0.0 < threshold < 1.0):
        raise ValueError(
            f"`threshold` must lie strictly between 0 and 1, got {threshold!r}. It is the "
            "probability from which on a row is selected."
        )
    return loss.cut_at(float(threshold))


def at_threshold(model: T, threshold: float | None) -> T:
    """Return the model with another decision threshold; None keeps its own."""
    if threshold is None:
        return model
    given: Any = model
    if "threshold" not in getattr(type(given), "__dataclass_fields__", {}):
        raise ValueError(
            f"`threshold` must be left out, got {threshold!r}: the model {type(model).__name__} "
            "decides by itself where it selects (`cut`)."
        )
    if given.threshold == threshold:
        return model
    changed: T = replace(given, threshold=threshold)
    return changed


@dataclass(frozen=True, eq=False)
class Opaque:
    """A model that only its clients can evaluate; the server has its first parameters.

    It is for clients of your own whose losses and rates are not those of rows in memory.
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
        """The logit from which on clients are to select."""
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
        """Return none: only the clients can interpret parameters."""
        return {}

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """Raise `TypeError`: only a client can evaluate this model."""
        raise TypeError(f"Client {client!r} must report by itself: its model is not known here.")

    def logits(self, params: Vector, X: Any) -> Vector:
        """Raise `TypeError`: only a client can evaluate this model."""
        raise TypeError("This model has no logits: it is known to its clients only.")

    def adapt_method(self, method: AnyMethod) -> AnyMethod:
        """Return the method unchanged."""
        return method

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the parameters, a line each in ``params.txt``."""
        text = "\n".join(repr(float(value)) for value in params)
        replace_file(folder / PARAMS, (text + "\n").encode())
