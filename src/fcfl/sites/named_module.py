"""A network that every site has installed: it travels as a name, never as code.

Nothing here imports torch: a message about a linear model must not pay for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from fcfl._types import Vector
from fcfl.errors import FCFLError
from fcfl.models.loss import CROSS_ENTROPY, HALF
from fcfl.models.model import Inputs, Model, at_threshold, check_threshold

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

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module itself: this class is a `Model` by what it names."""
        if name.startswith("_"):  # of pickle and copy, before there are fields
            raise AttributeError(name)
        return getattr(self.model, name)

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
