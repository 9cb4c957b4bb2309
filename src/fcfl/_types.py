"""The values that cross the boundary between clients and server.

A `Request` goes out, one `Report` per client and point comes back. Nothing else leaves a client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
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
class LocalTraining:
    """Gradient steps a client takes on its own rows, from the point it is asked about.

    An epoch visits all rows once, ``batch_rows`` at a time (0: all at once; a client that merges
    identical rows counts distinct ones). The order follows from ``seed``, ``round`` and the
    client's name. ``l2`` is the weight of ``|params|**2 / 2`` in the loss. ``set_weights[client]``,
    of shape (2, rates), is added to the weight 1 of the rows behind each rate: its first line for
    rows with label 0, its second for rows with label 1. It may differ from zero only where all
    rows behind the rate have that label.
    """

    epochs: int
    step_size: float
    batch_rows: int = 0
    seed: int = 0
    round: int = 0
    l2: float = 0.0
    set_weights: Mapping[ClientId, Matrix] | None = None


@dataclass(frozen=True, slots=True)
class KernelQuestion:
    """Sums over rows weighed by a Gaussian kernel around reference points.

    Row i has the kernel values ``K[i, j] = exp(-|x_i - references[j]|**2 / (2 * bandwidth**2))``
    and the weight ``weights @ K[i]``. ``sets`` are positions of rates, whose rows are those of a
    group; ``centres`` the share of each group in all rows.
    """

    references: Matrix
    bandwidth: float
    sets: tuple[int, ...]
    centres: Vector
    weights: Vector


@dataclass(frozen=True, slots=True)
class Point:
    """Parameters to evaluate, and how much to say about them.

    ``values``: loss and rates. ``gradients``: these and their gradients. ``curvature``: all of
    these and the client's part of the Lagrangian's Hessian, under ``curvature_weights``. The rest
    is asked for by some baselines only: where the client ends after ``local`` training, mean
    losses of the rows behind each rate (``set_losses``), sums under a ``kernel``.
    """

    params: Vector
    want: Want = "values"
    curvature_weights: Mapping[ClientId, CurvatureWeights] | None = None
    local: LocalTraining | None = None
    set_losses: bool = False
    kernel: KernelQuestion | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What the server asks of every client in one round."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What one client says about one point.

    ``rates`` are smooth group rates in the order agreed at the start; a group without rows has
    ``group_counts`` 0 and rate 0. ``set_losses`` has two lines: the mean loss of the rows behind
    each rate if their label were 0, and if it were 1. ``kernel_sums`` has one column per reference
    point: sums over rows i of ``K[i, j]`` times the loss, times 1, and for each set times
    ``(s_i - centre) * logit``; ``kernel_grads`` the gradients of the weighted sum of losses and of
    each set's last sum. ``age`` counts the rounds for which the report has stood in for a newer
    one; the loop sets it, never a client.
    """

    n_rows: float
    loss: float
    group_counts: Vector
    rates: Vector
    loss_grad: Vector | None = None
    rate_grads: Matrix | None = None
    curvature: Matrix | None = None
    local_params: Vector | None = None
    set_losses: Matrix | None = None
    kernel_sums: Matrix | None = None
    kernel_grads: Matrix | None = None
    age: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of payload: the arrays, and eight for each of the two numbers."""
        values = (getattr(self, field.name) for field in fields(self))
        return 16 + sum(value.nbytes for value in values if isinstance(value, np.ndarray))


Reports: TypeAlias = Mapping[ClientId, tuple[Report, ...]]
