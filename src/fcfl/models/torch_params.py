"""A torch module as a function of one flat float64 vector: logits, their pull-back, and back.

The module is never changed. It is evaluated as in ``eval()``: dropout does nothing and batch norm
uses the running statistics it came with, so that a row's logit depends on that row alone and sums
over rows may be taken batch by batch.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.func import functional_call

from fcfl._types import Matrix, Vector
from fcfl.errors import DataError

_FLOATS = (torch.float32, torch.float64)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True, eq=False)
class Network:
    """A module with one logit, its trainable parameters in a fixed order. Made by `as_network`."""

    module: nn.Module
    names: tuple[str, ...]
    device: torch.device
    dtype: torch.dtype

    @property
    def n_params(self) -> int:
        """How many numbers are trained."""
        return sum(leaf.numel() for leaf in self._leaves())

    @property
    def is_double(self) -> bool:
        """Whether it computes in float64."""
        return self.dtype == torch.float64

    def _leaves(self) -> list[Tensor]:
        own = dict(self.module.named_parameters())
        return [own[name] for name in self.names]

    def first_params(self) -> Vector:
        """The module's own weights, flattened: where training starts."""
        return np.concatenate([to_numpy(leaf).ravel() for leaf in self._leaves()])

    def restored(self, params: Vector) -> nn.Module:
        """A copy of the module with these weights, in evaluation mode, on the module's device."""
        trained = copy.deepcopy(self.module).eval()
        own = dict(trained.named_parameters())
        with torch.no_grad():
            for name, part in zip(self.names, self._split(params), strict=True):
                own[name].copy_(torch.from_numpy(part))
        return trained

    def logits(self, params: Vector, X: Any, batch_rows: int) -> Vector:
        """Logits of all rows of ``X``, a batch at a time."""
        leaves = self.leaves(params)
        with torch.no_grad():
            parts = [
                to_numpy(self.forward(leaves, self.rows(X, slice(start, start + batch_rows))))
                for start in range(0, X.shape[0], batch_rows)
            ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def leaves(self, params: Vector, *, differentiable: bool = False) -> tuple[Tensor, ...]:
        """The parameters as tensors of the module's own types, where they are computed with."""
        return tuple(
            torch.tensor(part, dtype=leaf.dtype, device=self.device, requires_grad=differentiable)
            for part, leaf in zip(self._split(params), self._leaves(), strict=True)
        )

    def leaves_of(self, flat: Tensor) -> tuple[Tensor, ...]:
        """The same from one flat tensor, through which torch may differentiate."""
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
        """Rows of an array, a sparse matrix or a tensor, dense, where and as the module wants them.

        A tensor of whole numbers stays one: they may be indices.
        """
        part = X[which]
        if not isinstance(part, Tensor):
            dense = part.toarray() if sparse.issparse(part) else np.asarray(part)
            return torch.tensor(dense, dtype=self.dtype, device=self.device)
        return part.to(self.device, self.dtype if part.is_floating_point() else part.dtype)

    def forward(self, leaves: Sequence[Tensor], rows: Tensor) -> Tensor:
        """One logit per row, shape (rows,)."""
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
        """Everything that is not trained, on the device of the computation."""
        fixed: dict[str, Tensor] = dict(self.module.named_buffers())
        fixed |= {k: v for k, v in self.module.named_parameters() if k not in self.names}
        return {name: tensor.detach().to(self.device) for name, tensor in fixed.items()}

    def pull_back(self, logits: Tensor, leaves: Sequence[Tensor], residuals: Matrix) -> Matrix:
        """Gradients of ``residuals @ logits``, one row per row of ``residuals``.

        One backward pass each through the same forward: as fast as all in one vectorised pass
        (measured), in less memory, and any module allows it.
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
    """Check that ``module`` can be trained here, and fix the order of its parameters.

    ``device`` is where it is evaluated, by default where its parameters are.
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
    """Evaluation mode for a while; every part is then put back as it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def to_numpy(tensor: Tensor) -> Vector:
    """The same numbers in float64, on the host."""
    array: Vector = tensor.detach().to("cpu", torch.float64).numpy()
    return array


def state_arrays(module: nn.Module) -> dict[str, NDArray[Any]]:
    """All weights and buffers by name, in their own types."""
    return {
        name: np.array(tensor.detach().cpu().numpy(), order="C")
        for name, tensor in module.state_dict().items()
    }


def load_state(module: nn.Module, arrays: Mapping[str, NDArray[Any]], source: str) -> nn.Module:
    """A copy of the module with these weights and buffers, in evaluation mode."""
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
