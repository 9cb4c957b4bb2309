"""Any torch module with one logit under each client's budget.

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

Needs the extra ``fcfl[torch]``; ``import fcfl`` alone does not import torch.
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
        One logit per row, shape (rows,) or (rows, 1). It is not changed, and evaluated as in
        ``eval()``: without dropout, batch norm with its stored statistics. Parameters with
        ``requires_grad=False`` are not trained.
    X : ndarray, sparse matrix or tensor, one row per label
        Sparse rows are made dense a batch at a time. A tensor may have any shape.
    y : array of 0 and 1
    groups : array of group names, or mapping from attribute to such an array
        One array is the attribute ``"group"``. A row without a name (None, NaN, empty) counts for
        the loss and belongs to no group.
    levels : mapping from attribute to all its group names, optional
        By default the groups found in these rows. Clients need not have the same groups, because
        rates go by name. A row of another group is rejected.
    weights : one non-negative number per row, optional
    device : where to compute, by default where the module's parameters are
    batch_rows : how many rows are evaluated at once
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
        """Return the client under its name, for a `Federation`."""
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
    """Train ``module`` from its own weights so that every client's budgets are met.

    Parameters
    ----------
    module : nn.Module
        The one the clients hold; it is not changed.
    clients : mapping from name to TorchClient
    rules : `Difference` and `Ratio`, on attributes that the clients have
    method : by default ``SQP()``: the worst client's loss, then the mean
        Its unset options are set for a network: see `TorchModule.adapt_method`.
    l2 : weight of ``|params|**2 / 2`` in every loss
    confidence : level at which each budget holds on new rows; by default 0, see `train`
    min_group_rows : a group with fewer rows at a client is left out of its comparison; see `train`
    loss : "cross-entropy", "hinge", "squared", or one such as ``Hinge(width=0.05)``
        Hinge is smoothed, by default over a width of 0.1; its logits are not log-odds.
    threshold : the probability from which on a row is selected, by default .5; see `train`
    on_round : called after every round
    verbose : whether to show a progress bar; by default if stdout is a terminal or a notebook
    """
    of_row = as_loss("loss", loss)
    model = TorchModule(module, loss=of_row)
    for name, client in clients.items():
        if client.model.module is not module:
            raise ValueError(
                f"`clients` must hold the module that is trained, but client {name!r} has another."
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
    """Return a copy of ``module`` with the weights of a folder, in evaluation mode.

    ``module`` must be built as the saved one was; its own weights do not matter.
    """
    return read_module(module, Path(folder))
