"""Torch modules as functions of one flat float64 vector, and reports on the rows of a client.

The module is never modified. It is evaluated in ``eval()`` mode, without dropout and with the
running statistics of batch norm, so that the logit of a row depends on this row only. Rows are
summed in batches and in float64, to limit memory. Torch computes logits and their gradients. Losses
and rates are computed from logits as for the linear model.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.func import functional_call, grad, jacfwd, jvp

from fcfl._checks import check_curvature_weights
from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, RateId, Report, Vector
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError, ReportError
from fcfl.extras import Items, LocalTraining, seed_of_rows, train_locally
from fcfl.models import model as models
from fcfl.models.influence import GradientSpread
from fcfl.models.loss import Loss

_FLOATS = (torch.float32, torch.float64)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True, eq=False)
class Network:
    """A module with one logit and a fixed order of trainable parameters; use `as_network`."""

    module: nn.Module
    names: tuple[str, ...]
    device: torch.device
    dtype: torch.dtype

    @property
    def n_params(self) -> int:
        """Number of trained parameters."""
        return sum(leaf.numel() for leaf in self._leaves())

    @property
    def is_double(self) -> bool:
        """Whether the module computes in float64."""
        return self.dtype == torch.float64

    def _leaves(self) -> list[Tensor]:
        own = dict(self.module.named_parameters())
        return [own[name] for name in self.names]

    def first_params(self) -> Vector:
        """Return the weights of the module as a flat vector, for the start of training."""
        return np.concatenate([to_numpy(leaf).ravel() for leaf in self._leaves()])

    def restored(self, params: Vector) -> nn.Module:
        """Return a copy of the module with these weights, in evaluation mode, on its device."""
        trained = copy.deepcopy(self.module).eval()
        own = dict(trained.named_parameters())
        with torch.no_grad():
            for name, part in zip(self.names, self._split(params), strict=True):
                own[name].copy_(torch.from_numpy(part))
        return trained

    def logits(self, params: Vector, X: Any, batch_rows: int) -> Vector:
        """Return the logits of all rows of ``X``, computed in batches."""
        leaves = self.leaves(params)
        with torch.no_grad():
            parts = [
                to_numpy(self.forward(leaves, self.rows(X, slice(start, start + batch_rows))))
                for start in range(0, X.shape[0], batch_rows)
            ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def leaves(self, params: Vector, *, differentiable: bool = False) -> tuple[Tensor, ...]:
        """Return the parameters as tensors with the dtypes and on the device of the module."""
        return tuple(
            torch.tensor(part, dtype=leaf.dtype, device=self.device, requires_grad=differentiable)
            for part, leaf in zip(self._split(params), self._leaves(), strict=True)
        )

    def leaves_of(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Split a flat tensor into parameter tensors, differentiably."""
        leaves = self._leaves()
        parts = torch.split(flat, [leaf.numel() for leaf in leaves])
        return tuple(
            part.reshape(leaf.shape).to(leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        )

    def _split(self, params: Vector) -> list[Vector]:
        leaves = self._leaves()
        sizes = [leaf.numel() for leaf in leaves]
        if params.shape != (sum(sizes),):
            raise ValueError(
                f"`params` must have one number for each of the module's {sum(sizes)} trainable "
                f"parameters, got shape {params.shape}."
            )
        parts = np.split(params, np.cumsum(sizes)[:-1])
        return [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]

    def rows(self, X: Any, which: slice | NDArray[np.intp]) -> Tensor:
        """Convert rows of an array, a sparse matrix or a tensor to a dense input of the module.

        Integer tensors keep their dtype, because they may be indices.
        """
        part = X[which]
        if not isinstance(part, Tensor):
            dense = part.toarray() if sparse.issparse(part) else np.asarray(part)
            return torch.tensor(dense, dtype=self.dtype, device=self.device)
        return part.to(self.device, self.dtype if part.is_floating_point() else part.dtype)

    def forward(self, leaves: Sequence[Tensor], rows: Tensor) -> Tensor:
        """Return the logits, of shape (rows,)."""
        trained = dict(zip(self.names, leaves, strict=True))
        with _evaluating(self.module):
            logits: Any = functional_call(self.module, (self._fixed(), trained), (rows,))
        n_rows = rows.shape[0]
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if shape not in ((n_rows,), (n_rows, 1)):
            raise ValueError(
                "`module` must give one logit per row, as shape (rows,) or (rows, 1), got "
                f"{shape} for {n_rows} rows. For two outputs a and b let it return b - a."
            )
        flat: Tensor = logits.reshape(n_rows)
        return flat

    def _fixed(self) -> dict[str, Tensor]:
        """Return buffers and parameters that are not trained, on the device of the computation."""
        fixed: dict[str, Tensor] = dict(self.module.named_buffers())
        fixed |= {k: v for k, v in self.module.named_parameters() if k not in self.names}
        return {name: tensor.detach().to(self.device) for name, tensor in fixed.items()}

    def pull_back(self, logits: Tensor, leaves: Sequence[Tensor], residuals: Matrix) -> Matrix:
        """Return gradients of ``residuals @ logits``, one row per row of ``residuals``.

        Each row takes one backward pass. In measurements this is as fast as one vectorised pass.
        It requires less memory and supports all modules.
        """
        cotangents = torch.tensor(residuals, dtype=logits.dtype, device=logits.device)
        gradients = np.empty((residuals.shape[0], self.n_params))
        for row, cotangent in zip(gradients, cotangents, strict=True):
            parts = torch.autograd.grad(
                logits, leaves, cotangent, retain_graph=True, materialize_grads=True
            )
            row[:] = np.concatenate([to_numpy(part).ravel() for part in parts])
        return gradients


def as_network(module: nn.Module, device: str | torch.device | None = None) -> Network:
    """Check that ``module`` can be trained, and fix the order of its parameters.

    The module is evaluated on ``device``, by default the device of its parameters.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"`module` must be a torch.nn.Module, got {type(module).__name__}.")
    trained = {name: leaf for name, leaf in module.named_parameters() if leaf.requires_grad}
    if not trained:
        raise ValueError(
            "`module` must have a parameter with requires_grad=True, got none to train."
        )
    for name, leaf in trained.items():
        if leaf.dtype not in _FLOATS:
            raise ValueError(
                f"`module` must have parameters of type float32 or float64, got {leaf.dtype} for "
                f"{name!r}. Convert it with module.float()."
            )
        if not torch.isfinite(leaf).all():
            raise ValueError(f"`module` must start from finite parameters, got others in {name!r}.")
    for name, part in module.named_modules():
        if isinstance(part, _BATCH_NORMS) and part.running_mean is None:
            raise ValueError(
                f"`module` must not normalise by the rows of a batch, got {name!r} without running "
                "statistics: a row's logit would depend on other rows. Keep running statistics "
                "(track_running_stats=True; they are used, not updated) or use LayerNorm."
            )
    first = next(iter(trained.values()))
    where = first.device if device is None else torch.device(device)
    return Network(module, tuple(trained), where, first.dtype)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode temporarily, and restore the mode of every submodule."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def to_numpy(tensor: Tensor) -> Vector:
    """Return the tensor as a float64 array on the host."""
    array: Vector = tensor.detach().to("cpu", torch.float64).numpy()
    return array


def state_arrays(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Return all weights and buffers by name, with their dtypes."""
    return {
        name: np.array(tensor.detach().cpu().numpy(), order="C")
        for name, tensor in module.state_dict().items()
    }


def load_state(module: nn.Module, arrays: Mapping[str, NDArray[Any]], source: str) -> nn.Module:
    """Return a copy of the module with these weights and buffers, in evaluation mode."""
    own = module.state_dict()
    for name in (*own, *arrays):
        if name not in own or name not in arrays:
            where = "`module`" if name not in own else repr(source)
            raise DataError(
                f"The weights of {source!r} do not fit `module`: {name!r} is not in {where}."
            )
        if tuple(own[name].shape) != arrays[name].shape:
            raise DataError(
                f"The weights of {source!r} do not fit `module`: {name!r} has shape "
                f"{arrays[name].shape}, expected {tuple(own[name].shape)}."
            )
    loaded = copy.deepcopy(module)
    loaded.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
    return loaded.eval()


MOST_EXACT = 2000  # maximum number of parameters for the exact n × n curvature
_ALIKE = 256  # minimum number of rows with the same rates for separate batches
_CURVATURE_ENTRIES = 2**20  # maximum rows × directions per forward-over-reverse pass


class TorchRows:
    """Rows of a client under a torch module."""

    def __init__(
        self,
        client: ClientId,
        data: ClientData,
        rates: Sequence[RateId],
        network: Network,
        loss: Loss,
        batch_rows: int,
        cut: float = 0.0,
    ) -> None:
        if data.n_rows == 0:
            raise ValueError(f"Client {client!r} has no training rows.")
        self.name, self.data, self.rates = client, data, tuple(rates)
        self.network, self.loss, self.batch_rows = network, loss, batch_rows
        self.cut = cut  # as that of the model
        self.row_counts = np.ones(data.n_rows) if data.weights is None else data.weights
        self._set_members(models.rate_members(data, self.rates, client) * self.row_counts[:, None])

    def _set_members(self, members: Matrix) -> None:
        self.member_counts = members
        self.n_rows = float(self.row_counts.sum())
        self.group_counts = models.rows_behind(members)
        self._divisors = np.where(self.group_counts > 0, self.group_counts, 1.0)
        self._batches = _batches_of_alike(members != 0, self.batch_rows)

    def with_groups_of(self, least: float) -> "TorchRows":
        """Return the rows with counts and rates of groups of fewer than ``least`` rows set to 0."""
        kept = self.group_counts >= least
        if kept.all():
            return self
        given = self.network, self.loss, self.batch_rows, self.cut
        rows = TorchRows(self.name, self.data, self.rates, *given)
        rows._set_members(self.member_counts * kept)
        return rows

    @property
    def n_params(self) -> int:
        """Number of trained parameters."""
        return self.network.n_params

    @property
    def positive_counts(self) -> Vector:
        """Number of rows with label 1, by weight, of each item."""
        return self.row_counts * self.data.y

    @property
    def original_features(self) -> Any:
        """Features as passed by the user."""
        return self.data.X

    @property
    def features(self) -> Any:
        """Raise `ValueError`, because kernel methods require a linear model."""
        raise ValueError(
            f"Client {self.name!r} holds a torch module, which has no kernel sums. "
            "Use a linear model with this method."
        )

    def logits(self, params: Vector) -> Vector:
        """Return the logits of all rows."""
        return self.network.logits(params, self.data.X, self.batch_rows)

    def slope_squares(self, params: Vector, weights: Matrix, spread: GradientSpread) -> Vector:
        """Return weighted sums of ``|factor.T @ gradient|**2`` over rows, one per column."""
        total = np.zeros(weights.shape[1])
        for direction in spread.factor.T:
            total += self._logit_slopes(params, direction) ** 2 @ weights
        return total

    def _logit_slopes(self, params: Vector, direction: Vector) -> Vector:
        """Return the derivative of the logit of each row along ``direction``."""
        network, slopes = self.network, np.empty(self.data.n_rows)
        flat, along = (torch.tensor(one, device=network.device) for one in (params, direction))
        for first in range(0, self.data.n_rows, self.batch_rows):
            some = slice(first, first + self.batch_rows)
            rows = network.rows(self.data.X, some)

            def logits(weights: Tensor, rows: Tensor = rows) -> Tensor:
                return network.forward(network.leaves_of(weights), rows)

            slopes[some] = to_numpy(jvp(logits, (flat,), (along,))[1])
        return slopes

    def report(self, point: Point) -> Report:
        """Return loss and smooth rates at ``point``, with gradients and extras if requested."""
        self._check_wants(point)
        wants_grads = point.wants_gradients
        leaves = self.network.leaves(point.params, differentiable=wants_grads)
        loss, n_rates = 0.0, self.group_counts.size
        rates, confusion = np.zeros(n_rates), np.zeros(4)
        gradients = np.zeros((1 + n_rates, point.params.size)) if wants_grads else None
        for batch in self._batches:
            with torch.set_grad_enabled(wants_grads):
                outputs = self.network.forward(leaves, self.network.rows(self.data.X, batch))
            logits = self._finite(outputs)
            y, weights = self.data.y[batch], self.row_counts[batch]
            members = self.member_counts[batch]
            score = models.selection_score(logits, point, self.cut)
            loss += float(weights @ self.loss.each(logits, y))
            rates += score @ members
            if gradients is not None:
                slope = models.smooth_selection_slope(score, point.sharpness)
                slopes = weights * self.loss.slope_each(logits, y)
                residuals = np.array([slopes, *(members.T * slope)])
                some = [0, *np.flatnonzero(members.any(axis=0)) + 1]
                gradients[some] += self.network.pull_back(outputs, leaves, residuals[some])
            if point.want == "decisions":
                confusion += models.confusion_of(score, weights, weights * y)
        if_none = models.score_of_none(self.member_counts)
        rates = np.clip((rates + if_none) / self._divisors, 0.0, 1.0)
        extras = {k: v for extra in point.extras for k, v in extra.answer(self, point).items()}
        report = Report(self.n_rows, loss / self.n_rows, self.group_counts, rates, extras=extras)
        if point.want == "decisions":
            report = replace(report, confusion=confusion)
        if gradients is not None:
            gradients /= np.append(self.n_rows, self._divisors)[:, None]
            report = replace(report, loss_grad=gradients[0], rate_grads=gradients[1:])
        if point.want == "curvature":
            weights_of = check_curvature_weights(self.name, point)
            report = replace(report, curvature=self._curvature(point, weights_of))
        return report

    def pull_back(self, params: Vector, residuals: Matrix) -> Matrix:
        """Return gradients of ``residuals.T @ logits``, one row per column of ``residuals``."""
        leaves = self.network.leaves(params, differentiable=True)
        total = np.zeros((residuals.shape[1], params.size))
        for first in range(0, self.data.n_rows, self.batch_rows):
            some = slice(first, first + self.batch_rows)
            outputs = self.network.forward(leaves, self.network.rows(self.data.X, some))
            total += self.network.pull_back(outputs, leaves, residuals[some].T)
        return total

    def _check_wants(self, point: Point) -> None:
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

    def train_locally(self, params: Vector, training: LocalTraining) -> Vector:
        """Train on the weighted rows."""

        def summed_gradient(params: Vector, items: Items | None) -> Vector:
            rows = np.arange(self.data.n_rows) if items is None else items
            leaves = self.network.leaves(params, differentiable=True)
            total = np.zeros(params.size)
            for first in range(0, rows.size, self.batch_rows):
                some = rows[first : first + self.batch_rows]
                outputs = self.network.forward(leaves, self.network.rows(self.data.X, some))
                slopes = self.loss.slope_each(self._finite(outputs), self.data.y[some])
                pull = self.row_counts[some] * slopes
                total += self.network.pull_back(outputs, leaves, pull[None])[0]
            return total

        own_seed = lambda: self._own_seed  # noqa: E731 - a pass over the rows
        return train_locally(params, training, own_seed, self.row_counts, summed_gradient)

    @cached_property
    def _own_seed(self) -> int:
        firsts = range(0, self.data.n_rows, self.batch_rows)
        parts = (slice(first, first + self.batch_rows) for first in firsts)
        features = (to_numpy(self.network.rows(self.data.X, some)) for some in parts)
        return seed_of_rows(chain(features, (self.row_counts, self.data.y)))

    def _curvature(self, point: Point, weights: CurvatureWeights) -> Matrix:
        r"""Return the Hessian of :math:`\lambda l + \sum_q w_q r_q`, by forward over reverse mode.

        A function f of the logits has the same Hessian as its quadratic model
        :math:`\sum_i f'_i z_i + \tfrac12 f''_i (z_i - \bar z_i)^2` at this point. Losses and scores
        therefore need no implementation in torch.
        """
        params, sharpness = point.params, point.sharpness
        network, logits = self.network, self.logits(params)
        score = models.smooth_selection(logits, self.cut, sharpness)
        on_loss = weights.loss / self.n_rows
        on_score = self.member_counts @ (weights.rates / self._divisors)
        counts, positives = on_loss * self.row_counts, on_loss * self.positive_counts
        slopes = self.loss.slopes(logits, counts, positives)
        slopes += on_score * models.smooth_selection_slope(score, sharpness)
        bends = self.loss.bends(logits, counts, positives)
        bends += on_score * models.smooth_selection_bend(score, sharpness)
        facts = torch.tensor(np.array([logits, slopes, bends]), device=network.device)

        def lagrangian(flat: Tensor, rows: Tensor, z0: Tensor, a: Tensor, b: Tensor) -> Tensor:
            z = network.forward(network.leaves_of(flat), rows).double()
            return (a * z + 0.5 * b * (z - z0) ** 2).sum()

        flat = torch.tensor(params, device=network.device)
        hessian = np.zeros((params.size, params.size))
        size = min(self.batch_rows, 1 + _CURVATURE_ENTRIES // params.size)
        for first in range(0, self.data.n_rows, size):
            batch = slice(first, first + size)
            rows = network.rows(self.data.X, batch)
            hessian += to_numpy(jacfwd(grad(lagrangian))(flat, rows, *facts[:, batch]))
        return (hessian + hessian.T) / 2


def _batches_of_alike(members: NDArray[np.bool_], most: int) -> list[Items]:
    """Return batches of rows that occur in the same rates; rare combinations share batches.

    A batch then requires backward passes only for the loss and for its own rates.
    """
    _, kind, count = np.unique(members, axis=0, return_inverse=True, return_counts=True)
    kind = np.where(count[kind] < _ALIKE, -1, kind)
    batches = []
    for one in np.unique(kind):
        rows = np.flatnonzero(kind == one)
        batches += [rows[first : first + most] for first in range(0, rows.size, most)]
    return batches
