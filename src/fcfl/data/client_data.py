"""One client's rows, validated once, and how they are split into training and test rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fcfl._types import Matrix, Vector, brief_repr
from fcfl.errors import DataError

from .coded_features import CodedFeatures

Index: TypeAlias = NDArray[np.intp]
Codes: TypeAlias = NDArray[np.int32]
Features: TypeAlias = Any  # a float64 ndarray, a csr_array (scipy is untyped) or CodedFeatures


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """Rows of one client.

    Parameters
    ----------
    X : ndarray, csr_array or CodedFeatures of shape (rows, features)
    y : array of 0 and 1
    groups : mapping from attribute to one code per row
        The code is a position in ``levels[attribute]``. A row with code -1 counts for the loss
        and belongs to no group.
    levels : mapping from attribute to the names of its groups, the same for all clients
    weights : one non-negative number per row, optional
        Number of rows that each stands for in loss and rates; by default one.
    any_shape : bool
        ``X`` has rows along its first axis and any shape, such as images, for a model of its own.
    """

    X: Features
    y: Vector
    groups: Mapping[str, Codes]
    levels: Mapping[str, tuple[str, ...]]
    weights: Vector | None = None
    any_shape: bool = False

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        if not self.any_shape:
            object.__setattr__(self, "X", _features(self.X))
        object.__setattr__(self, "y", _labels(self.y, self.X.shape[0]))
        if set(self.groups) != set(self.levels):
            raise DataError(
                "`groups` and `levels` must name the same attributes, "
                f"got {sorted(self.groups)} and {sorted(self.levels)}."
            )
        groups = {name: self._codes(name, codes) for name, codes in self.groups.items()}
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "levels", {k: tuple(v) for k, v in self.levels.items()})
        if self.weights is not None:
            object.__setattr__(self, "weights", _weights(self.weights, self.n_rows))

    def _codes(self, name: str, codes: ArrayLike) -> Codes:
        array = _vector(f"groups[{name!r}]", codes, self.n_rows)
        n_levels = len(self.levels[name])
        outside = (array < -1) | (array >= n_levels) | (array != np.floor(array))
        if outside.any():
            raise DataError(
                f"`groups[{name!r}]` must hold codes from -1 to {n_levels - 1}, "
                f"got {array[outside][0]:g}."
            )
        return array.astype(np.int32)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def take(self, index: ArrayLike) -> "ClientData":
        """Return the rows at ``index``, in that order."""
        rows = np.asarray(index, dtype=np.intp)
        groups = {name: codes[rows] for name, codes in self.groups.items()}
        weights = None if self.weights is None else self.weights[rows]
        return ClientData(self.X[rows], self.y[rows], groups, self.levels, weights, self.any_shape)


def stratified_split(
    strata: ArrayLike, test_size: float, seed: int | np.random.SeedSequence
) -> tuple[Index, Index]:
    """Split rows into training and test indices, every stratum in the same proportion.

    The test rows of a stratum are its exact share rounded down or up, by largest remainder, so
    that their total is ``test_size`` of the rows as nearly as that allows. Every stratum keeps a
    training row, so a stratum of one row is never tested.
    """
    if not 0 <= test_size < 1:
        raise ValueError(f"`test_size` must be at least 0 and below 1, got {test_size!r}.")
    values, codes = np.unique(np.asarray(strata), return_inverse=True)
    rng = np.random.default_rng(seed)
    sizes = np.bincount(codes, minlength=values.size)
    n_test = _test_rows(sizes, test_size, rng)
    order = rng.permutation(codes.size)
    order = order[stable_order(codes[order])]
    rank = np.arange(codes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    in_test = rank < np.repeat(n_test, sizes)
    return np.sort(order[~in_test]), np.sort(order[in_test])


def stable_order(codes: NDArray[np.integer]) -> Index:
    """Return the positions of the rows of each code in turn, in order within a code."""
    if codes.size and codes.max() < 1 << 16:
        codes = codes.astype(np.uint16)  # sorted in one pass over the rows
    return np.argsort(codes, kind="stable")


def _test_rows(sizes: Index, test_size: float, rng: np.random.Generator) -> Index:
    """Return the number of test rows of each stratum, by largest remainder, ties at random."""
    share = np.round(sizes * test_size, 9)  # 0.1 · 30 is not 3 in floating point
    most = np.minimum(np.ceil(share), sizes - 1).astype(np.intp)
    n_test = np.minimum(np.floor(share).astype(np.intp), most)
    total = int(np.floor(np.round(sizes.sum() * test_size, 9) + 0.5))
    order = rng.permutation(sizes.size)
    order = order[np.argsort(n_test[order] - share[order], kind="stable")]
    order = order[n_test[order] < most[order]]
    n_test[order[: max(total - int(n_test.sum()), 0)]] += 1
    return n_test


def _features(X: Any) -> Features:
    if isinstance(X, CodedFeatures):
        return X
    if sparse.issparse(X):
        matrix = sparse.csr_array(X, dtype=np.float64)
        entries = matrix.data
    else:
        matrix = entries = np.asarray(X, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"`X` must have two dimensions, got {matrix.ndim}.")
    if not np.isfinite(entries).all():
        raise DataError("`X` must hold finite numbers, got NaN or an infinite value.")
    return matrix


def _labels(y: ArrayLike, n_rows: int) -> Vector:
    labels = _vector("y", y, n_rows)
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        raise DataError(f"`y` must hold 0 and 1, got {labels[wrong][0]:g}.")
    return labels


def _weights(weights: ArrayLike, n_rows: int) -> Vector:
    vector = _vector("weights", weights, n_rows)
    wrong = ~(np.isfinite(vector) & (vector >= 0))
    if wrong.any():
        raise DataError(f"`weights` must be zero or positive numbers, got {vector[wrong][0]:g}.")
    if n_rows and not vector.any():
        raise DataError("`weights` must not all be zero.")
    return vector


def _vector(name: str, values: ArrayLike, n_rows: int) -> Matrix:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"`{name}` must hold numbers; encode text first.") from None
    if array.shape != (n_rows,):
        raise DataError(
            f"`{name}` must have one value for each of the {n_rows} rows of `X`, "
            f"got shape {array.shape}."
        )
    return array
