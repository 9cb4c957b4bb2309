"""Train torch modules with one logit within each client's budget.

>>> import numpy as np, torch
>>> from fcfl import Difference
>>> from fcfl.torch import TorchClient, train_module
>>> rng, _ = np.random.default_rng(0), torch.manual_seed(0)
>>> def rows(n):
...     X, group = rng.normal(size=(n, 3)), rng.choice(["a", "b"], n)
...     return X, (X[:, 0] + (group == "a") + rng.logistic(size=n) > 0.5).astype(float), group
>>> module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
>>> clients = {site: TorchClient(module, *rows(80)) for site in ("north", "south")}
>>> trained = train_module(module, clients, [Difference("demographic_parity", "group", 0.05)])
>>> trained.budgets_met
True

Requires the extra ``fcfl[torch]``. ``import fcfl`` does not import torch.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fcfl._types import ClientId
from fcfl.client.client import LocalClient
from fcfl.federation.federation import Federation
from fcfl.federation.session import Session
from fcfl.methods.method import RoundInfo
from fcfl.methods.sqp import SQP
from fcfl.models.loss import CROSS_ENTROPY, Loss, as_loss
from fcfl.models.torch_module import (
    BATCH_ROWS,
    NETWORK_L2,
    Groups,
    TorchModule,
    read_module,
    torch_data,
    write_module,
)
from fcfl.rules import Rule
from fcfl.training.train import Trained, train

__all__ = [
    "TorchClient",
    "TorchModule",
    "TrainedModule",
    "load_module",
    "save_module",
    "train_module",
]


class TorchClient:
    """A client's rows for a torch module.

    Parameters
    ----------
    module : nn.Module
        Module that returns one logit per row, in shape (rows,) or (rows, 1). It is not changed. It
        is evaluated in ``eval()`` mode: without dropout, and with stored statistics of batch norm.
        Parameters with ``requires_grad=False`` are not trained.
    X : ndarray, sparse matrix or tensor, one row per label
        Sparse rows are made dense batch by batch. A tensor may have any shape.
    y : array of 0 and 1
    groups : array of group names, or mapping from attribute to such an array
        A single array has the attribute ``"group"``. A row without a group (None, NaN, empty)
        counts for the loss only.
    levels : mapping from attribute to all its group names, optional
        The default is the groups in these rows. Clients may have different groups, because rates
        are matched by name. Raise `DataError` if a row has a group that is not listed.
    weights : one non-negative number per row, optional
    device : device of the computation, by default that of the module's parameters
    batch_rows : number of rows to evaluate at once
    """

    def __init__(
        self,
        module: Any,
        X: Any,
        y: ArrayLike,
        groups: Groups,
        *,
        levels: Mapping[str, Sequence[str]] | None = None,
        weights: ArrayLike | None = None,
        device: Any = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self.model = TorchModule(module, device, batch_rows)
        self.model.network  # noqa: B018 - raises if the module cannot be trained
        self.data = torch_data(X, y, groups, levels or {}, weights)
        if self.data.n_rows == 0:
            raise ValueError("`X` must have at least one row, got none.")

    def named(self, name: ClientId, loss: Loss = CROSS_ENTROPY) -> LocalClient:
        """Return the client with a name, for a `Federation`."""
        model = self.model if self.model.loss == loss else replace(self.model, loss=loss)
        return LocalClient(name, self.data, model=model)


@dataclass(frozen=True, repr=False)
class TrainedModule(Trained):
    """The result of training; ``module`` is a copy with the trained weights, in evaluation mode."""

    module: Any = None


def train_module(
    module: Any,
    clients: Mapping[ClientId, TorchClient],
    rules: Sequence[Rule],
    *,
    method: Any = None,
    l2: float = NETWORK_L2,
    confidence: float | None = None,
    min_group_rows: float | None = None,
    loss: str | Loss = CROSS_ENTROPY,
    threshold: float | None = None,
    on_round: Callable[[RoundInfo], None] | None = None,
    verbose: bool | None = None,
) -> TrainedModule:
    """Train ``module`` from its current weights so that every client's budgets are met.

    Parameters
    ----------
    module : nn.Module
        Same module as in ``clients``. It is not changed.
    clients : mapping from name to TorchClient
    rules : `Difference` and `Ratio`, on attributes that the clients have
    method : training method, by default ``SQP()``
        Options that are not given are set for a network: see `TorchModule.adapt_method`.
    l2 : weight of ``|params|**2 / 2`` in every loss
    confidence : level at which each budget holds on new rows; by default 0, see `train`
    min_group_rows : minimum number of rows of a group that a client compares; see `train`
    loss : "cross-entropy", "hinge", "squared", or an object such as ``Hinge(width=0.05)``
        Hinge is smoothed, by default over a width of 0.1. Its logits are not log-odds.
    threshold : smallest probability at which a row is selected, by default .5; see `train`
    on_round : function that is called after every round
    verbose : whether to show a progress bar; by default if stdout is a terminal or a notebook
    """
    of_row = as_loss("loss", loss)
    model = TorchModule(module, loss=of_row)
    for name, client in clients.items():
        if client.model.module is not module:
            raise ValueError(
                f"`clients` must have the module to train, but client {name!r} has another module."
            )
    tell = None if on_round is None else lambda info, share: on_round(info)
    trained = train(
        Federation({name: client.named(name, of_row) for name, client in clients.items()}),
        model,
        rules,
        method=SQP() if method is None else method,
        l2=l2,
        confidence=confidence,
        min_group_rows=min_group_rows,
        threshold=threshold,
        session=Session(on_round=tell),
        verbose=verbose,
    )
    if trained.degenerate is not None:
        warnings.warn(trained.degenerate.in_python, UserWarning, stacklevel=2)
    return TrainedModule(**vars(trained), module=model.network.restored(trained.params))


def save_module(module: Any, folder: Path | str, about: Mapping[str, Any] | None = None) -> None:
    """Write ``model.safetensors`` (all weights and buffers) and ``model.json``, which describes it.

    ``about`` is written to the JSON file unchanged.
    """
    write_module(module, Path(folder), None, about)


def load_module(module: Any, folder: Path | str) -> Any:
    """Return a copy of ``module`` with the weights in a folder, in evaluation mode.

    ``module`` must have the same architecture as the saved module. Its weights are not used.
    """
    return read_module(module, Path(folder))
