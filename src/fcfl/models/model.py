"""The contract of a model: everything else in the package asks only what stands here.

A researcher's own model is any object with these members; `Linear` and `TorchModule` are two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

from fcfl._checks import is_number
from fcfl._files import replace_file
from fcfl._types import ClientId, Point, RateId, Report, Vector
from fcfl.data.client_data import ClientData
from fcfl.models.curvature_sum import CurvatureSum
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss
from fcfl.models.model_file import Inputs

PARAMS = "params.txt"
M = TypeVar("M")
T = TypeVar("T")


class ModelRows(Protocol):
    """A client's rows under a model: they can be reported on."""

    @property
    def n_params(self) -> int: ...  # noqa: D102

    def report(self, point: Point) -> Report:
        """Loss and smooth rates at ``point``, with gradients and whatever else it wants."""
        ...

    def with_groups_of(self, least: float) -> "ModelRows":
        """The same rows, in which a group of fewer than ``least`` rows has none."""
        ...


class SummingRows(ModelRows, Protocol):
    """Rows whose curvature is cheaper to add to that of others than to make on its own."""

    def report_into(self, point: Point, total: CurvatureSum) -> Report:
        """The report without curvature, which is added to ``total``."""
        ...


def rows_can_add_up(rows: ModelRows) -> TypeGuard[SummingRows]:
    """Whether rows have a `report_into`."""
    return callable(getattr(type(rows), "report_into", None))


class Model(Protocol):
    """What is trained: first parameters, reports on rows, logits, and the loss."""

    @property
    def n_params(self) -> int: ...  # noqa: D102
    @property
    def loss(self) -> Loss: ...  # noqa: D102

    @property
    def threshold(self) -> float:
        """The decision threshold: the score from which on a row is selected."""
        ...

    @property
    def cut(self) -> float:
        """The same on the scale of the logits. Every rate and every decision is taken there."""
        ...

    @property
    def default_l2(self) -> float | None:
        """The L2 weight by default; None leaves it to be chosen."""
        ...

    @property
    def default_starts(self) -> int:
        """How many starts are compared by default."""
        ...

    @property
    def default_confidence(self) -> float:
        """How sure to be, by default, that budgets hold on new rows."""
        ...

    def start(self) -> Vector:
        """The first parameters."""
        ...

    def other_starts(self, count: int, seed: int) -> Mapping[str, Vector]:
        """At most ``count`` other parameters to start from, by name."""
        ...

    def neutral_start(self) -> Vector:
        """Where fits begin that are only compared with each other, whatever `start` is."""
        ...

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """A client's rows, ready to be reported on; rates in this order."""
        ...

    def logits(self, params: Vector, X: Any) -> Vector:
        """The logit of each row of ``X``; a row is selected from `cut` on."""
        ...

    def adapt_method(self, method: M) -> M:
        """The method with what this model can afford, where the choice was left open."""
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
    """A model that only its clients know: here one knows no more than where training starts.

    For clients of your own that report losses and rates which are not those of rows in memory.
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
        """How many numbers are trained."""
        return int(self.first.size)

    def start(self) -> Vector:
        """The first parameters."""
        return self.first

    neutral_start = start

    def other_starts(self, count: int, seed: int) -> Mapping[str, Vector]:
        """None: what other parameters would mean is known to the clients only."""
        return {}

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """Rows that this process holds mean nothing to it."""
        raise TypeError(f"Client {client!r} must report by itself: its model is not known here.")

    def logits(self, params: Vector, X: Any) -> Vector:
        """Nor has it logits."""
        raise TypeError("This model has no logits: it is known to its clients only.")

    def adapt_method(self, method: M) -> M:
        """Nothing is known of what it can afford."""
        return method

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the numbers, which is all that is known: a line each in ``params.txt``."""
        text = "\n".join(repr(float(value)) for value in params)
        replace_file(folder / PARAMS, (text + "\n").encode())
