"""A torch module's weights as safetensors beside ``model.json``; the architecture is not in it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from fcfl._files import replace_file
from fcfl.errors import DataError
from fcfl.models.model_file import MODEL, Inputs, read_model_file, whole_model, write_model_file
from fcfl.models.torch_params import load_state, state_arrays

KIND = "fcfl-torch-1"
WEIGHTS = "model.safetensors"


def write_module(
    module: Any, folder: Path, inputs: Inputs | None, about: Mapping[str, Any] | None
) -> None:
    """Write all weights and buffers, and what they are; ``about`` is kept as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = state_arrays(module)
    weights = save(arrays)
    content = {
        "weights": WEIGHTS,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "module": repr(module),
        "tensors": {name: [str(a.dtype), list(a.shape)] for name, a in arrays.items()},
        "about": dict(about or {}),
    }
    replace_file(folder / WEIGHTS, weights)
    write_model_file(folder, KIND, content, inputs)


def read_module(module: Any, folder: Path) -> Any:
    """A copy of ``module`` with the weights of a folder, in evaluation mode."""
    path = folder / MODEL
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Write one with `save_module`.")
    content = read_model_file(path)
    if content["kind"] != KIND:
        raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
    with whole_model(path):
        weights = (folder / WEIGHTS).read_bytes()
        if hashlib.sha256(weights).hexdigest() != content["sha256"]:
            raise DataError(f"The weights beside {str(path)!r} are not those it describes.")
        try:
            arrays = load(weights)
        except SafetensorError as error:
            raise ValueError(error) from None
    return load_state(module, arrays, str(path))
