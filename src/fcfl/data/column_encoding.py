"""What one raw column becomes: a standardised number, or one feature per level."""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector

from ._cells import Frame, Kind, Texts, kind_of, numbers, text_of, texts

Cells: TypeAlias = NDArray[Any]  # float64 numbers with NaN, or int32 positions in a block, or -1


@dataclass(frozen=True, slots=True)
class Number:
    """A number, standardised; an empty cell becomes the mean and may set an indicator."""

    kind: ClassVar[Kind] = "number"
    name: str
    mean: float
    scale: float
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features this column becomes."""
        return (self.name, f"{self.name} missing")[: 1 + self.has_missing]

    def read(self, frame: Frame) -> Cells:
        """Return the column as numbers, NaN where empty."""
        return numbers(frame[self.name])

    def cells(self, frame: Frame, known: Vector | Texts | None) -> Cells:
        """The column's numbers, from ``known`` where they are."""
        return known if isinstance(known, np.ndarray) else self.read(frame)

    def numbers(self, cells: Cells) -> list[Vector]:
        """The cells standardised; an empty one is the mean."""
        standing = (cells - self.mean) / self.scale
        standing[np.isnan(cells)] = 0.0
        return [standing]

    @property
    def coded(self) -> tuple[tuple[int, int], ...]:
        """Offset and width of the codes among the column's features: the indicator, if any."""
        return ((1, 1),) if self.has_missing else ()

    def codes(self, cells: Cells) -> list[Cells]:
        """Whether cells are empty, where that is a feature."""
        return [np.where(np.isnan(cells), 0, -1)] if self.has_missing else []


@dataclass(frozen=True, slots=True)
class Category:
    """A category, one feature per level; a level never seen in training gives all zeros."""

    kind: ClassVar[Kind] = "category"
    name: str
    levels: tuple[str, ...]
    has_missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features this column becomes."""
        names = [f"{self.name}={level}" for level in self.levels]
        return (*names, f"{self.name} missing") if self.has_missing else tuple(names)

    def read(self, frame: Frame) -> Cells:
        """Return the position of each cell in the block of features, -1 for none of them."""
        kind_of(frame[self.name])  # refuses dates
        return self.place(texts(frame[self.name]))

    def place(self, found: Texts) -> Cells:
        """The same of a column that is read already."""
        position = {text_of(level): code for code, level in enumerate(self.levels)}
        missing = len(self.levels) if self.has_missing else -1
        lookup = [position.get(level, -1) for level in found.levels] + [missing]
        return np.array(lookup, dtype=np.int32)[found.codes]

    def cells(self, frame: Frame, known: Vector | Texts | None) -> Cells:
        """The cells' positions, from ``known`` where it has text."""
        return self.place(known) if isinstance(known, Texts) else self.read(frame)

    def numbers(self, cells: Cells) -> list[Vector]:
        """None."""
        return []

    @property
    def coded(self) -> tuple[tuple[int, int], ...]:
        """Offset and width of the codes among the column's features: all of them."""
        return ((0, len(self.feature_names)),)

    def codes(self, cells: Cells) -> list[Cells]:
        """Each cell's position among the column's features."""
        return [cells]
