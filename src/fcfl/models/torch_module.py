"""Any torch module with one logit as a model; `fcfl.models.torch_reports` reports on it."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from fcfl._types import ClientId, RateId, Vector
from fcfl.data.client_data import ClientData
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss, loss_to_json
from fcfl.models.model import check_threshold
from fcfl.models.model_file import MODEL, Inputs, read_model_file
from fcfl.models.torch_file import read_module, write_module
from fcfl.models.torch_params import Network, as_network
from fcfl.models.torch_reports import TorchRows

BATCH_ROWS = 4096
NETWORK_L2 = 3e-3  # docs/networks.md: 3e-2 switches small networks off, 1e-3 is hard to solve
ROUGH_TOLERANCE = (
    1e-5  # KKT residual in float32, whose gradients are not known well enough for 1e-6
)

M = TypeVar("M")


@dataclass(frozen=True, eq=False)
class TorchModule:
    """A module with one logit per row, trained from its own weights; it is not changed.

    ``device`` is where it is evaluated, by default where its parameters are; ``batch_rows`` how
    many rows are evaluated at once. A row is selected from a probability of ``threshold`` on.
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
        check_threshold(self.threshold, self.loss)

    @cached_property
    def cut(self) -> float:
        """The logit from which on a row is selected."""
        return self.loss.cut_at(self.threshold)

    @cached_property
    def network(self) -> Network:
        """The module as a function of one flat vector."""
        return as_network(self.module, self.device)

    @property
    def n_params(self) -> int:
        """How many numbers are trained."""
        return self.network.n_params

    def start(self) -> Vector:
        """The module's own weights."""
        return self.network.first_params()

    neutral_start = start

    def other_starts(self, count: int, seed: int) -> dict[str, Vector]:
        """Fresh random weights, as the module's own layers draw them."""
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
        """A client's rows, ready to be reported on."""
        return TorchRows(client, data, rates, self.network, self.loss, self.batch_rows, self.cut)

    def logits(self, params: Vector, X: Any) -> Vector:
        """The logit of each row of ``X``."""
        return self.network.logits(params, X, self.batch_rows)

    def adapt_method(self, method: M) -> M:
        """The method with what a network can afford, where the choice was left open.

        A linear model's Hessian costs one product, a network's one backward pass per parameter:
        its curvature is learnt. A second point with gradients costs as much as the first. In
        float32 gradients are not known well enough for a KKT residual of 1e-6.
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
        adapted: M = replace(
            options, curvature=curvature, n_full_points=n_full_points, tolerance=tolerance
        )
        return adapted

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write ``model.safetensors``, all weights and buffers, and ``model.json`` about them."""
        about = {"loss": loss_to_json(self.loss), "threshold": self.threshold}
        write_module(self.network.restored(params), folder, inputs, about)

    def read(self, folder: Path) -> "TorchModule":
        """Read the weights, buffers and decision threshold of a folder into this architecture."""
        module = read_module(self.module, folder)
        about = read_model_file(folder / MODEL)["about"]
        return replace(self, module=module, threshold=about.get("threshold", self.threshold))
