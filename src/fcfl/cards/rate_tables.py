"""Selection rates and impact ratios of groups and their combinations, with suppression."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fcfl._types import Matrix, Vector
from fcfl.audit.intervals import Interval, ratio_interval
from fcfl.audit.predictions import Cell, CellCounts
from fcfl.errors import FCFLError
from fcfl.results import Result

SMALL_SHARE = 0.02  # smallest share of all rows for which a category has an impact ratio
FOUR_FIFTHS = 0.8  # impact ratio below which the four-fifths rule of the EEOC (US) flags a category
ALPHA = 0.05
ROUNDING = 1e-8  # tolerance of linear combinations of counts


@dataclass(frozen=True)
class RateLine:
    """One category; hidden counts are None, and so are values computed from them.

    ``impact_ratio`` is the rate divided by the highest rate in the table, with its interval.
    """

    groups: tuple[str, ...]
    rows: int | None
    selected: int | None
    rate: float | None
    impact_ratio: float | None = None
    interval: Interval | None = None

    @property
    def name(self) -> str:
        """The groups of the category, separated by commas."""
        return ", ".join(self.groups)


@dataclass(frozen=True)
class RateTable:
    """Categories of one attribute or of combined attributes.

    ``small`` are the categories with fewer than two per cent of all rows, which have no impact
    ratio. ``unknown`` is the number of rows in no category. If ``best_is_hidden``, impact ratios
    are relative to the highest rate that is shown.
    """

    attributes: tuple[str, ...]
    lines: tuple[RateLine, ...]
    small: tuple[RateLine, ...]
    unknown: int | None
    best_is_hidden: bool = False


@dataclass(frozen=True)
class RateTables:
    """All tables, and the total number of rows, None if it is hidden."""

    tables: tuple[RateTable, ...]
    total: int | None
    has_intersections: bool


def tables_of_result(result: Result, min_cell: int = 0) -> RateTables:
    """Return a table for each attribute over the rows of all clients, without combinations.

    Counts are hidden in each table separately. The tables share only the total number of rows,
    which is hidden if it is itself small, and then in every table.
    """
    part = result.judged_part
    total = result.overall.rows.of(part)
    found: dict[str, RateTables] = {}
    for entry in result.overall.part(part).disparities:
        groups = [group for group in entry.groups if group.rate == "selection"]
        if entry.attribute in found or not groups:
            continue
        cells = [Cell("", (group.group,), group.rows, group.selected) for group in groups]
        unknown = total - sum(cell.rows for cell in cells)
        if unknown:
            cells.append(Cell("", (None,), unknown, 0))
        found[entry.attribute] = rate_tables(CellCounts((entry.attribute,), tuple(cells)), min_cell)
    if not found:
        raise FCFLError(
            "The result has no selection rates, only rates among rows with one label. "
            "Audit the predictions with `--metric demographic_parity`."
        )
    tables = tuple(table for one in found.values() for table in one.tables)
    return RateTables(tables, next(iter(found.values())).total, has_intersections=False)


_Groups: TypeAlias = tuple[str | None, ...]
_Which: TypeAlias = tuple[int, ...]  # indices of attributes


def rate_tables(counts: CellCounts, min_cell: int = 0) -> RateTables:
    """Return a table for each attribute and for their combination, hiding small counts.

    Counts from 1 to ``min_cell - 1`` are hidden. Other counts are hidden as necessary so that no
    small count of rows (selected, not selected or in no category) follows from those shown.
    """
    n = len(counts.attributes)
    which: list[_Which] = [(i,) for i in range(n)] + ([tuple(range(n))] if n > 1 else [])
    atoms: dict[tuple[_Groups, bool], int] = {}  # rows by combination of groups and decision
    for cell in counts.cells:
        for is_selected, rows in ((True, cell.selected), (False, cell.rows - cell.selected)):
            key = (cell.groups, is_selected)
            atoms[key] = atoms.get(key, 0) + rows
    order = {atom: i for i, atom in enumerate(atoms)}

    def summed(name: Hashable, parts: Sequence[tuple[_Groups, bool]]) -> Sum:
        value = sum(atoms[part] for part in parts)
        return Sum(name, tuple(sorted(order[part] for part in parts)), value, name == "total")

    sums, complements = [summed("total", [*atoms])], []
    for positions in which:
        for groups in _categories(counts, positions):
            inside = [atom for atom in atoms if _within(atom[0], positions) == groups]
            sums.append(summed((positions, groups, "rows"), inside))
            sums.append(summed((positions, groups, "selected"), [a for a in inside if a[1]]))
            complements.append(summed((positions, groups), [a for a in inside if not a[1]]))
        outside = [atom for atom in atoms if None in _within(atom[0], positions)]
        sums.append(summed((positions, "unknown"), outside))
    hidden = hidden_sums(sums, min_cell, also_secret=complements) if min_cell > 1 else set()
    values = {one.name: None if one.name in hidden else one.value for one in sums}
    exact = {one.name: one.value for one in sums}
    tables = tuple(_table(counts, positions, values, exact) for positions in which)
    return RateTables(tables, values["total"], n > 1)


def _within(groups: _Groups, positions: _Which) -> _Groups:
    return tuple(groups[i] for i in positions)


def _categories(counts: CellCounts, positions: _Which) -> list[tuple[str, ...]]:
    found = dict.fromkeys(_within(cell.groups, positions) for cell in counts.cells)
    known = [groups for groups in found if None not in groups]
    return sorted(known)  # type: ignore[arg-type]


def _table(
    counts: CellCounts,
    positions: _Which,
    values: Mapping[Hashable, int | None],
    exact: Mapping[Hashable, int],
) -> RateTable:
    lines: list[RateLine] = []
    small: list[RateLine] = []
    best_rate = 0.0  # including hidden rates
    for groups in _categories(counts, positions):
        of_rows, of_selected = (positions, groups, "rows"), (positions, groups, "selected")
        rows, selected = values[of_rows], values[of_selected]
        rate = None if rows is None or selected is None or not rows else selected / rows
        line = RateLine(groups, rows, selected, rate)
        if exact[of_rows] < SMALL_SHARE * exact["total"]:
            small.append(line)
        else:
            lines.append(line)
            best_rate = max(best_rate, exact[of_selected] / max(exact[of_rows], 1))
    shown = [line for line in lines if line.rate is not None]
    best = max(shown, key=lambda line: line.rate or 0.0, default=None)
    return RateTable(
        tuple(counts.attributes[i] for i in positions),
        tuple(_with_ratio(line, best) for line in lines),
        tuple(small),
        values[(positions, "unknown")],
        best is not None and (best.rate or 0.0) < best_rate,
    )


def _with_ratio(line: RateLine, best: RateLine | None) -> RateLine:
    """Add the impact ratio, which is undefined if the best category has no selected rows."""
    if line.rate is None or best is None or not best.rate:
        return line
    counts = line.selected or 0, line.rows or 0, best.selected or 0, best.rows or 0
    found = None if line is best else ratio_interval(*counts, ALPHA)
    return replace(line, impact_ratio=line.rate / best.rate, interval=found)


# --- suppression ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """A count, expressed as the sum of atoms: disjoint sets of people.

    If ``is_total``, the count is hidden only if no other count can be hidden instead.
    """

    name: Hashable
    atoms: tuple[int, ...]
    value: int
    is_total: bool = False

    def is_small(self, min_cell: int) -> bool:
        """Return whether the count must be hidden; 0 is not hidden."""
        return 0 < self.value < min_cell


def hidden_sums(
    sums: Sequence[Sum], min_cell: int, *, also_secret: Sequence[Sum] = ()
) -> set[Hashable]:
    """Return the names of sums to hide, so that no small sum follows from those shown.

    A small sum follows if it is a linear combination of shown sums. While this is the case, the
    smallest shown sum of the combination is hidden too. ``also_secret`` are counts that are never
    shown; small ones must not follow either.
    """
    n_atoms = 1 + max((atom for one in (*sums, *also_secret) for atom in one.atoms), default=0)
    shown = [one for one in sums if not one.is_small(min_cell)]
    secrets = {one.atoms for one in (*sums, *also_secret) if one.is_small(min_cell)}
    while True:
        matrix = np.array([_vector(one.atoms, n_atoms) for one in shown]).reshape(-1, n_atoms)
        used = _first_combination(matrix, [_vector(atoms, n_atoms) for atoms in sorted(secrets)])
        if used is None:
            break
        del shown[min(used, key=lambda i: (shown[i].is_total, shown[i].value))]
    return {one.name for one in sums} - {one.name for one in shown}


def _vector(atoms: tuple[int, ...], size: int) -> Vector:
    vector = np.zeros(size)
    vector[list(atoms)] = 1.0
    return vector


def _first_combination(shown: Matrix, secrets: Sequence[Vector]) -> list[int] | None:
    """Return indices of shown sums whose linear combination is a secret, None if there are none."""
    if not len(shown):
        return None
    inverse = np.linalg.pinv(shown.T)
    for secret in secrets:
        weights = inverse @ secret
        if np.abs(shown.T @ weights - secret).max() < ROUNDING:
            return np.flatnonzero(np.abs(weights) > ROUNDING).tolist()
    return None
