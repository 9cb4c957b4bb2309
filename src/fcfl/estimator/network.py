"""A torch module as the estimator's model; imported only when there is one."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from fcfl._types import ClientId, RateId, Vector
from fcfl.client.torch_model import BATCH_ROWS, TorchClient, torch_client
from fcfl.client.torch_params import as_network
from fcfl.data import ClientData
from fcfl.errors import DataError
from fcfl.estimator.fitting import Model
from fcfl.runtime.checkpoint import replace_file


def network_model(module: Any) -> Model:
    """How clients report on the module, its logits, and the weights it starts from."""
    network = as_network(module)

    def make(name: ClientId, data: ClientData, rates: Sequence[RateId]) -> TorchClient:
        return torch_client(name, data, rates, module)

    def logits(X: Any, params: Vector) -> Vector:
        return network.logits(params, X, BATCH_ROWS)

    return Model(make, logits, network.first_params())


def trained_copy(module: Any, params: Vector) -> Any:
    """The module with these weights."""
    return as_network(module).restored(params)


def module_logits(module: Any, X: Any) -> Vector:
    """Logits of a trained module."""
    network = as_network(module)
    return network.logits(network.first_params(), X, BATCH_ROWS)


def write_weights(module: Any, path: Path) -> None:
    """All weights and buffers as safetensors."""
    tensors = {name: value.detach().clone() for name, value in module.state_dict().items()}
    replace_file(path, save(tensors))


def read_weights(module: Any, path: Path) -> Any:
    """A copy of the module with the weights of a file."""
    loaded = copy.deepcopy(module)
    try:
        loaded.load_state_dict(load_file(path))
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"The weights {str(path)!r} do not fit `model`: {reason}") from None
    return loaded.eval()
