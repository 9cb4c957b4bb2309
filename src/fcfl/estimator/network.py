"""A torch module as the estimator's model; imported only when there is one."""

from collections.abc import Sequence
from typing import Any

from fcfl._types import ClientId, RateId, Vector
from fcfl.data import ClientData
from fcfl.estimator.fitting import Model
from fcfl.models.torch_module import BATCH_ROWS, TorchClient, torch_client
from fcfl.models.torch_params import as_network
from fcfl.torch import NETWORK_L2, load_module, save_module, suited

__all__ = [
    "NETWORK_L2",
    "load_module",
    "module_logits",
    "network_model",
    "save_module",
    "trained_copy",
]


def network_model(module: Any) -> Model:
    """How clients report on the module, its logits, and the weights it starts from."""
    network = as_network(module)

    def make(name: ClientId, data: ClientData, rates: Sequence[RateId]) -> TorchClient:
        return torch_client(name, data, rates, module)

    def logits(X: Any, params: Vector) -> Vector:
        return network.logits(params, X, BATCH_ROWS)

    start = network.first_params()
    return Model(make, logits, start, lambda method: suited(method, network), "module")


def trained_copy(module: Any, params: Vector) -> Any:
    """The module with these weights."""
    return as_network(module).restored(params)


def module_logits(module: Any, X: Any) -> Vector:
    """Logits of a trained module."""
    network = as_network(module)
    return network.logits(network.first_params(), X, BATCH_ROWS)
