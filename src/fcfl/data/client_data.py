"""Validated rows of one client, stratified splits, and sparse features stored as codes.

A table of categories is stored as one code per cell. A code takes four bytes, an entry of a sparse
matrix twelve. Products of features and weights are computed as lookups and sums by code.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fcfl._types import Matrix, Vector, brief_repr
from fcfl.errors import DataError

Index: TypeAlias = NDArray[np.intp]
Codes: TypeAlias = NDArray[np.int32]
Features: TypeAlias = Any  # a float64 ndarray, a csr_array (scipy is untyped) or CodedFeatures

_ROWS_AT_ONCE = 16_384  # rows per block, so that temporary arrays fit in the processor's cache
_MIN_FILLED = 0.5  # minimum share of nonempty cells: of all coded columns, of each number column


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """Rows of one client.

    Parameters
    ----------
    X : ndarray, csr_array or CodedFeatures of shape (rows, features)
    y : array of 0 and 1
    groups : mapping from attribute to one code per row
        The code is a position in ``levels[attribute]``. A row with code -1 belongs to no group
        and is used in the loss only.
    levels : mapping from attribute to the names of its groups, the same for all clients
    weights : one non-negative number per row, optional
        Weights of the rows in the loss and the rates; by default 1.
    any_shape : bool
        Accept an ``X`` of any shape with rows along the first axis, such as images. The model
        must support this shape.
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
        labels = self._checked("y", self.y, "hold 0 and 1", lambda y: (y == 0) | (y == 1))
        object.__setattr__(self, "y", labels)
        if set(self.groups) != set(self.levels):
            raise DataError(
                "`groups` and `levels` must name the same attributes, "
                f"got {sorted(self.groups)} and {sorted(self.levels)}."
            )
        groups = {name: self._codes(name, codes) for name, codes in self.groups.items()}
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "levels", {k: tuple(v) for k, v in self.levels.items()})
        if self.weights is not None:
            rule = "be zero or positive numbers"
            weights = self._checked(
                "weights", self.weights, rule, lambda w: (w >= 0) & (w < np.inf)
            )
            if self.n_rows and not weights.any():
                raise DataError("`weights` must not all be zero.")
            object.__setattr__(self, "weights", weights)

    def _codes(self, name: str, codes: ArrayLike) -> Codes:
        n_levels = len(self.levels[name])

        def fits(code: Vector) -> NDArray[np.bool_]:
            return np.asarray((code >= -1) & (code < n_levels) & (code == np.floor(code)))

        rule = f"hold codes from -1 to {n_levels - 1}"
        return self._checked(f"groups[{name!r}]", codes, rule, fits).astype(np.int32)

    def _checked(
        self, name: str, values: ArrayLike, rule: str, fits: Callable[[Vector], NDArray[np.bool_]]
    ) -> Vector:
        """Return one number per row, or raise `DataError` if a number violates the rule."""
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"`{name}` must hold numbers; encode text first.") from None
        if array.shape != (self.n_rows,):
            raise DataError(
                f"`{name}` must have one value for each of the {self.n_rows} rows of `X`, "
                f"got shape {array.shape}."
            )
        wrong = ~fits(array)
        if wrong.any():
            raise DataError(f"`{name}` must {rule}, got {array[wrong][0]:g}.")
        return array

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
    """Return indices of training and test rows, with the same test share in every stratum.

    The number of test rows of each stratum is rounded by largest remainder, so that the total is
    as close to ``test_size`` times all rows as possible. Every stratum keeps at least one training
    row, so a stratum of one row has no test row.
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
    """Return the row positions sorted by code, preserving the row order within each code."""
    if codes.size and codes.max() < 1 << 16:
        codes = codes.astype(np.uint16)  # NumPy sorts 16-bit integers by radix sort
    return np.argsort(codes, kind="stable")


def _test_rows(sizes: Index, test_size: float, rng: np.random.Generator) -> Index:
    """Return the number of test rows of each stratum by largest remainder, with random ties."""
    share = np.round(sizes * test_size, 9)  # 0.1 · 30 is not 3 in floating point
    limit = np.minimum(np.ceil(share), sizes - 1).astype(np.intp)
    n_test = np.minimum(np.floor(share).astype(np.intp), limit)
    total = int(np.floor(np.round(sizes.sum() * test_size, 9) + 0.5))
    order = rng.permutation(sizes.size)
    order = order[np.argsort(n_test[order] - share[order], kind="stable")]
    order = order[n_test[order] < limit[order]]
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


# --- features as codes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureLayout:
    """Mapping from the codes and numbers of a row to features.

    Coded column j has ``widths[j]`` features, starting at feature ``firsts[j]``. Number i is
    feature ``numbers[i]``. Codes are stored as *slots*: each column has one slot for each of its
    features, and a last slot for rows in which all its features are zero.
    """

    n_features: int
    firsts: tuple[int, ...]
    widths: tuple[int, ...]
    numbers: tuple[int, ...] = ()

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """Slice of the features of each coded column."""
        pairs = zip(self.firsts, self.widths, strict=True)
        return tuple(slice(first, first + width) for first, width in pairs)

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """First slot of each coded column, followed by the total number of slots."""
        return np.cumsum([0, *(width + 1 for width in self.widths)])

    @property
    def n_slots(self) -> int:
        """Total number of slots."""
        return int(self.slots[-1])

    @cached_property
    def feature_of_slot(self) -> NDArray[np.intp]:
        """Feature of each slot, or ``n_features`` for a slot without a feature."""
        parts = [
            np.append(np.arange(first, first + width), self.n_features)
            for first, width in zip(self.firsts, self.widths, strict=True)
        ]
        return np.concatenate([np.zeros(0, dtype=np.intp), *parts]).astype(np.intp)

    @cached_property
    def number_features(self) -> NDArray[np.intp]:
        """Positions of the features that are numbers."""
        return np.array(self.numbers, dtype=np.intp)

    def by_slot(self, by_feature: Matrix) -> Matrix:
        """Convert values by feature to values by slot, with 0 for slots without a feature."""
        nothing = np.zeros((1, *by_feature.shape[1:]))
        spread: Matrix = np.concatenate([by_feature, nothing])[self.feature_of_slot]
        return spread

    def by_feature(self, by_slot: Matrix) -> Matrix:
        """Convert values by slot to values by feature, with 0 for features that are numbers."""
        values = np.zeros((self.n_features + 1, *by_slot.shape[1:]))
        values[self.feature_of_slot] = by_slot
        return values[:-1]


@dataclass(frozen=True, eq=False)
class CodedFeatures:
    """Features of rows, stored as slots (rows, coded columns) and numbers (rows, numbers).

    Like a matrix, it supports ``shape``, row indexing, ``@`` and `toarray`.
    """

    layout: FeatureLayout
    slots: NDArray[np.int32]
    numbers: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return int(self.slots.shape[0]), self.layout.n_features

    @property
    def ndim(self) -> int:
        """Number of dimensions: two."""
        return 2

    @property
    def nbytes(self) -> int:
        """Memory of codes and numbers, in bytes."""
        return int(self.slots.nbytes + self.numbers.nbytes)

    def __getitem__(self, rows: Any) -> "CodedFeatures":
        return CodedFeatures(self.layout, self.slots[rows], self.numbers[rows])

    def __matmul__(self, weights: Matrix) -> Matrix:
        by_slot, for_numbers = self.layout.by_slot(weights), weights[self.layout.number_features]
        product = np.empty((self.shape[0], *weights.shape[1:]))
        for rows in row_blocks(self.shape[0], _ROWS_AT_ONCE):
            product[rows] = self[rows].ones() @ by_slot
            if for_numbers.size:
                product[rows] += self.numbers[rows] @ for_numbers
        return product

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        return self.toarray().astype(dtype or np.float64, copy=False)

    def without(self, left_out: NDArray[np.bool_]) -> "CodedFeatures":
        """Return a copy of the rows with the features in the mask ``left_out`` set to zero."""
        layout = self.layout
        is_out = np.append(left_out, False)[layout.feature_of_slot]
        last_slots = np.repeat(layout.slots[1:] - 1, np.diff(layout.slots))
        slots = np.where(is_out, last_slots, np.arange(layout.n_slots)).astype(np.int32)
        numbers = np.where(left_out[layout.number_features], 0.0, self.numbers)
        return CodedFeatures(layout, slots[self.slots], numbers)

    def ones(self) -> Any:
        """Return the codes as a one-hot csr_array of shape (rows, slots), without copying them."""
        return ones_at(self.slots, self.layout.n_slots)

    def tocsr(self) -> Any:
        """Return the features as a csr_array."""
        features = self.layout.feature_of_slot[self.slots]
        rows, columns = np.nonzero(features < self.layout.n_features)
        at, values = features[rows, columns], np.ones(rows.size)
        of_number, which = np.nonzero(self.numbers)
        at = np.concatenate([at, self.layout.number_features[which]])
        values = np.concatenate([values, self.numbers[of_number, which]])
        return sparse.csr_array((values, (np.concatenate([rows, of_number]), at)), shape=self.shape)

    def toarray(self) -> Matrix:
        """Return the features as an ndarray."""
        dense: Matrix = self.tocsr().toarray()
        return dense


def ones_at(codes: NDArray[np.int32], n_columns: int) -> Any:
    """Return a csr_array with ones at the codes of each row, without copying the codes."""
    n_rows, n_codes = codes.shape
    ends = np.arange(n_rows + 1, dtype=np.int32) * np.int32(n_codes)
    flat = np.ascontiguousarray(codes).reshape(-1)
    return csr_view(_ones(flat.size), flat, ends, n_columns)


def csr_view(data: Vector, indices: Any, indptr: Any, n_columns: int) -> Any:
    """Return a csr_array that shares these arrays; the constructor would copy array slices."""
    matrix = sparse.csr_array((indptr.size - 1, n_columns))
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def csr_rows(X: Any, rows: slice) -> Any:
    """Return a slice of the rows of a csr_array without copying its entries."""
    ends = X.indptr[rows.start : rows.stop + 1]
    inside = slice(ends[0], ends[-1])
    return csr_view(X.data[inside], X.indices[inside], ends - ends[0], X.shape[1])


def transposed(rows: Any) -> Any:
    """Return the transpose of a csr_array, sharing its arrays."""
    matrix = sparse.csc_array(rows.shape[::-1])
    matrix.data, matrix.indices, matrix.indptr = rows.data, rows.indices, rows.indptr
    return matrix


def _ones(size: int) -> Vector:
    """Return a cached array of ones, shared by all clients; do not modify it."""
    return _some_ones(1 << size.bit_length())[:size]


@lru_cache(maxsize=4)
def _some_ones(size: int) -> Vector:
    return np.ones(size)


def dense(X: Any) -> Matrix:
    """Return features as an ndarray."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def row_blocks(n_rows: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows, in order."""
    for first in range(0, n_rows, size):
        yield slice(first, min(first + size, n_rows))


def code_cells(
    layout: FeatureLayout, cells: Sequence[NDArray[Any]], numbers: Sequence[Vector], n_rows: int
) -> CodedFeatures:
    """Return coded features from one array per column.

    ``cells`` holds the position of each cell among the features of its column, or -1 for none.
    """
    slots = np.empty((n_rows, len(cells)), dtype=np.int32)
    standing = np.empty((n_rows, len(numbers)))
    for rows in row_blocks(n_rows, _ROWS_AT_ONCE):  # block by block, for the cache
        for j, column in enumerate(cells):
            codes = column[rows]
            slots[rows, j] = np.where(codes < 0, layout.widths[j], codes) + layout.slots[j]
        for i, values in enumerate(numbers):
            standing[rows, i] = values[rows]
    return CodedFeatures(layout, slots, standing)


def coded_from_csr(X: Any) -> CodedFeatures | None:
    """Convert a csr_array to codes, or return None if codes cannot store it or save no memory.

    Adjacent features are grouped into columns such that no row has two nonzero features in a
    column, as a one-hot encoder arranges them. Features with entries other than 1 are numbers and
    must be nonzero in most rows.
    """
    X = _canonical(X)
    n_rows, n_features = X.shape
    entries = np.bincount(X.indices, minlength=n_features)
    is_number = np.zeros(n_features, dtype=bool)
    is_number[X.indices[X.data != 1.0]] = True
    if (entries[is_number] < _MIN_FILLED * n_rows).any():
        return None
    rows = np.repeat(np.arange(n_rows), np.diff(X.indptr))
    numbers = np.flatnonzero(is_number)
    in_number = is_number[X.indices]
    code_rows, codes = rows[~in_number], X.indices[~in_number]
    firsts = _first_features(code_rows, codes, is_number)
    if not firsts.size or codes.size < _MIN_FILLED * n_rows * firsts.size:
        return None
    column_of = np.cumsum(np.isin(np.arange(n_features), firsts)) - 1
    widths = np.bincount(column_of[~is_number])
    layout = FeatureLayout(n_features, _plain(firsts), _plain(widths), _plain(numbers))
    slots = np.tile((layout.slots[:-1] + widths).astype(np.int32), (n_rows, 1))
    columns = column_of[codes]
    slots[code_rows, columns] = layout.slots[columns] + codes - firsts[columns]
    return CodedFeatures(layout, slots, X[:, numbers].toarray())


def _first_features(
    rows: NDArray[np.intp], codes: NDArray[np.integer], is_number: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return the first feature of each column, such that rows set at most one feature per column.

    A feature that is a number also ends a column, because the features of a column are adjacent.
    """
    before = np.full(is_number.size, -1)
    same = np.flatnonzero(rows[1:] == rows[:-1])
    np.maximum.at(before, codes[same + 1], codes[same])
    firsts: list[int] = []
    for feature in range(is_number.size):
        if is_number[feature]:
            continue
        begins = not firsts or is_number[feature - 1] or before[feature] >= firsts[-1]
        firsts += [feature] if begins else []
    return np.array(firsts, dtype=np.intp)


def _canonical(X: Any) -> Any:
    """Return the matrix, or a copy, with sorted indices and no stored zeros or duplicates."""
    if X.has_canonical_format and X.data.all():
        return X
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _plain(values: NDArray[np.integer]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
