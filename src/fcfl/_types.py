"""The values that cross the boundary between clients and server.

A `Request` goes out, one `Report` per client and point comes back. Nothing else leaves a client.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ClientId: TypeAlias = str
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

RateKind = Literal["selection", "true_positive", "false_positive"]
Want = Literal["values", "gradients", "curvature"]


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


@dataclass(frozen=True, slots=True)
class Point:
    """Parameters to evaluate, and how much to say about them.

    ``values``: loss and rates. ``gradients``: these and their gradients. ``curvature``: all of
    these and the client's part of the Lagrangian's Hessian, under ``curvature_weights``.
    """

    params: Vector
    want: Want = "values"
    curvature_weights: Mapping[ClientId, CurvatureWeights] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What the server asks of every client in one round."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What one client says about one point.

    ``rates`` are smooth group rates in the order agreed at the start; a group without rows has
    ``group_rows`` 0 and rate 0.
    """

    n_rows: float
    loss: float
    group_rows: Vector
    rates: Vector
    loss_grad: Vector | None = None
    rate_grads: Matrix | None = None
    curvature: Matrix | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of payload: the arrays, and eight for each of the two numbers."""
        arrays = (self.group_rows, self.rates, self.loss_grad, self.rate_grads, self.curvature)
        return 16 + sum(array.nbytes for array in arrays if array is not None)


Reports: TypeAlias = Mapping[ClientId, tuple[Report, ...]]
