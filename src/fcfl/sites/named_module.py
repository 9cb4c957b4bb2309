"""A network that every site has installed; messages contain its name, never its code.

This file imports torch only on use, to save its import time if the model is linear.
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
    """The torch module that the function at ``path`` (``package.module:function``) returns.

    The function is called as ``function(n_features, **options)``; ``seed`` is the random seed of
    its initial weights. A row is selected if its probability is at least ``threshold``. A site
    builds the module only if its policy lists the path under ``modules``.
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
        """The torch module as a model, built on first use."""
        try:
            from fcfl.models.torch_module import build_named
        except ImportError:
            raise FCFLError("A network needs torch: pip install 'fcfl[torch]'") from None
        made = build_named(self.path, self.n_features, self.options, self.seed)
        return at_threshold(made, self.threshold)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the torch module, so that this class implements `Model`."""
        if name.startswith("_"):  # pickle and copy look these up before fields are set
            raise AttributeError(name)
        return getattr(self.model, name)

    def write(self, params: Vector, folder: Path, inputs: Inputs | None) -> None:
        """Write the weights and a description of the module."""
        from fcfl.models.torch_module import write_module

        network: Any = self.model
        about = {
            "path": self.path,
            "n_features": self.n_features,
            "options": dict(self.options),
            "threshold": self.threshold,
        }
        write_module(network.network.restored(params), folder, inputs, about)
