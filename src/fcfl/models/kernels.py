r"""Compiled kernels, threads, and the sum of many clients' curvatures in one matrix.

`kernels` returns the compiled module, which is built with the package if there is a C compiler
(``hatch_build.py``). Without it NumPy and SciPy give the same numbers more slowly (docs/scale.md).

`CurvatureSum` is :math:`\sum_k [X_k\ 1]^T D_k\, [X_k\ 1]`. A matrix for each client would cost more
than all rows do, and where all clients are in one process only the sum is needed.
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
    """As many as ``FCFL_NUM_THREADS`` or ``OMP_NUM_THREADS`` say, else the cores one may use."""
    for name in _VARIABLES:
        given = os.environ.get(name, "")
        if given.isdecimal() and int(given) > 0:
            return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(task: Callable[[T], object], over: Sequence[T]) -> None:
    """Call ``task`` for each of ``over``; which thread does which is left open."""
    helpers = min(n_threads(), len(over)) - 1 if len(over) > 1 else 0
    if helpers < 1:
        for one in over:
            task(one)
        return
    shared = iter(over)  # whoever is free takes the next one
    pool = _pool(helpers)
    others = [pool.submit(_work, task, shared) for _ in range(helpers)]
    try:
        _work(task, shared)
    finally:
        begun = [other for other in others if not other.cancel()]  # the rest have nothing to do
        wait(begun)  # all of them, before any error is told: they write to what the caller has
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
    if _kernels.INTERFACE != _INTERFACE:  # a checkout that was updated and not installed again
        warnings.warn(
            "The compiled kernels are of another version; install fcfl again.", stacklevel=2
        )
        return None
    return _kernels


_FOUND = _load()


def kernels() -> Any:
    """The compiled module; None where there is none, or ``FCFL_COMPILED`` is 0."""
    return None if os.environ.get(_VARIABLE) == "0" else _FOUND


@dataclass(frozen=True, eq=False)
class Part:
    """Columns that are read together: ``strides`` make one code of theirs, of ``size``.

    ``of_code`` has a one where a code sets a feature: one line for each of ``features``, one column
    for each code.
    """

    columns: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    features: NDArray[np.intp]
    of_code: Any

    @property
    def is_fused(self) -> bool:
        """Whether it has more than one column; the last code of one stands for no feature."""
        return len(self.columns) > 1

    def by_feature(self, by_code: Matrix) -> Matrix:
        """Sums by code, along the first axis, as sums by feature."""
        summed: Matrix = self.of_code @ by_code if self.is_fused else by_code[:-1]
        return summed


@dataclass(frozen=True, eq=False)
class FusedColumns:
    """All coded columns of a layout in parts, single columns first.

    Codes of a part follow those of the part before, and so do its features: ``features`` are those
    of the layout in this order. ``set_by`` has a one where a code sets a feature: one line for each
    code, one column for each of ``features``.
    """

    layout: FeatureLayout
    parts: tuple[Part, ...]
    features: NDArray[np.intp]
    set_by: Any

    @property
    def n_codes(self) -> int:
        """Codes of all parts."""
        return int(self.set_by.shape[0])

    @property
    def n_first(self) -> int:
        """Codes of the first part."""
        return self.parts[0].size if self.parts else 0

    @property
    def is_fused(self) -> bool:
        """Whether any columns are read together."""
        return len(self.parts) < len(self.layout.columns)

    @cached_property
    def ends(self) -> NDArray[np.int32]:
        """Where the features of each code end in `set_features`, after a zero."""
        ends: NDArray[np.int32] = self.set_by.indptr.astype(np.int32)
        return ends

    @cached_property
    def set_features(self) -> NDArray[np.int32]:
        """The features that codes set, code by code."""
        features: NDArray[np.int32] = self.features[self.set_by.indices].astype(np.int32)
        return features

    @cached_property
    def number_features(self) -> NDArray[np.int32]:
        """The features that are numbers."""
        return self.layout.number_features.astype(np.int32)

    def by_code(self, weights: Vector) -> Vector:
        """The sum of the weights of the features that each code sets."""
        if not self.is_fused:
            return self.layout.by_slot(weights[: self.layout.n_features])
        summed: Vector = self.set_by @ weights[self.features]
        return summed

    def by_feature(self, by_code: Matrix) -> Matrix:
        """Sums by code, along the first axis, as sums by feature; those of numbers are zero."""
        if not self.is_fused:
            return self.layout.by_feature(by_code)
        summed = np.zeros((self.layout.n_features, *by_code.shape[1:]))
        summed[self.features] = self._of_code @ by_code
        return summed

    @cached_property
    def _of_code(self) -> Any:
        return transposed(self.set_by)

    def last_by_feature(self, by_code: Matrix, first: int) -> tuple[NDArray[np.intp], Matrix]:
        """The same for the codes of the parts from ``first`` on: the features, and the sums."""
        before = sum(part.features.size for part in self.parts[:first])
        codes = slice(self.n_codes - by_code.shape[0], self.n_codes)
        lines = csr_rows(self.set_by, codes)
        lines = csr_view(lines.data, lines.indices - before, lines.indptr, -before + lines.shape[1])
        return self.features[before:], transposed(lines) @ by_code

    def codes(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """One code per part, shape (rows, parts): the slots themselves where nothing is fused."""
        if not self.is_fused:
            return slots
        codes, first = np.empty((slots.shape[0], len(self.parts)), dtype=np.int32), 0
        for i, part in enumerate(self.parts):
            codes[:, i] = self.codes_of(i, slots)
            codes[:, i] += first
            first += part.size
        return codes

    def codes_of(self, part: int, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """The codes of a part, from zero."""
        firsts, own = self.layout.slots.astype(np.int32), self.parts[part]
        codes: NDArray[np.int32] = slots[:, own.columns[0]] - firsts[own.columns[0]]
        for column, stride in zip(own.columns[1:], own.strides[1:], strict=True):
            codes += np.int32(stride) * (slots[:, column] - firsts[column])
        return codes


@lru_cache(maxsize=64)  # clients of about one size, whose layouts are equal, share theirs
def fuse(layout: FeatureLayout, most: int) -> FusedColumns:
    """The columns in parts of at most ``most`` codes; a column with more is a part of its own."""
    parts = tuple(_part(layout, columns) for columns in _packed(layout, most))
    if 4 * len(parts) > 3 * len(layout.columns):  # too few are: sums of sums would cost more
        parts = tuple(_part(layout, [j]) for j in range(len(layout.columns)))
    features = np.concatenate([np.zeros(0, dtype=np.intp), *(part.features for part in parts)])
    set_by = sparse.csr_array((0, 0))
    if parts:
        set_by = sparse.csr_array(sparse.block_diag([part.of_code for part in parts]).T)
    return FusedColumns(layout, parts, features, set_by)


def _packed(layout: FeatureLayout, most: int) -> list[list[int]]:
    """Columns put together, the widest first, each into the first part that has room for it."""
    sizes = [width + 1 for width in layout.widths]
    taken: list[int] = []
    packed: list[list[int]] = []
    for column in sorted(range(len(sizes)), key=lambda j: (-sizes[j], j)):
        room = (i for i, size in enumerate(taken) if size * sizes[column] <= most)
        i = next(room, len(packed))
        if i == len(packed):
            taken.append(1)
            packed.append([])
        taken[i] *= sizes[column]
        packed[i].append(column)
    return sorted((sorted(part) for part in packed), key=lambda part: (len(part) > 1, part))


def _part(layout: FeatureLayout, columns: list[int]) -> Part:
    """Columns as one: codes count through the levels of the first column fastest."""
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


_PAIR_ROWS = 65_536  # so many that a table of pairs costs little beside its rows
# Rows, and pairs of theirs, up to which all pairs one by one are faster than tables. Compiled it
# depends on whether the matrix stays in the cache: 35 clients of 2,000 rows took 40 ms by tables
# and 66 one by one with 800 levels, 476 and 320 with 240 (a script that is not kept).
_FEW_ROWS, _MOST_PAIRS = 1_000, 1 << 20
_FEW_COMPILED, _FEW_UNCACHED, _CACHED = 2_500, 800, 1 << 17
_MOST_CODES = 256  # of a part: a table of pairs stays in the cache
_PRODUCT_ROWS = 8_192  # temporary arrays stay in the cache
_STRIP = 128  # lines that are mirrored at once
_NOTHING: Matrix = np.zeros((0, 0))


class CurvatureSum:
    """A matrix to which clients add, in their order.

    The sum's upper triangle has the same bits as that of the clients' own matrices, for any number
    of threads; the other is copied from it when the sum is asked for. After an error it is of no
    use.
    """

    def __init__(self, size: int) -> None:
        self._upper: Matrix = np.zeros((size, size))
        self._own = _NOTHING  # zeros between one client's few rows and the next's
        self._compiled = kernels()
        self._waiting: list[CodedFeatures] = []  # whose pairs are summed together, on all cores
        self._diagonals: list[Vector] = []

    @property
    def total(self) -> Matrix:
        """The sum so far, in an array to which later clients add."""
        self._add_waiting()
        _mirror(self._upper)
        return self._upper

    def add(self, matrix: Matrix) -> None:
        """Add a client's matrix, if it can be one: half of it is not looked at any more."""
        check_curvature_sum(matrix)
        self._add_waiting()
        self._upper += matrix

    def add_codes(self, X: CodedFeatures, diagonal: Vector) -> None:
        r"""Add :math:`[X\ 1]^T D\, [X\ 1]` for a client's rows of codes.

        Clients may wait for others, to be summed together: nobody should change the diagonal.
        """
        diagonal = np.ascontiguousarray(diagonal, np.float64)
        if diagonal.shape != X.shape[:1]:
            raise ValueError(f"{diagonal.shape} weights do not fit {X.shape[0]} rows.")
        if _are_few(X, self._compiled):
            self._add_waiting()
            self._add_few(X, diagonal)
        elif X.shape[0] <= _PAIR_ROWS:
            if self._waiting and not _are_alike(X, self._waiting[0]):
                self._add_waiting()
            self._waiting.append(X)
            self._diagonals.append(diagonal)
            if sum(waiting.shape[0] for waiting in self._waiting) >= _PAIR_ROWS:
                self._add_waiting()
        else:
            self._add_waiting()
            own = np.zeros_like(self._upper)
            for rows in row_blocks(X.shape[0], _PAIR_ROWS):
                _add_pairs(own, [X[rows]], [diagonal[rows]], self._compiled)
            self._upper += own
            _add_numbers(self._upper, X, diagonal)

    def _add_waiting(self) -> None:
        """Add the clients that wait, in their order."""
        clients, diagonals = self._waiting, self._diagonals
        self._waiting, self._diagonals = [], []
        if clients:
            _add_pairs(self._upper, clients, diagonals, self._compiled)
            for X, diagonal in zip(clients, diagonals, strict=True):
                _add_numbers(self._upper, X, diagonal)

    def _add_few(self, X: CodedFeatures, diagonal: Vector) -> None:
        """Add all pairs of few rows one by one: the matrix is larger than what they touch of it."""
        features, size = _features_of(X), self._upper.shape[0]
        if self._compiled is None:
            self._upper += _all_pairs(features, diagonal, size)
        else:
            if not self._own.size:
                self._own = np.zeros_like(self._upper)
            self._compiled.add_few(size, features, diagonal, self._own, self._upper)
        _add_numbers(self._upper, X, diagonal)


def _mirror(matrix: Matrix) -> None:
    """Copy what is above the diagonal below it, in strips that stay in the cache."""
    for rows in row_blocks(matrix.shape[0], _STRIP):
        matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T
        square = matrix[rows, rows]
        square[:] = np.triu(square) + np.triu(square, 1).T


def _are_few(X: CodedFeatures, compiled: Any) -> bool:
    """Whether all pairs one by one are faster than tables of them."""
    if compiled is not None:
        is_cached = (X.shape[1] + 1) ** 2 <= _CACHED
        return X.shape[0] <= (_FEW_COMPILED if is_cached else _FEW_UNCACHED)
    return X.shape[0] <= _FEW_ROWS and X.shape[0] * (len(X.layout.columns) + 1) ** 2 <= _MOST_PAIRS


def _are_alike(X: CodedFeatures, other: CodedFeatures) -> bool:
    """Whether columns of both are read together in the same way."""
    return X.layout == other.layout and _most_codes(X.shape[0]) == _most_codes(other.shape[0])


def _features_of(X: CodedFeatures) -> NDArray[np.int32]:
    """The features of each row and the intercept; one after it where a code stands for none."""
    layout, (n_rows, n_columns) = X.layout, X.slots.shape
    intercept = layout.n_features
    features = np.full((n_rows, n_columns + 1), intercept, dtype=np.int32)
    at = np.where(layout.feature_of_slot == intercept, intercept + 1, layout.feature_of_slot)
    features[:, :-1] = at[X.slots]
    return features


def _all_pairs(features: NDArray[np.int32], diagonal: Vector, size: int) -> Matrix:
    """The part of codes and intercept in one sum."""
    at = features.astype(np.intp)
    pairs = (at[:, :, None] * (size + 1) + at[:, None, :]).reshape(-1)
    weights = np.repeat(diagonal, at.shape[1] ** 2)
    sums: Any = np.bincount(pairs, weights, (size + 1) ** 2)
    inside: Matrix = sums.reshape(size + 1, size + 1)[:size, :size]
    return inside


def _add_pairs(
    matrix: Matrix, clients: list[CodedFeatures], diagonals: list[Vector], compiled: Any
) -> None:
    """Add the parts of codes and intercept: every pair of parts is summed by pair of codes.

    A task is one part with all those after it, for all clients in their order: no two tasks write
    to the same place.
    """
    fused = fuse(clients[0].layout, _most_codes(clients[0].shape[0]))
    parts = fused.parts
    sums = [_SumsByCode(fused, X, d, compiled) for X, d in zip(clients, diagonals, strict=True)]
    run_all(lambda at: sums[at[0]].prepare(at[1]), list(np.ndindex(len(sums), len(parts))))

    def add(a: int) -> None:
        for one in sums:
            mine, tables = parts[a], []
            _add_own(matrix, mine, one.of(a))
            for b in range(a + 1, len(parts)):
                if parts[b].is_fused:
                    tables.append(one.between(a, b))
                else:  # then both are single columns
                    _add_block(matrix, mine, parts[b], one.between(a, b)[:-1, :-1])
            if tables:  # all at once: to sum over one costs as much as some thousand rows
                _add_fused(matrix, mine, fused, len(parts) - len(tables), np.hstack(tables))

    run_all(add, range(len(parts)))
    for diagonal in diagonals:
        matrix[-1, -1] += diagonal.sum()


class _SumsByCode:
    """Sums of the diagonal by code and by pair of codes: the same bits, compiled or not."""

    def __init__(
        self, fused: FusedColumns, X: CodedFeatures, diagonal: Vector, compiled: Any
    ) -> None:
        self._fused, self._slots, self._diagonal, self._compiled = (
            fused,
            X.slots,
            diagonal,
            compiled,
        )
        self._sizes = [part.size for part in fused.parts]
        # `numpy.bincount` would make them as wide as this.
        kind = np.int64 if compiled is None else np.int32
        self._codes = np.empty((len(fused.parts), X.shape[0]), kind)

    def prepare(self, a: int) -> None:
        """Make a line of the codes of a part."""
        self._codes[a] = self._fused.codes_of(a, self._slots)

    def of(self, a: int) -> Vector:
        """By the codes of a part."""
        if self._compiled:  # `numpy.bincount` would keep other threads waiting
            sums = np.zeros((self._sizes[a], 1))
            only = np.zeros(self._diagonal.size, dtype=np.int32)
            self._compiled.add_pairs(1, self._codes[a], only, self._diagonal, sums)
            return sums[:, 0]
        own: Any = np.bincount(self._codes[a], self._diagonal, self._sizes[a])
        counted: Vector = own
        return counted

    def between(self, a: int, b: int) -> Matrix:
        """A line for each code of part ``a``, a column for each code of part ``b``."""
        shape = self._sizes[a], self._sizes[b]
        if self._compiled:
            table = np.zeros(shape)
            self._compiled.add_pairs(
                shape[1], self._codes[a], self._codes[b], self._diagonal, table
            )
            return table
        pairs = self._codes[a] * shape[1] + self._codes[b]
        counted: Any = np.bincount(pairs, self._diagonal, shape[0] * shape[1])
        sums: Matrix = counted.reshape(shape)
        return sums


def _most_codes(n_rows: int) -> int:
    """Codes of a part, so that a table of pairs has about a fourth as many entries as rows."""
    return min(1 << max(n_rows.bit_length() // 2 - 1, 0), _MOST_CODES)


def _add_own(matrix: Matrix, part: Part, sums: Vector) -> None:
    """Add what a part comes to with itself and with the intercept, from its sums by code."""
    at, own = part.features, part.by_feature(sums)
    if part.is_fused:
        matrix[np.ix_(at, at)] += part.of_code @ (sums[:, None] * part.of_code.T.toarray())
    else:
        matrix[at, at] += own
    matrix[at, -1] += own


def _add_block(matrix: Matrix, one: Part, other: Part, block: Matrix) -> None:
    """Add what two single columns come to, above the diagonal."""
    if not block.size:  # a column without levels
        return
    at, across = (slice(p.features[0], p.features[-1] + 1) for p in (one, other))
    if at.start < across.start:
        matrix[at, across] += block
    else:
        matrix[across, at] += block.T


def _add_fused(matrix: Matrix, part: Part, fused: FusedColumns, first: int, tables: Matrix) -> None:
    """Add what a part comes to with fused ones, those from ``first`` on, and the same turned."""
    at, block = fused.last_by_feature(part.by_feature(tables).T, first)
    matrix[np.ix_(at, part.features)] += block
    matrix[np.ix_(part.features, at)] += block.T


def _add_numbers(matrix: Matrix, X: CodedFeatures, diagonal: Vector) -> None:
    """Add the lines and columns of the numbers beside the codes."""
    layout, at = X.layout, X.layout.number_features
    if not at.size:
        return
    scaled = X.numbers * diagonal[:, None]
    lines = np.zeros((at.size, layout.n_features + 1))
    lines[:, :-1] = layout.by_feature(transposed(X.ones()) @ scaled).T
    lines[:, -1] = scaled.sum(axis=0)
    matrix[at] += lines
    matrix[:, at] += lines.T
    matrix[np.ix_(at, at)] += product(scaled, X.numbers)


def product(left: Matrix, right: Matrix) -> Matrix:
    """``left.T @ right`` by einsum, whose rounding does not depend on BLAS and its threads."""
    total = np.zeros((left.shape[1], right.shape[1]))
    for rows in row_blocks(left.shape[0], _PRODUCT_ROWS):
        parts = (np.ascontiguousarray(part[rows].T) for part in (left, right))
        total += np.einsum("ji,ki->jk", *parts)
    return total
