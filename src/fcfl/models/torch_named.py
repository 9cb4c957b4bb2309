"""A torch module by the import path of the function that makes it."""

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fcfl.errors import DataError
from fcfl.models.torch_module import TorchModule


def build_named(path: str, n_features: int, options: Mapping[str, Any], seed: int) -> TorchModule:
    """The module that ``package.module:function`` makes for so many features, in float64.

    It is called as ``function(n_features, **options)`` with torch's random numbers seeded, so that
    everybody starts from the same weights.
    """
    place, _, name = path.partition(":")
    try:
        make = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(f"The module {path!r} is not installed here ({error}).") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make(n_features, **options)
    if not isinstance(module, nn.Module):
        raise DataError(f"{path!r} must make a torch module, got a {type(module).__name__}.")
    return TorchModule(module.double())
