"""What a client says about its columns so that all clients can encode them alike."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, TypeAlias

import numpy as np

from fcfl._checks import is_count, is_finite
from fcfl._types import Vector
from fcfl.errors import DataError

from ._cells import Frame, Kind, Texts, cells_of, check_columns, named_columns


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """Count, mean and sum of squared deviations ``m2`` of the cells that hold a number."""

    kind: ClassVar[Kind] = "number"
    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    missing: int = 0

    def is_valid(self) -> bool:
        """Whether some cells could have this summary."""
        counts = is_count(self.n) and is_count(self.missing)
        return counts and is_finite(self.mean) and is_finite(self.m2) and self.m2 >= 0


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """How often each level occurs."""

    kind: ClassVar[Kind] = "category"
    counts: Mapping[str, int]
    missing: int = 0

    @property
    def n(self) -> int:
        """Cells that hold a level."""
        return sum(self.counts.values())

    def is_valid(self) -> bool:
        """Whether some cells could have this summary."""
        texts = all(isinstance(level, str) for level in self.counts)
        return texts and all(map(is_count, (*self.counts.values(), self.missing)))


Summary: TypeAlias = NumberSummary | CategorySummary


@dataclass(frozen=True, slots=True)
class Statistics:
    """One client's summary of each column, in the order of its table."""

    columns: Mapping[str, Summary]


def summarise(frame: Frame, columns: Sequence[str]) -> Statistics:
    """Summarise the named columns of one client's rows."""
    frame = named_columns(frame)
    check_columns(frame, columns)
    return Statistics({name: summarise_cells(name, cells_of(frame[name])) for name in columns})


def withhold(statistics: Statistics, least: int) -> Statistics:
    """The same without what fewer than ``least`` rows stand behind.

    Levels that are rarer are not named, a number known in fewer rows counts as unknown in all, and
    fewer empty cells count as none.
    """
    return Statistics({name: _withhold(part, least) for name, part in statistics.columns.items()})


def _withhold(summary: Summary, least: int) -> Summary:
    missing = summary.missing if summary.missing >= least else 0
    if isinstance(summary, CategorySummary):
        counts = {level: count for level, count in summary.counts.items() if count >= least}
        return CategorySummary(counts, missing)
    return replace(summary if summary.n >= least else NumberSummary(), missing=missing)


def merge_numbers(parts: Iterable[NumberSummary]) -> NumberSummary:
    """Summary of the pooled cells, by the pairwise update of Chan, Golub and LeVeque."""
    return reduce(_merge_two, parts, NumberSummary())


def merge_categories(parts: Iterable[CategorySummary]) -> CategorySummary:
    """Summary of the pooled cells, levels sorted."""
    counts: Counter[str] = Counter()
    missing = 0
    for part in parts:
        counts.update(part.counts)
        missing += part.missing
    return CategorySummary(dict(sorted(counts.items())), missing)


def _merge_two(a: NumberSummary, b: NumberSummary) -> NumberSummary:
    missing = a.missing + b.missing
    if a.n == 0 or b.n == 0:
        full = b if a.n == 0 else a
        return NumberSummary(full.n, full.mean, full.m2, missing)
    n = a.n + b.n
    shift = b.mean - a.mean
    m2 = a.m2 + b.m2 + shift * shift * (a.n * b.n / n)
    return NumberSummary(n, a.mean + shift * (b.n / n), m2, missing)


def summarise_cells(name: str, cells: Vector | Texts) -> Summary:
    """Summarise one column's cells."""
    if not isinstance(cells, Texts):
        return _number_summary(cells, name)
    missing = int((cells.codes < 0).sum())
    counts = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.levels))
    found = zip(cells.levels, counts.tolist(), strict=True)
    return CategorySummary({level: count for level, count in found if count}, missing)


def _number_summary(values: Vector, name: str) -> NumberSummary:
    known = values[~np.isnan(values)]
    missing = values.size - known.size
    if not known.size:
        return NumberSummary(missing=missing)
    with np.errstate(over="ignore", invalid="ignore"):
        # Taken from the first value, so that a constant column has m2 exactly 0.
        shifted = known - known[0]
        centre = shifted.mean()
        m2 = float(np.square(shifted - centre).sum())
    if not np.isfinite(m2):
        raise DataError(f"Column {name!r} has values too large to standardise. Rescale or drop it.")
    return NumberSummary(known.size, float(known[0] + centre), m2, missing)
