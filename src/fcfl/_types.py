"""Values exchanged between clients and server.

The server sends a `Request`, and each client returns one `Report` per point.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ClientId: TypeAlias = str
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

RateKind = Literal["selection", "true_positive", "false_positive"]
Want = Literal["decisions", "values", "gradients", "curvature"]

SHARPNESS = 10.0  # of the smooth selection score, as in the paper

ROW_SIGNS: Mapping[RateKind, tuple[int, int]] = {
    "selection": (1, 1),
    "true_positive": (0, 1),
    "false_positive": (1, 0),
}
"""The sign of a row with label 0 and of one with label 1 in each kind of rate.

A rate is the mean score of its rows. With s the selection score of a row, smooth or hard, the row's
score is s for sign 1 and 1 - s for sign -1. With sign 0 the row is not behind the rate.
"""

LABEL_OF: Mapping[RateKind, int | None] = {
    kind: None if 0 not in signs else int(signs[0] == 0) for kind, signs in ROW_SIGNS.items()
}
"""Label of the rows that each kind of rate counts; None stands for all rows."""


_MAX_REPR = 100  # characters of a field's value in a repr; longer values show type and size


def brief_repr(self: Any) -> str:
    """Return a dataclass repr with type and size in place of arrays and long values."""
    parts = [f"{f.name}={_brief(getattr(self, f.name))}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"<{type(value).__name__} {'×'.join(map(str, shape))}>"
    if isinstance(value, Mapping) and len(value) > 12:
        return f"<{type(value).__name__} of {len(value)}>"
    text = repr(value)
    if len(text) <= _MAX_REPR:
        return text
    size = f" of {len(value)}" if isinstance(value, Sized) else ""
    return f"<{type(value).__name__}{size}>"


def client_seed(seed: int, client: ClientId) -> np.random.SeedSequence:
    """Return a random seed sequence of one client, which does not depend on other clients."""
    return np.random.SeedSequence([seed, zlib.crc32(client.encode())])


@dataclass(frozen=True, slots=True)
class RateId:
    """A group rate: the share of a group's rows that the model selects.

    ``selection`` counts all rows of the group, ``true_positive`` those with label 1,
    ``false_positive`` those with label 0. `ROW_SIGNS` defines them.
    """

    kind: RateKind
    attribute: str
    group: str


@dataclass(frozen=True, slots=True)
class CurvatureWeights:
    """Weights of a client in the Lagrangian: of its loss, and of each of its rates."""

    loss: float
    rates: Vector


class Extra(ABC):
    """A quantity other than loss, rates and curvature that a method requests from clients.

    Subclasses are frozen dataclasses, because they are part of a `Point` and of checkpoints.
    `fcfl.extras` has the extras of baselines. Your own methods can define others.
    """

    @abstractmethod
    def answer(self, rows: Any, point: "Point") -> Mapping[str, Matrix]:
        """Return arrays by name, computed by the client from its rows.

        ``rows`` has ``name``, ``loss``, ``cut``, ``features`` (``original_features`` before
        encoding), ``logits(params)`` and ``pull_back(params, residuals)``. An item is a set of
        identical rows. ``row_counts``, ``positive_counts`` (rows with label 1) and
        ``member_counts`` of shape (items, rates) are counts by item; ``group_counts`` are sums.
        """

    @abstractmethod
    def shapes(self, point: "Point", n_rates: int) -> Mapping[str, tuple[int, ...]]:
        """Return the names of the expected arrays and their shapes; -1 stands for any length."""

    def for_client(self, name: ClientId) -> "Extra":
        """Return the extra without parts for other clients."""
        return self


@dataclass(frozen=True, slots=True)
class Point:
    """Parameters to evaluate, and the quantities to report.

    ``want`` is one of ``values`` (loss and smooth rates), ``gradients`` (also their gradients),
    ``curvature`` (also the client's part of the Lagrangian's Hessian, with ``curvature_weights``)
    and ``decisions`` (loss and hard rates). ``extras`` has further quantities for some methods.
    ``sharpness`` is the slope of smooth rates.
    """

    params: Vector
    want: Want = "values"
    curvature_weights: Mapping[ClientId, CurvatureWeights] | None = None
    extras: tuple[Extra, ...] = ()
    sharpness: float = SHARPNESS

    __repr__ = brief_repr

    @property
    def wants_gradients(self) -> bool:
        """Return whether reports on the point have gradients."""
        return self.want in ("gradients", "curvature")


@dataclass(frozen=True, slots=True)
class Request:
    """Points that all clients evaluate in one exchange."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one client on one point.

    ``rates`` has group rates in the order of the setup; a group without rows has ``group_counts`` 0
    and rate 0. ``extras`` has the arrays of the point's extras. ``confusion``, for
    ``want='decisions'``, has the numbers of true negatives, false positives, false negatives and
    true positives. ``age``, set by the loop, is the number of rounds since the client sent the
    report.
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
        """Return the size of the arrays and of the two numbers, in bytes."""
        arrays = (
            *(self.group_counts, self.rates, self.loss_grad),
            *(self.rate_grads, self.curvature, self.confusion),
        )
        known = [array for array in (*arrays, *self.extras.values()) if array is not None]
        return 16 + sum(array.nbytes for array in known)


Reports: TypeAlias = Mapping[ClientId, tuple[Report, ...]]


class SummedReports(dict[ClientId, tuple[Report, ...]]):
    """Reports without curvatures, and the sums of the curvatures over all clients.

    ``curvature_sums`` has one entry per point: the sum, or None if no curvature was requested.
    """

    def __init__(self, reports: Reports, curvature_sums: Sequence[Matrix | None]) -> None:
        super().__init__(reports)
        self.curvature_sums = tuple(curvature_sums)


def curvature_sum(reports: Reports, index: int) -> Matrix | None:
    """Return the sum of curvatures at point ``index``, or None if each report has its own."""
    return reports.curvature_sums[index] if isinstance(reports, SummedReports) else None


def reports_on(reports: Reports, points: slice) -> Reports:
    """Return the reports on some of the request's points."""
    part = {client: answers[points] for client, answers in reports.items()}
    if isinstance(reports, SummedReports):
        return SummedReports(part, reports.curvature_sums[points])
    return part


def without_curvature(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points with requests for gradients instead of curvature."""
    return tuple(replace(p, want="gradients") if p.want == "curvature" else p for p in points)
