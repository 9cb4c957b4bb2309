"""The values that cross the boundary between clients and server.

The server sends a `Request`; each client returns one `Report` per point and nothing else.
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
"""The label of the rows behind each kind of rate; None: all rows."""


_MAX_REPR = 100  # characters of a field's value; longer ones are named by their type and size


def brief_repr(self: Any) -> str:
    """Return a dataclass repr in which arrays, sparse matrices and long values are named only."""
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
    """Return a source of randomness for one client, whoever else takes part."""
    return np.random.SeedSequence([seed, zlib.crc32(client.encode())])


@dataclass(frozen=True, slots=True)
class RateId:
    """One group rate: the share of a group's rows that the model selects.

    ``selection`` counts all rows of the group, ``true_positive`` those with label 1,
    ``false_positive`` those with label 0. `ROW_SIGNS` defines them.
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
    """A quantity beyond loss, rates and curvature that a method requests from a client.

    Subclasses are frozen dataclasses: they travel inside a `Point` and are written into
    checkpoints. `fcfl.extras` has those of the baselines; a method of your own may bring its own.
    """

    @abstractmethod
    def answer(self, rows: Any, point: "Point") -> Mapping[str, Matrix]:
        """Return arrays by name, computed by the client from its rows under the model.

        Rows of ours have ``name``, ``loss``, ``cut``, ``features`` (``original_features`` as they
        were given), ``logits(params)``, ``pull_back(params, residuals)`` and, for each item of
        identical rows, ``row_counts``, ``positive_counts`` (rows with label 1) and
        ``member_counts``, shape (items, rates); ``group_counts`` are sums of these.
        """

    @abstractmethod
    def shapes(self, point: "Point", n_rates: int) -> Mapping[str, tuple[int, ...]]:
        """Return the names of the expected arrays and their shapes; -1 stands for any length."""

    def for_client(self, name: ClientId) -> "Extra":
        """Return it without what concerns other clients only."""
        return self


@dataclass(frozen=True, slots=True)
class Point:
    """Parameters to evaluate, and what to report about them.

    ``values``: loss and smooth rates. ``gradients``: these and their gradients. ``curvature``: all
    of these and the client's part of the Lagrangian's Hessian, under ``curvature_weights``.
    ``decisions``: loss and hard rates. ``extras`` are requested by some methods only.
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
    """The points that every client evaluates in one exchange."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """One client's report on one point.

    ``rates`` are smooth group rates in the order agreed at the start; a group without rows has
    ``group_counts`` 0 and rate 0. ``extras`` has the arrays of the point's extras.
    ``confusion``, for ``want='decisions'``, counts true negatives, false positives, false
    negatives and true positives.
    ``age`` counts the rounds for which the report has replaced a newer one; the loop sets it.
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
        """Bytes of the arrays, and eight for each of the two numbers."""
        arrays = (
            *(self.group_counts, self.rates, self.loss_grad),
            *(self.rate_grads, self.curvature, self.confusion),
        )
        known = [array for array in (*arrays, *self.extras.values()) if array is not None]
        return 16 + sum(array.nbytes for array in known)


Reports: TypeAlias = Mapping[ClientId, tuple[Report, ...]]


class SummedReports(dict[ClientId, tuple[Report, ...]]):
    """Reports whose curvatures were summed on the way: the server needs only their sum.

    ``curvature_sums`` has the sum over all clients for each point that asked for it, else None;
    the reports themselves have none.
    """

    def __init__(self, reports: Reports, curvature_sums: Sequence[Matrix | None]) -> None:
        super().__init__(reports)
        self.curvature_sums = tuple(curvature_sums)


def curvature_sum(reports: Reports, index: int) -> Matrix | None:
    """Return the sum of the clients' curvatures at point ``index``; None if each sent its own."""
    return reports.curvature_sums[index] if isinstance(reports, SummedReports) else None


def reports_on(reports: Reports, points: slice) -> Reports:
    """Return the reports on some of the request's points."""
    part = {client: answers[points] for client, answers in reports.items()}
    if isinstance(reports, SummedReports):
        return SummedReports(part, reports.curvature_sums[points])
    return part


def without_curvature(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points with gradients requested instead of curvature."""
    return tuple(replace(p, want="gradients") if p.want == "curvature" else p for p in points)
