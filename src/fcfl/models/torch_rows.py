"""Rows for a torch module: features of any shape, and groups by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor

from fcfl.data.cells import texts
from fcfl.data.client_data import ClientData
from fcfl.data.coded_features import CodedFeatures
from fcfl.errors import DataError

Groups = ArrayLike | Mapping[str, ArrayLike]


def as_features(X: Any) -> Any:
    """A tensor or a dense, sparse or coded array of finite entries, rows along its first axis."""
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
    """Rows of any shape with their labels, groups and weights, checked as those of any client."""
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
    """Codes of the rows' groups, -1 for none, and the names they stand for."""
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1:
        raise DataError(
            f"`groups` must hold one group name per row, got shape {array.shape} for "
            f"{attribute!r}. Give several attributes as a mapping."
        )
    found = texts(pd.Series(array, dtype=object, name=attribute))
    names = found.levels if given is None else tuple(map(str, given))
    strangers = [level for level in found.levels if level not in names]
    if strangers:
        raise DataError(
            f"`groups` must hold groups of `levels` ({', '.join(map(repr, names))}) for "
            f"{attribute!r}, got {strangers[0]!r}."
        )
    lookup = np.array([names.index(level) for level in found.levels] + [-1], dtype=np.int32)
    return lookup[found.codes], names
