"""Torch modules with one logit as models: data, training options and files.

Weights are stored as safetensors in the folder of ``model.json``. The architecture is not stored.
`fcfl.models.torch_rows` computes the reports.
"""

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy import sparse
from torch import Tensor, nn

from fcfl._files import replace_file
from fcfl._types import ClientId, RateId, Vector
from fcfl.data.cells import texts
from fcfl.data.client_data import ClientData, CodedFeatures
from fcfl.errors import DataError
from fcfl.models import model as models
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss, loss_to_json
from fcfl.models.torch_rows import Network, TorchRows, as_network, load_state, state_arrays

KIND = "fcfl-torch-1"
WEIGHTS = "model.safetensors"


def write_module(
    module: Any, folder: Path, inputs: models.Inputs | None, about: Mapping[str, Any] | None
) -> None:
    """Write weights, buffers and ``model.json``, which stores ``about`` unchanged."""
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
    models.write_model_file(folder, KIND, content, inputs)


def read_module(module: Any, folder: Path) -> Any:
    """Return a copy of ``module`` with the weights of a folder, in evaluation mode."""
    path = folder / models.MODEL
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Write one with `save_module`.")
    content = models.read_model_file(path)
    if content["kind"] != KIND:
        raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
    with models.whole_model(path):
        weights = (folder / WEIGHTS).read_bytes()
        if hashlib.sha256(weights).hexdigest() != content["sha256"]:
            raise DataError(f"The weights do not match the checksum in {str(path)!r}.")
        try:
            arrays = load(weights)
        except SafetensorError as error:
            raise ValueError(error) from None
    return load_state(module, arrays, str(path))


Groups = ArrayLike | Mapping[str, ArrayLike]


def as_features(X: Any) -> Any:
    """Return features as a tensor or a dense, sparse or coded array, after checking all entries."""
    features: Any
    if isinstance(X, Tensor):
        features, finite = X.detach(), bool(torch.isfinite(X).all())
    elif isinstance(X, CodedFeatures):
        features, finite = X, True
    elif sparse.issparse(X):
        features = sparse.csr_array(X)
        finite = bool(np.isfinite(features.data).all())
    else:
        features = np.asarray(X)
        if features.dtype.kind not in "biuf":
            raise DataError(f"`X` must hold numbers, got {features.dtype}.")
        finite = bool(np.isfinite(features).all())
    if features.ndim < 1:
        raise DataError("`X` must have one row per label, got a single number.")
    if not finite:
        raise DataError("`X` must hold finite numbers, got NaN or an infinite value.")
    return features


def torch_data(
    X: Any,
    y: ArrayLike,
    groups: Groups,
    levels: Mapping[str, Sequence[str]],
    weights: ArrayLike | None,
) -> ClientData:
    """Return client data with rows of any shape, after the same checks as in `ClientData`."""
    named = groups if isinstance(groups, Mapping) else {"group": groups}
    unknown = [name for name in levels if name not in named]
    if unknown:
        raise DataError(
            f"`levels` must name attributes of `groups`, got {unknown[0]!r}; "
            f"`groups` has {', '.join(map(repr, named))}."
        )
    coded = {name: _coded(name, values, levels.get(name)) for name, values in named.items()}
    return ClientData(
        as_features(X),
        np.asarray(y),
        {name: codes for name, (codes, _) in coded.items()},
        {name: names for name, (_, names) in coded.items()},
        None if weights is None else np.asarray(weights),
        any_shape=True,
    )


def _coded(
    attribute: str, values: ArrayLike, given: Sequence[str] | None
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the group codes of the rows, with -1 for no group, and the group names."""
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1:
        raise DataError(
            f"`groups` must hold one group name per row, got shape {array.shape} for "
            f"{attribute!r}. Give several attributes as a mapping."
        )
    found = texts(pd.Series(array, dtype=object, name=attribute))
    names = found.levels if given is None else tuple(map(str, given))
    unknown = [level for level in found.levels if level not in names]
    if unknown:
        raise DataError(
            f"`groups` must hold groups of `levels` ({', '.join(map(repr, names))}) for "
            f"{attribute!r}, got {unknown[0]!r}."
        )
    lookup = np.array([names.index(level) for level in found.levels] + [-1], dtype=np.int32)
    return lookup[found.codes], names


BATCH_ROWS = 4096
NETWORK_L2 = 3e-3  # docs/networks.md: 3e-2 is too strong for small networks, 1e-3 hard to optimise
ROUGH_TOLERANCE = 1e-5  # KKT residual in float32, which is not precise enough for 1e-6


@dataclass(frozen=True, eq=False)
class TorchModule:
    """Model of a torch module with one logit per row. Training does not modify the module.

    The weights of the module are the initial parameters. It is evaluated on ``device``, by default
    the device of its parameters, in batches of ``batch_rows``. A row is selected if its probability
    is at least ``threshold``.
    """

    module: nn.Module
    device: str | torch.device | None = None
    batch_rows: int = BATCH_ROWS
    loss: Loss = CROSS_ENTROPY
    threshold: float = HALF
    default_l2: float | None = NETWORK_L2
    default_starts: ClassVar[int] = 1  # each is a whole training
    default_confidence: ClassVar[float] = 0.0  # for the same reason

    def __post_init__(self) -> None:
        size = self.batch_rows
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"`batch_rows` must be a whole number from 1 up, got {size!r}.")
        models.check_threshold(self.threshold, self.loss)

    @cached_property
    def cut(self) -> float:
        """Smallest logit at which a row is selected."""
        return self.loss.cut_at(self.threshold)

    @cached_property
    def network(self) -> Network:
        """Module as a function of one flat vector."""
        return as_network(self.module, self.device)

    @property
    def n_params(self) -> int:
        """Number of trained parameters."""
        return self.network.n_params

    def start(self) -> Vector:
        """Return the weights of the module."""
        return self.network.first_params()

    neutral_start = start

    def other_starts(self, count: int, seed: int) -> dict[str, Vector]:
        """Return random weights by name, drawn by ``reset_parameters`` of the layers."""
        starts = {}
        for index in range(count):
            drawn = deepcopy(self.module)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + index + 1)
                for layer in drawn.modules():
                    draw_again = getattr(layer, "reset_parameters", None)
                    if callable(draw_again):
                        draw_again()
            starts[f"random {index + 1}"] = replace(self, module=drawn).start()
        return starts

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> TorchRows:
        """Return the rows of a client, prepared for reports."""
        return TorchRows(client, data, rates, self.network, self.loss, self.batch_rows, self.cut)

    def logits(self, params: Vector, X: Any) -> Vector:
        """Return the logit of each row of ``X``."""
        return self.network.logits(params, X, self.batch_rows)

    def adapt_method(self, method: models.AnyMethod) -> models.AnyMethod:
        """Return the method with unset options set to values suitable for networks.

        The Hessian of a network takes one backward pass per parameter, so that L-BFGS curvature is
        used. A second point with gradients costs as much as the first. Gradients in float32 are not
        precise enough for a KKT residual of 1e-6.
        """
        if getattr(method, "curvature", None) is None:  # only methods with curvature have a choice
            return method
        options: Any = method
        curvature = "lbfgs" if options.curvature == "auto" else options.curvature
        n_full_points = options.n_full_points
        if n_full_points is None and curvature == "lbfgs":
            n_full_points = 1
        tolerance = options.tolerance
        if tolerance is None and not self.network.is_double:
            tolerance = ROUGH_TOLERANCE
        adapted: models.AnyMethod = replace(
            options, curvature=curvature, n_full_points=n_full_points, tolerance=tolerance
        )
        return adapted

    def write(self, params: Vector, folder: Path, inputs: models.Inputs | None) -> None:
        """Write ``model.safetensors`` with all weights and buffers, and ``model.json``."""
        about = {"loss": loss_to_json(self.loss), "threshold": self.threshold}
        write_module(self.network.restored(params), folder, inputs, about)

    def read(self, folder: Path) -> "TorchModule":
        """Return a model of this architecture with the weights and threshold in a folder."""
        module = read_module(self.module, folder)
        about = models.read_model_file(folder / models.MODEL)["about"]
        return replace(self, module=module, threshold=about.get("threshold", self.threshold))


def build_named(path: str, n_features: int, options: Mapping[str, Any], seed: int) -> TorchModule:
    """Return the model of the module that ``package.module:function`` returns, in float64.

    The function is called as ``function(n_features, **options)`` with the seed of torch set, so
    that all sites start from the same weights.
    """
    place, _, name = path.partition(":")
    try:
        make = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(f"The module {path!r} is not installed ({error}).") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make(n_features, **options)
    if not isinstance(module, nn.Module):
        raise DataError(f"{path!r} must make a torch module, got a {type(module).__name__}.")
    return TorchModule(module.double())
