"""A network that every site has installed: it travels as a name, never as code.

Nothing here imports torch: a message about a linear model must not pay for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fcfl._types import ClientId, RateId, Vector
from fcfl.data.client_data import ClientData
from fcfl.errors import FCFLError
from fcfl.models.loss import CROSS_ENTROPY, HALF, Loss
from fcfl.models.model import Inputs, Model, ModelRows, at_threshold, check_threshold

M = TypeVar("M")
Option: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class NamedModule:
    """The torch module that ``path``, as ``package.module:function``, makes.

    The function is called as ``function(n_features, **options)``; ``seed`` draws its first
    weights. A row is selected from a probability of ``threshold`` on. A site builds the module only
    where its policy lists the path under ``modules``.
    """

    path: str
    n_features: int
    options: Mapping[str, Option] = field(default_factory=dict)
    seed: int = 0
    threshold: float = HALF

    def __post_init__(self) -> None:
        place, colon, name = self.path.partition(":")
        if not (colon and name.isidentifier() and all(map(str.isidentifier, place.split(".")))):
            raise ValueError(f"`path` must be like package.module:function, got {self.path!r}.")
        check_threshold(self.threshold, CROSS_ENTROPY)

    @cached_property
    def model(self) -> Model:
        """The module itself."""
        try:
            from fcfl.models.torch_module import build_named
        except ImportError:
            raise FCFLError("A network needs torch: pip install 'fcfl[torch]'") from None
        made = build_named(self.path, self.n_features, self.options, self.seed)
        return at_threshold(made, self.threshold)

    @property
    def cut(self) -> float:
        """The logit from which on a row is selected."""
        return CROSS_ENTROPY.cut_at(self.threshold)

    @property
    def n_params(self) -> int:
        """How many numbers are trained."""
        return self.model.n_params

    @property
    def loss(self) -> Loss:
        """The module's loss."""
        return self.model.loss

    @property
    def default_l2(self) -> float | None:
        """The L2 weight by default."""
        return self.model.default_l2

    @property
    def default_starts(self) -> int:
        """How many starts are compared by default."""
        return self.model.default_starts

    @property
    def default_confidence(self) -> float:
        """How sure to be, by default, that budgets hold on new rows."""
        return self.model.default_confidence

    def start(self) -> Vector:
        """The first weights, the same everywhere."""
        return self.model.start()

    def neutral_start(self) -> Vector:
        """Where fits begin that are only compared with each other."""
        return self.model.neutral_start()

    def other_starts(self, count: int, seed: int) -> Mapping[str, Vector]:
        """Fresh random weights."""
        return self.model.other_starts(count, seed)

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> ModelRows:
        """A client's rows, ready to be reported on."""
        return self.model.rows(client, data, rates)

    def logits(self, params: Vector, X: Any) -> Vector:
        """The logit of each row of ``X``."""
        return self.model.logits(params, X)

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the weights, and what they are of."""
        from fcfl.models.torch_module import write_module

        network: Any = self.model
        about = {
            "path": self.path,
            "n_features": self.n_features,
            "options": dict(self.options),
            "threshold": self.threshold,
        }
        write_module(network.network.restored(params), folder, inputs, about)

    def adapt_method(self, method: M) -> M:
        """The method with what a network can afford."""
        return self.model.adapt_method(method)
