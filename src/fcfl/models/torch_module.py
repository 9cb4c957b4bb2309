"""Reports of any torch module with one logit, by batches: memory stays bounded, sums are float64.

What a report needs of the model are its logits and how they change with the parameters. Loss and
rates are the functions of logits that the linear client uses; only the pull-back is torch's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from torch import Tensor, nn
from torch.func import grad, jacfwd
from torch.nn.functional import softplus

from fcfl._checks import check_curvature_weights
from fcfl._types import (
    ClientId,
    CurvatureWeights,
    LocalTraining,
    Matrix,
    Point,
    RateId,
    Report,
    Vector,
)
from fcfl.data.client_data import ClientData
from fcfl.errors import ReportError
from fcfl.models.local_training import Items, set_weights_of, train_locally
from fcfl.models.rates import SHARPNESS, rate_members, smooth_selection, smooth_selection_slope
from fcfl.models.torch_params import Network, as_network, to_numpy
from fcfl.models.torch_rows import Groups, as_features, label_data, levels_with

BATCH_ROWS = 4096
_ALIKE = 256  # rows of one kind that are worth batches of their own
MOST_EXACT = 2000  # parameters up to which a client computes its n × n part of the curvature
_CURVATURE_ENTRIES = 2**20  # rows × directions that are differentiated at once


class TorchClient:
    """A client's rows under a torch module.

    Parameters
    ----------
    module : nn.Module
        One logit per row, shape (rows,) or (rows, 1). It is read, never changed, and evaluated as
        in ``eval()``: without dropout, batch norm with the statistics it came with. Parameters
        with ``requires_grad=False`` stay as they are.
    X : ndarray, sparse matrix or tensor, one row per label
        Sparse rows are made dense a batch at a time. A tensor may have any shape.
    y : array of 0 and 1
    groups : array of group names, or mapping from attribute to such an array
        One array is the attribute ``"group"``. A row without a name (None, NaN, empty) counts for
        the loss and belongs to no group.
    levels : mapping from attribute to all its group names, optional
        Refuses a row of any other group. By default the groups found in these rows; clients need
        not have the same, because rates go by name.
    weights : one non-negative number per row, optional
    name : of the client, for messages; `fcfl.torch.train_module` gives it its key
    device : where to compute, by default where the module's parameters are
    batch_rows : how many rows are evaluated at once
    """

    def __init__(
        self,
        module: nn.Module,
        X: Any,
        y: ArrayLike,
        groups: Groups,
        *,
        levels: Mapping[str, Sequence[str]] | None = None,
        weights: ArrayLike | None = None,
        name: ClientId = "client",
        device: str | torch.device | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        features = as_features(X)
        data = label_data(features.shape[0], y, groups, levels or {}, weights)
        self._set(as_network(module, device), features, data, (), name, batch_rows)

    def _set(
        self,
        network: Network,
        X: Any,
        data: ClientData,
        rates: Sequence[RateId],
        name: ClientId,
        batch_rows: int,
    ) -> None:
        if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1:
            raise ValueError(f"`batch_rows` must be a whole number from 1 up, got {batch_rows!r}.")
        if data.n_rows == 0:
            raise ValueError(f"Client {name!r} has no training rows.")
        self.network, self.X, self.data = network, X, data
        self.rates, self.name, self.batch_rows = tuple(rates), name, batch_rows
        self._weights = np.ones(data.n_rows) if data.weights is None else data.weights
        self._members = rate_members(data, self.rates) * self._weights[:, None]
        self._n_rows = float(self._weights.sum())
        self._group_counts = self._members.sum(axis=0)
        self._divisors = np.where(self._group_counts > 0, self._group_counts, 1.0)
        self._batches = _batches_of_alike(self._members > 0, batch_rows)

    @property
    def n_params(self) -> int:
        """How many numbers are trained."""
        return self.network.n_params

    def asked(self, name: ClientId, rates: Sequence[RateId]) -> "TorchClient":
        """The same rows under the name of the client, reporting these rates."""
        client = object.__new__(TorchClient)
        data = replace(self.data, levels=levels_with(name, self.data.levels, rates))
        client._set(self.network, self.X, data, rates, name, self.batch_rows)
        return client

    def logits(self, params: Vector) -> Vector:
        """The logits of all rows."""
        return self.network.logits(params, self.X, self.batch_rows)

    def report(self, point: Point) -> Report:
        """Loss and smooth rates at ``point``, with gradients and whatever else it wants."""
        self._check_wants(point)
        wants_grads = point.want != "values"
        leaves = self.network.leaves(point.params, differentiable=wants_grads)
        loss, n_rates = 0.0, self._group_counts.size
        rates, set_losses = np.zeros(n_rates), np.zeros((2, n_rates))
        gradients = np.zeros((1 + n_rates, point.params.size)) if wants_grads else None
        for batch in self._batches:
            with torch.set_grad_enabled(wants_grads):
                outputs = self.network.forward(leaves, self.network.rows(self.X, batch))
            logits = self._finite(outputs)
            y, weights, members = self.data.y[batch], self._weights[batch], self._members[batch]
            score = smooth_selection(logits)
            loss += float(weights @ (np.logaddexp(0.0, logits) - y * logits))
            rates += score @ members
            set_losses += np.logaddexp(0.0, [logits, -logits]) @ members
            if gradients is not None:
                slope = smooth_selection_slope(score)
                residuals = np.array([weights * (expit(logits) - y), *(members.T * slope)])
                some = [0, *np.flatnonzero(members.any(axis=0)) + 1]
                gradients[some] += self.network.pull_back(outputs, leaves, residuals[some])
        rates = np.clip(rates / self._divisors, 0.0, 1.0)
        report = Report(self._n_rows, loss / self._n_rows, self._group_counts, rates)
        if point.set_losses:
            report = replace(report, set_losses=set_losses / self._divisors)
        if point.local is not None:
            report = replace(report, local_params=self._train(point.params, point.local))
        if gradients is not None:
            gradients /= np.append(self._n_rows, self._divisors)[:, None]
            report = replace(report, loss_grad=gradients[0], rate_grads=gradients[1:])
        if point.want == "curvature":
            weights_of = check_curvature_weights(self.name, point)
            report = replace(report, curvature=self._curvature(point.params, weights_of))
        return report

    def _check_wants(self, point: Point) -> None:
        if point.kernel is not None:
            raise ValueError(
                f"Client {self.name!r} holds a torch module, which has no kernel sums. "
                "Use a linear model with this method."
            )
        if point.want == "curvature" and self.n_params > MOST_EXACT:
            raise ValueError(
                f"`curvature` must be 'lbfgs' above {MOST_EXACT} parameters, got a request for the "
                f"exact curvature of {self.n_params}."
            )

    def _finite(self, outputs: Tensor) -> Vector:
        logits = to_numpy(outputs)
        if not np.isfinite(logits).all():
            strange = float(logits[~np.isfinite(logits)][0])
            raise ReportError(
                f"Client {self.name!r}: the module gave a logit of {strange!r}. "
                "Scale the features, or start from smaller weights."
            )
        return logits

    def _train(self, start: Vector, training: LocalTraining) -> Vector:
        """Steps on rows, each with its weight and what its sets add to it."""
        added = set_weights_of(training, self.name, self._group_counts.size) @ self._members.T
        weights = self._weights + np.where(self.data.y == 1.0, added[1], added[0])

        def summed_gradient(params: Vector, items: Items | None) -> Vector:
            rows = np.arange(self.data.n_rows) if items is None else items
            leaves = self.network.leaves(params, differentiable=True)
            total = np.zeros(params.size)
            for first in range(0, rows.size, self.batch_rows):
                some = rows[first : first + self.batch_rows]
                outputs = self.network.forward(leaves, self.network.rows(self.X, some))
                pull = weights[some] * (expit(self._finite(outputs)) - self.data.y[some])
                total += self.network.pull_back(outputs, leaves, pull[None])[0]
            return total

        return train_locally(start, training, self.name, self._weights, summed_gradient)

    def _curvature(self, params: Vector, weights: CurvatureWeights) -> Matrix:
        r"""Hessian of :math:`\lambda l + \sum_q w_q r_q`, forward over reverse, by batches."""
        network = self.network
        on_loss = weights.loss / self._n_rows * self._weights
        on_score = self._members @ (weights.rates / self._divisors)
        facts = torch.tensor(np.array([self.data.y, on_loss, on_score]), device=network.device)

        def lagrangian(flat: Tensor, rows: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
            z = network.forward(network.leaves_of(flat), rows).double()
            return (a * (softplus(z) - y * z) + b * torch.sigmoid(SHARPNESS * z)).sum()

        flat = torch.tensor(params, device=network.device)
        hessian = np.zeros((params.size, params.size))
        size = min(self.batch_rows, 1 + _CURVATURE_ENTRIES // params.size)
        for first in range(0, self.data.n_rows, size):
            batch = slice(first, first + size)
            rows = network.rows(self.X, batch)
            hessian += to_numpy(jacfwd(grad(lagrangian))(flat, rows, *facts[:, batch]))
        return (hessian + hessian.T) / 2


def _batches_of_alike(members: NDArray[np.bool_], most: int) -> list[Items]:
    """Batches of rows that count for the same rates, in order; rows of rare kinds together.

    A batch then needs a backward pass for the loss and for its own rates, not for all of them.
    """
    _, kind, count = np.unique(members, axis=0, return_inverse=True, return_counts=True)
    kind = np.where(count[kind] < _ALIKE, -1, kind)
    batches = []
    for one in np.unique(kind):
        rows = np.flatnonzero(kind == one)
        batches += [rows[first : first + most] for first in range(0, rows.size, most)]
    return batches


def torch_client(
    name: ClientId,
    data: ClientData,
    rates: Sequence[RateId],
    module: nn.Module,
    *,
    device: str | torch.device | None = None,
    batch_rows: int = BATCH_ROWS,
) -> TorchClient:
    """A client of rows that are encoded already, as `linear_client` makes one."""
    client = object.__new__(TorchClient)
    client._set(as_network(module, device), data.X, data, rates, name, batch_rows)
    return client
