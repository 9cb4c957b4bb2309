"""The values that cross the boundary between clients and server.

A `Request` goes out, one `Report` per client and point comes back. Nothing else leaves a client.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fcfl._brief import brief_repr

ClientId: TypeAlias = str
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

RateKind = Literal["selection", "true_positive", "false_positive"]
Want = Literal["decisions", "values", "gradients", "curvature"]

SHARPNESS = 10.0  # of the smooth selection score, as in the paper

LABEL_OF: Mapping[RateKind, int | None] = {
    "selection": None,
    "true_positive": 1,
    "false_positive": 0,
}
"""The label of the rows behind each kind of rate; None: all rows. The one place that knows."""


@dataclass(frozen=True, slots=True)
class RateId:
    """One group rate: the share of a group's rows that the model selects.

    ``selection`` counts all rows of the group, ``true_positive`` those with label 1,
    ``false_positive`` those with label 0.
    """

    kind: RateKind
    attribute: str
    group: str


@dataclass(frozen=True, slots=True)
class CurvatureWeights:
    """A client's weights in the Lagrangian: one for its loss, one for each of its rates."""

    loss: float
    rates: Vector


class Extra(ABC):
    """A question beyond loss, rates and curvature that some method asks of a client.

    Subclasses are frozen dataclasses: they travel inside a `Point` and are written into
    checkpoints. `fcfl.extras` has those of the baselines; a method of your own may bring its own.
    """

    @abstractmethod
    def answer(self, rows: Any, point: "Point") -> Mapping[str, Matrix]:
        """Arrays by name, computed by the client from its rows under the model."""

    @abstractmethod
    def shapes(self, point: "Point", n_rates: int) -> Mapping[str, tuple[int, ...]]:
        """The arrays to expect and their shapes; -1 stands for any length."""

    def for_client(self, name: ClientId) -> "Extra":
        """Return the question without what concerns other clients only."""
        return self


@dataclass(frozen=True, slots=True)
class Point:
    """Parameters to evaluate, and how much to say about them.

    ``values``: loss and smooth rates. ``gradients``: these and their gradients. ``curvature``: all
    of these and the client's part of the Lagrangian's Hessian, under ``curvature_weights``.
    ``decisions``: loss and hard rates. ``extras`` are what only some methods ask.
    ``sharpness`` is that of the smooth rates.
    """

    params: Vector
    want: Want = "values"
    curvature_weights: Mapping[ClientId, CurvatureWeights] | None = None
    extras: tuple[Extra, ...] = ()
    sharpness: float = SHARPNESS

    __repr__ = brief_repr

    @property
    def wants_gradients(self) -> bool:
        """Whether the report has gradients."""
        return self.want in ("gradients", "curvature")


@dataclass(frozen=True, slots=True)
class Request:
    """What the server asks of every client in one round."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What one client says about one point.

    ``rates`` are smooth group rates in the order agreed at the start; a group without rows has
    ``group_counts`` 0 and rate 0. ``extras`` has the answers to the point's extra questions.
    ``confusion``, of a point that wants decisions, counts true negatives, false positives, false
    negatives and true positives.
    ``age`` counts the rounds for which the report has stood in for a newer one; the loop sets it,
    never a client.
    """

    n_rows: float
    loss: float
    group_counts: Vector
    rates: Vector
    loss_grad: Vector | None = None
    rate_grads: Matrix | None = None
    curvature: Matrix | None = None
    extras: Mapping[str, Matrix] = field(default_factory=dict)
    confusion: Vector | None = None
    age: int = 0

    __repr__ = brief_repr

    @property
    def nbytes(self) -> int:
        """Bytes of payload: the arrays, and eight for each of the two numbers."""
        arrays = (
            *(self.group_counts, self.rates, self.loss_grad),
            *(self.rate_grads, self.curvature, self.confusion),
        )
        known = [array for array in (*arrays, *self.extras.values()) if array is not None]
        return 16 + sum(array.nbytes for array in known)


Reports: TypeAlias = Mapping[ClientId, tuple[Report, ...]]


class SummedReports(dict[ClientId, tuple[Report, ...]]):
    """Reports whose curvatures were added up on the way: no server needs more than their sum.

    ``curvature_sums`` has the sum over all clients for each point that asked for it, else None;
    the reports themselves have none.
    """

    def __init__(self, reports: Reports, curvature_sums: Sequence[Matrix | None]) -> None:
        super().__init__(reports)
        self.curvature_sums = tuple(curvature_sums)


def curvature_sum(reports: Reports, index: int) -> Matrix | None:
    """The clients' curvatures at point ``index``, added up; None where they come one by one."""
    return reports.curvature_sums[index] if isinstance(reports, SummedReports) else None


def reports_on(reports: Reports, points: slice) -> Reports:
    """The reports on some of the request's points."""
    part = {client: answers[points] for client, answers in reports.items()}
    if isinstance(reports, SummedReports):
        return SummedReports(part, reports.curvature_sums[points])
    return part


def without_curvature(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points, asking for gradients where they ask for curvature, too."""
    return tuple(replace(p, want="gradients") if p.want == "curvature" else p for p in points)
