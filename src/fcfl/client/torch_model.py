"""Reports of any torch module with one logit, by batches: memory stays bounded, sums are float64.

What a report needs of the model are its logits and how they change with the parameters. Loss and
rates are the functions of logits that the linear client uses; only the pull-back is torch's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from torch import Tensor, nn
from torch.func import grad, jacfwd
from torch.nn.functional import softplus

from fcfl._checks import check_curvature_weights
from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, RateId, Report, Vector
from fcfl.client.rates import SHARPNESS, rate_members, smooth_selection, smooth_selection_slope
from fcfl.client.torch_params import Network, as_features, as_network
from fcfl.data._cells import texts
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError, ReportError

BATCH_ROWS = 4096
EXACT_PARAMS = 500  # up to here exact curvature is worth its n backward passes
_CURVATURE_ENTRIES = 2**22  # rows × directions that are differentiated at once


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
    name : of the client, for messages; `train_module` gives it its key
    device : where to compute, by default where the module's parameters are
    batch_rows : how many rows are evaluated at once
    """

    def __init__(
        self,
        module: nn.Module,
        X: Any,
        y: ArrayLike,
        groups: ArrayLike | Mapping[str, ArrayLike],
        *,
        levels: Mapping[str, Sequence[str]] | None = None,
        weights: ArrayLike | None = None,
        name: ClientId = "client",
        device: str | torch.device | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        features = as_features(X)
        codes, found = _coded(groups, levels or {})
        nothing = np.zeros((features.shape[0], 0))  # rows may have any shape; the rest is checked
        rest = ClientData(nothing, np.asarray(y), codes, found, _optional(weights))
        self._set(as_network(module, device), features, rest, (), name, batch_rows)

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
        self._group_rows = self._members.sum(axis=0)
        self._divisors = np.where(self._group_rows > 0, self._group_rows, 1.0)

    @property
    def n_params(self) -> int:
        """How many numbers are trained."""
        return self.network.n_params

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the groups of each attribute."""
        return self.data.levels

    def asked(self, name: ClientId, rates: Sequence[RateId]) -> "TorchClient":
        """The same rows under the name of the client, reporting these rates."""
        levels = dict(self.data.levels)
        for rate in rates:
            known = levels.get(rate.attribute)
            if known is None:
                raise ValueError(
                    f"Client {name!r} has no attribute {rate.attribute!r}; "
                    f"it has {', '.join(map(repr, levels)) or 'none'}."
                )
            if rate.group not in known:
                levels[rate.attribute] = (*known, rate.group)
        client = object.__new__(TorchClient)
        data = replace(self.data, levels=levels)
        client._set(self.network, self.X, data, rates, name, self.batch_rows)
        return client

    def report(self, point: Point) -> Report:
        """Loss and smooth rates at ``point``, with gradients and curvature as it wants."""
        want_grads = point.want != "values"
        leaves = self.network.leaves(point.params, differentiable=want_grads)
        loss, rates = 0.0, np.zeros(self._group_rows.size)
        gradients = np.zeros((1 + rates.size, point.params.size)) if want_grads else None
        for batch in self._batches():
            with torch.set_grad_enabled(want_grads):
                outputs = self.network.forward(leaves, self._rows(batch))
            logits = self._finite(outputs)
            score = smooth_selection(logits)
            y, weights = self.data.y[batch], self._weights[batch]
            loss += float(weights @ (np.logaddexp(0.0, logits) - y * logits))
            rates += score @ self._members[batch]
            if gradients is not None:
                slope = smooth_selection_slope(score)
                residuals = [weights * (expit(logits) - y), *(self._members[batch].T * slope)]
                gradients += self.network.pull_back(outputs, leaves, np.array(residuals))
        rates = np.clip(rates / self._divisors, 0.0, 1.0)
        values = Report(self._n_rows, loss / self._n_rows, self._group_rows, rates)
        if gradients is None:
            return values
        gradients /= np.append(self._n_rows, self._divisors)[:, None]
        curvature = None
        if point.want == "curvature":
            curvature = self._curvature(point.params, check_curvature_weights(self.name, point))
        return replace(
            values, loss_grad=gradients[0], rate_grads=gradients[1:], curvature=curvature
        )

    def logits(self, params: Vector) -> Vector:
        """The logits of all rows."""
        return self.network.logits(params, self.X, self.batch_rows)

    def _batches(self, batch_rows: int | None = None) -> list[slice]:
        size = batch_rows or self.batch_rows
        return [slice(start, start + size) for start in range(0, self.data.n_rows, size)]

    def _rows(self, batch: slice) -> Tensor:
        return self.network.rows(self.X, batch.start, batch.stop)

    def _finite(self, outputs: Tensor) -> Vector:
        logits: Vector = outputs.detach().to("cpu", torch.float64).numpy()
        if not np.isfinite(logits).all():
            strange = float(logits[~np.isfinite(logits)][0])
            raise ReportError(
                f"Client {self.name!r}: the module gave a logit of {strange!r}. "
                "Scale the features, or start from smaller weights."
            )
        return logits

    def _curvature(self, params: Vector, weights: CurvatureWeights) -> Matrix:
        r"""Hessian of :math:`\lambda l + \sum_q w_q r_q`, forward over reverse, by batches."""
        network, n = self.network, params.size
        on_loss = weights.loss / self._n_rows * self._weights
        on_score = self._members @ (weights.rates / self._divisors)
        shapes = [leaf.shape for leaf in network.leaves(params)]
        dtypes = [leaf.dtype for leaf in network.leaves(params)]
        sizes = [int(np.prod(shape)) for shape in shapes]

        def lagrangian(flat: Tensor, rows: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
            parts = [
                part.reshape(shape).to(dtype)
                for part, shape, dtype in zip(torch.split(flat, sizes), shapes, dtypes, strict=True)
            ]
            z = network.forward(parts, rows).double()
            return (a * (softplus(z) - y * z) + b * torch.sigmoid(SHARPNESS * z)).sum()

        flat = torch.tensor(params, device=network.device)
        hessian = np.zeros((n, n))
        for batch in self._batches(max(1, min(self.batch_rows, _CURVATURE_ENTRIES // n))):
            facts = [
                torch.tensor(part[batch], device=network.device)
                for part in (self.data.y, on_loss, on_score)
            ]
            part = jacfwd(grad(lagrangian))(flat, self._rows(batch), *facts)
            hessian += part.detach().to("cpu").numpy()
        return (hessian + hessian.T) / 2


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


def _coded(
    groups: ArrayLike | Mapping[str, ArrayLike], levels: Mapping[str, Sequence[str]]
) -> tuple[dict[str, NDArray[np.int32]], dict[str, tuple[str, ...]]]:
    """Codes and names of the groups of each attribute."""
    named = groups if isinstance(groups, Mapping) else {"group": groups}
    unknown = [name for name in levels if name not in named]
    if unknown:
        raise DataError(
            f"`levels` must name attributes of `groups`, got {unknown[0]!r}; "
            f"`groups` has {', '.join(map(repr, named))}."
        )
    codes, names = {}, {}
    for attribute, values in named.items():
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        if array.ndim != 1:
            raise DataError(
                f"`groups` must hold one group name per row, got shape {array.shape} for "
                f"{attribute!r}. Give several attributes as a mapping."
            )
        found = texts(pd.Series(array, dtype=object, name=attribute))
        agreed = tuple(map(str, levels.get(attribute, found.levels)))
        strangers = [level for level in found.levels if level not in agreed]
        if strangers:
            raise DataError(
                f"`groups` must hold groups of `levels` {', '.join(map(repr, agreed))} for "
                f"{attribute!r}, got {strangers[0]!r}."
            )
        lookup = np.array([agreed.index(level) for level in found.levels] + [-1], dtype=np.int32)
        codes[attribute], names[attribute] = lookup[found.codes], agreed
    return codes, names


def _optional(values: ArrayLike | None) -> Vector | None:
    return None if values is None else np.asarray(values, dtype=np.float64)
