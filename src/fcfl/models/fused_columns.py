"""Coded columns read together: one code for several columns of few levels.

A row then has fewer codes to look up and to sum by, and a Gram matrix fewer pairs of columns. Three
columns of four levels have 125 combinations: sums by combination are taken over rows, and sums by
level, or by pair of levels, over combinations.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import Matrix, Vector
from fcfl.data.coded_features import FeatureLayout, csr_rows, csr_view, transposed


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
