r"""Compiled kernels, threads, and the sum of the curvatures of many clients.

`kernels` returns the compiled module, which is built with the package if there is a C compiler
(``hatch_build.py``). NumPy and SciPy compute the same results more slowly (docs/scale.md).

`CurvatureSum` is :math:`\sum_k [X_k\ 1]^T D_k\, [X_k\ 1]`. For clients in one process it is faster
and smaller than one matrix per client.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._checks import check_curvature_sum
from fcfl._types import Matrix, Vector
from fcfl.data.client_data import (
    CodedFeatures,
    FeatureLayout,
    csr_rows,
    csr_view,
    row_blocks,
    transposed,
)

T = TypeVar("T")

_VARIABLES = ("FCFL_NUM_THREADS", "OMP_NUM_THREADS")


def n_threads() -> int:
    """Return ``FCFL_NUM_THREADS`` or ``OMP_NUM_THREADS``, else the number of usable cores."""
    for name in _VARIABLES:
        given = os.environ.get(name, "")
        if given.isdecimal() and int(given) > 0:
            return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(task: Callable[[T], object], over: Sequence[T]) -> None:
    """Call ``task`` for each element of ``over``, on several threads and in any order."""
    helpers = min(n_threads(), len(over)) - 1 if len(over) > 1 else 0
    if helpers < 1:
        for one in over:
            task(one)
        return
    shared = iter(over)  # each idle thread takes the next element
    pool = _pool(helpers)
    others = [pool.submit(_work, task, shared) for _ in range(helpers)]
    try:
        _work(task, shared)
    finally:
        begun = [other for other in others if not other.cancel()]
        wait(begun)  # before raising an error, because threads write to arrays of the caller
        for other in begun:
            other.result()


def _work(task: Callable[[T], object], shared: Iterator[T]) -> None:
    for one in shared:
        task(one)


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="fcfl")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


_INTERFACE = 2  # as in _kernels.c
_VARIABLE = "FCFL_COMPILED"


def _load() -> Any:
    try:
        from fcfl.models import _kernels
    except ImportError:
        return None
    if _kernels.INTERFACE != _INTERFACE:  # the source was updated without a new build
        warnings.warn("The compiled kernels have another version. Reinstall fcfl.", stacklevel=2)
        return None
    return _kernels


_FOUND = _load()


def kernels() -> Any:
    """Return the compiled module, or None if it is absent or ``FCFL_COMPILED`` is 0."""
    return None if os.environ.get(_VARIABLE) == "0" else _FOUND


@dataclass(frozen=True, eq=False)
class Part:
    """One or more coded columns fused into one code with ``size`` values, computed by ``strides``.

    ``of_code`` is a matrix of shape (features, codes) with ones where a code sets a feature.
    """

    columns: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    features: NDArray[np.intp]
    of_code: Any

    @property
    def is_fused(self) -> bool:
        """Whether the part has more than one column."""
        return len(self.columns) > 1

    def by_feature(self, by_code: Matrix) -> Matrix:
        """Convert sums by code, along the first axis, to sums by feature."""
        summed: Matrix = self.of_code @ by_code if self.is_fused else by_code[:-1]
        return summed


@dataclass(frozen=True, eq=False)
class FusedColumns:
    """All coded columns of a layout, grouped into parts, with unfused columns first.

    Codes and features are numbered part by part. ``features`` maps this order to the features of
    the layout. ``set_by`` has shape (codes, features), with ones where a code sets a feature.
    """

    layout: FeatureLayout
    parts: tuple[Part, ...]
    features: NDArray[np.intp]
    set_by: Any

    @property
    def n_first(self) -> int:
        """Number of codes of the first part."""
        return self.parts[0].size if self.parts else 0

    @property
    def is_fused(self) -> bool:
        """Whether any part has more than one column."""
        return len(self.parts) < len(self.layout.columns)

    @cached_property
    def ends(self) -> NDArray[np.int32]:
        """Zero, followed by the end of the features of each code in `set_features`."""
        ends: NDArray[np.int32] = self.set_by.indptr.astype(np.int32)
        return ends

    @cached_property
    def set_features(self) -> NDArray[np.int32]:
        """Features that are set by each code, concatenated."""
        features: NDArray[np.int32] = self.features[self.set_by.indices].astype(np.int32)
        return features

    @cached_property
    def number_features(self) -> NDArray[np.int32]:
        """Positions of the features that are numbers."""
        return self.layout.number_features.astype(np.int32)

    def last_by_feature(self, by_code: Matrix, first: int) -> tuple[NDArray[np.intp], Matrix]:
        """Convert sums by code of the parts from ``first`` on to (features, sums by feature)."""
        before = sum(part.features.size for part in self.parts[:first])
        n_codes = self.set_by.shape[0]
        lines = csr_rows(self.set_by, slice(n_codes - by_code.shape[0], n_codes))
        lines = csr_view(lines.data, lines.indices - before, lines.indptr, -before + lines.shape[1])
        return self.features[before:], transposed(lines) @ by_code

    def codes(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes of all parts, of shape (rows, parts); the slots if no part is fused."""
        if not self.is_fused:
            return slots
        codes, first = np.empty((slots.shape[0], len(self.parts)), dtype=np.int32), 0
        for i, part in enumerate(self.parts):
            codes[:, i] = self.codes_of(i, slots)
            codes[:, i] += first
            first += part.size
        return codes

    def codes_of(self, part: int, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes of one part, starting at zero."""
        firsts, own = self.layout.slots.astype(np.int32), self.parts[part]
        codes: NDArray[np.int32] = slots[:, own.columns[0]] - firsts[own.columns[0]]
        for column, stride in zip(own.columns[1:], own.strides[1:], strict=True):
            codes += np.int32(stride) * (slots[:, column] - firsts[column])
        return codes


@lru_cache(maxsize=64)  # shared by clients of similar size with equal layouts
def fuse(layout: FeatureLayout, most: int) -> FusedColumns:
    """Group columns into parts of at most ``most`` codes; larger columns are not fused."""
    parts = tuple(_part(layout, columns) for columns in _packed(layout, most))
    if 4 * len(parts) > 3 * len(layout.columns):  # fusing few columns does not pay off
        parts = tuple(_part(layout, [j]) for j in range(len(layout.columns)))
    features = np.concatenate([np.zeros(0, dtype=np.intp), *(part.features for part in parts)])
    set_by = sparse.csr_array((0, 0))
    if parts:
        set_by = sparse.csr_array(sparse.block_diag([part.of_code for part in parts]).T)
    return FusedColumns(layout, parts, features, set_by)


def _packed(layout: FeatureLayout, most: int) -> list[list[int]]:
    """Assign columns, in order of decreasing width, to the first part with enough free codes."""
    sizes = [width + 1 for width in layout.widths]
    taken: list[int] = []
    packed: list[list[int]] = []
    for column in sorted(range(len(sizes)), key=lambda j: (-sizes[j], j)):
        fitting = (i for i, size in enumerate(taken) if size * sizes[column] <= most)
        i = next(fitting, len(packed))
        if i == len(packed):
            taken.append(1)
            packed.append([])
        taken[i] *= sizes[column]
        packed[i].append(column)
    return sorted((sorted(part) for part in packed), key=lambda part: (len(part) > 1, part))


def _part(layout: FeatureLayout, columns: list[int]) -> Part:
    """Fuse columns into one part, with the levels of the first column varying fastest."""
    sizes = [layout.widths[j] + 1 for j in columns]
    strides = np.cumprod([1, *sizes])
    firsts = np.cumsum([0, *(size - 1 for size in sizes)])
    every = np.arange(strides[-1])
    lines, codes = [], []
    for size, stride, first in zip(sizes, strides, firsts, strict=False):
        levels = every // stride % size
        is_feature = levels < size - 1
        lines.append(first + levels[is_feature])
        codes.append(every[is_feature])
    at = np.concatenate(lines), np.concatenate(codes)
    features = [np.arange(layout.columns[j].start, layout.columns[j].stop) for j in columns]
    return Part(
        tuple(columns),
        tuple(int(stride) for stride in strides[:-1]),
        int(strides[-1]),
        np.concatenate(features),
        sparse.csr_array((np.ones(at[0].size), at), shape=(int(firsts[-1]), int(strides[-1]))),
    )


_PAIR_ROWS = 65_536  # with this many rows, the cost of a table of pairs is negligible
# Up to these numbers of rows, adding pairs one by one is faster than tables. The limit depends on
# whether the matrix fits in the cache: for 35 clients of 2,000 rows, tables took 40 ms and single
# pairs 66 ms with 800 levels, and 476 and 320 ms with 240.
_FEW_ROWS, _FEW_UNCACHED_ROWS, _CACHED_ENTRIES = 2_500, 800, 1 << 17
_PART_CODES = 256  # maximum number of codes of a part, so that a table of pairs fits in the cache
_PRODUCT_ROWS = 8_192  # rows per block, so that temporary arrays fit in the cache
_STRIP = 128  # rows of the matrix that are mirrored at once


class CurvatureSum:
    """Sum of the curvature matrices of the clients, added in a fixed order.

    The upper triangle is bitwise equal to the sum of the clients' separate matrices, for any number
    of threads. The lower triangle is copied from it by `total`. Do not use the sum after an error.
    """

    def __init__(self, size: int) -> None:
        self._upper: Matrix = np.zeros((size, size))
        self._own: Matrix | None = None  # temporary matrix, zero between clients
        self._waiting: list[tuple[CodedFeatures, Vector]] = []  # summed together, on all cores

    @property
    def total(self) -> Matrix:
        """Current sum, as an array that later additions modify."""
        self._add_waiting()
        for rows in row_blocks(self._upper.shape[0], _STRIP):  # strips fit in the cache
            self._upper[rows.stop :, rows] = self._upper[rows, rows.stop :].T
            square = self._upper[rows, rows]
            square[:] = np.triu(square) + np.triu(square, 1).T
        return self._upper

    def add(self, matrix: Matrix) -> None:
        """Check and add the matrix of a client. Only its upper triangle is used later."""
        check_curvature_sum(matrix)
        self._add_waiting()
        self._upper += matrix

    def add_codes(self, X: CodedFeatures, diagonal: Vector) -> None:
        r"""Add :math:`[X\ 1]^T D\, [X\ 1]` for the coded rows of a client, by the compiled kernels.

        The addition may be deferred, to add several clients at once. Do not modify ``diagonal``.
        """
        diagonal = np.ascontiguousarray(diagonal, np.float64)
        if diagonal.shape != X.shape[:1]:
            raise ValueError(f"{diagonal.shape} weights do not fit {X.shape[0]} rows.")
        is_cached = (X.shape[1] + 1) ** 2 <= _CACHED_ENTRIES
        if X.shape[0] <= (_FEW_ROWS if is_cached else _FEW_UNCACHED_ROWS):
            self._add_waiting()
            self._add_few(X, diagonal)
        elif X.shape[0] <= _PAIR_ROWS:
            if self._waiting and not _are_alike(X, self._waiting[0][0]):
                self._add_waiting()
            self._waiting.append((X, diagonal))
            if sum(waiting.shape[0] for waiting, _ in self._waiting) >= _PAIR_ROWS:
                self._add_waiting()
        else:
            self._add_waiting()
            own = np.zeros_like(self._upper)
            for rows in row_blocks(X.shape[0], _PAIR_ROWS):
                _add_pairs(own, [(X[rows], diagonal[rows])])
            self._upper += own
            _add_numbers(self._upper, X, diagonal)

    def _add_waiting(self) -> None:
        """Add the deferred clients, in order."""
        clients, self._waiting = self._waiting, []
        if clients:
            _add_pairs(self._upper, clients)
            for X, diagonal in clients:
                _add_numbers(self._upper, X, diagonal)

    def _add_few(self, X: CodedFeatures, diagonal: Vector) -> None:
        """Add the pairs of a few rows one by one, because they use a small part of the matrix."""
        if self._own is None:
            self._own = np.zeros_like(self._upper)
        size, layout, (n_rows, n_columns) = self._upper.shape[0], X.layout, X.slots.shape
        intercept = layout.n_features
        # Codes without a feature are mapped to a column after the intercept.
        at = np.where(layout.feature_of_slot == intercept, intercept + 1, layout.feature_of_slot)
        features = np.full((n_rows, n_columns + 1), intercept, dtype=np.int32)
        features[:, :-1] = at[X.slots]
        kernels().add_few(size, features, diagonal, self._own, self._upper)
        _add_numbers(self._upper, X, diagonal)


def _are_alike(X: CodedFeatures, other: CodedFeatures) -> bool:
    """Return whether the columns of both clients are fused in the same way."""
    return X.layout == other.layout and _most_codes(X.shape[0]) == _most_codes(other.shape[0])


def _most_codes(n_rows: int) -> int:
    """Return the maximum number of codes of a part: a table of pairs has a fourth of the rows."""
    return min(1 << max(n_rows.bit_length() // 2 - 1, 0), _PART_CODES)


def _add_pairs(matrix: Matrix, clients: list[tuple[CodedFeatures, Vector]]) -> None:
    """Add the products of coded columns and intercept, summing each pair of parts by code pair.

    A task processes one part with all later parts, for all clients in order. Tasks write to
    different entries.
    """
    compiled = kernels()
    fused = fuse(clients[0][0].layout, _most_codes(clients[0][0].shape[0]))
    parts = fused.parts
    codes = [np.empty((len(parts), X.shape[0]), np.int32) for X, _ in clients]

    def find_codes(at: tuple[int, ...]) -> None:
        client, part = at
        codes[client][part] = fused.codes_of(part, clients[client][0].slots)

    run_all(find_codes, list(np.ndindex(len(clients), len(parts))))

    def add(a: int) -> None:
        for own, (_, diagonal) in zip(codes, clients, strict=True):
            by_code = np.zeros((parts[a].size, 1))
            compiled.add_pairs(1, own[a], np.zeros_like(own[a]), diagonal, by_code)
            _add_own(matrix, parts[a], by_code[:, 0])
            tables = []
            for b in range(a + 1, len(parts)):
                table = np.zeros((parts[a].size, parts[b].size))
                compiled.add_pairs(parts[b].size, own[a], own[b], diagonal, table)
                if parts[b].is_fused:
                    tables.append(table)
                else:  # then both are single columns
                    _add_block(matrix, parts[a], parts[b], table[:-1, :-1])
            if tables:  # processed at once, because each conversion has a high fixed cost
                first = len(parts) - len(tables)
                at, block = fused.last_by_feature(parts[a].by_feature(np.hstack(tables)).T, first)
                matrix[np.ix_(at, parts[a].features)] += block
                matrix[np.ix_(parts[a].features, at)] += block.T

    run_all(add, range(len(parts)))
    for _, diagonal in clients:
        matrix[-1, -1] += diagonal.sum()


def _add_own(matrix: Matrix, part: Part, by_code: Vector) -> None:
    """Add the products of a part with itself and with the intercept, from its sums by code."""
    at, own = part.features, part.by_feature(by_code)
    if part.is_fused:
        matrix[np.ix_(at, at)] += part.of_code @ (by_code[:, None] * part.of_code.T.toarray())
    else:
        matrix[at, at] += own
    matrix[at, -1] += own


def _add_block(matrix: Matrix, one: Part, other: Part, block: Matrix) -> None:
    """Add the products of two single columns, above the diagonal."""
    if not block.size:  # a column without levels
        return
    at, across = (slice(p.features[0], p.features[-1] + 1) for p in (one, other))
    if at.start < across.start:
        matrix[at, across] += block
    else:
        matrix[across, at] += block.T


def _add_numbers(matrix: Matrix, X: CodedFeatures, diagonal: Vector) -> None:
    """Add the rows and columns of the features that are numbers."""
    layout, at = X.layout, X.layout.number_features
    if not at.size:
        return
    scaled = X.numbers * diagonal[:, None]
    lines = np.zeros((at.size, layout.n_features + 1))
    lines[:, :-1] = layout.by_feature(transposed(X.ones()) @ scaled).T
    lines[:, -1] = scaled.sum(axis=0)
    matrix[at] += lines
    matrix[:, at] += lines.T
    square = np.zeros((at.size, at.size))
    for rows in row_blocks(X.shape[0], _PRODUCT_ROWS):
        parts = (np.ascontiguousarray(part[rows].T) for part in (scaled, X.numbers))
        square += np.einsum("ji,ki->jk", *parts)  # BLAS rounding depends on its threads
    matrix[np.ix_(at, at)] += square
