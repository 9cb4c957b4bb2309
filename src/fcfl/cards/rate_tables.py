"""Selection rates and impact ratios by group and by combinations of groups; small counts hidden."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fcfl._types import Matrix, Vector
from fcfl.audit.intervals import Interval, ratio_interval
from fcfl.audit.predictions import Cell, CellCounts
from fcfl.errors import FCFLError
from fcfl.results import Result

SMALL_SHARE = 0.02  # of all rows: below it a category may be left out of impact ratios
FOUR_FIFTHS = 0.8  # the customary flag of the US agency EEOC
ALPHA = 0.05
ROUNDING = 1e-8  # of a linear combination of counts


@dataclass(frozen=True)
class RateLine:
    """One category; a count that is hidden is None, and so is what would follow from it.

    ``impact_ratio`` is the rate divided by the highest of the table, with its interval.
    """

    groups: tuple[str, ...]
    rows: int | None
    selected: int | None
    rate: float | None
    impact_ratio: float | None = None
    interval: Interval | None = None

    @property
    def name(self) -> str:
        """The category in words."""
        return ", ".join(self.groups)


@dataclass(frozen=True)
class RateTable:
    """Categories of one attribute, or of several together.

    ``small`` are those under two per cent of all rows, which have no impact ratio; ``unknown`` the
    rows of no category. With ``best_is_hidden`` impact ratios are relative to the highest rate
    that is shown.
    """

    attributes: tuple[str, ...]
    lines: tuple[RateLine, ...]
    small: tuple[RateLine, ...]
    unknown: int | None
    best_is_hidden: bool = False


@dataclass(frozen=True)
class RateTables:
    """The tables, and the number of all rows, None where it must be hidden."""

    tables: tuple[RateTable, ...]
    total: int | None
    has_intersections: bool


def tables_of_result(result: Result, least: int = 0) -> RateTables:
    """Return a table for each attribute over all clients' rows, without combinations.

    Each table is a system of its own. They share the number of all rows, which is hidden in both
    or in none: only where it is small itself.
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
        found[entry.attribute] = rate_tables(CellCounts((entry.attribute,), tuple(cells)), least)
    if not found:
        raise FCFLError(
            "The result has no selection rates: it compares rates among rows of one label only. "
            "Audit the predictions with `--metric demographic_parity`."
        )
    tables = tuple(table for one in found.values() for table in one.tables)
    return RateTables(tables, next(iter(found.values())).total, has_intersections=False)


_Groups: TypeAlias = tuple[str | None, ...]
_Which: TypeAlias = tuple[int, ...]  # positions of attributes


def rate_tables(counts: CellCounts, least: int = 0) -> RateTables:
    """Return a table for each attribute and for all together; counts under ``least`` are hidden.

    Hidden are also counts from which, with everything else that is shown, a small one would follow:
    selected, not selected, or in no category.
    """
    n = len(counts.attributes)
    which: list[_Which] = [(i,) for i in range(n)] + ([tuple(range(n))] if n > 1 else [])
    atoms: dict[tuple[_Groups, bool], int] = {}  # rows by combination of groups, selected or not
    for cell in counts.cells:
        for is_selected, rows in ((True, cell.selected), (False, cell.rows - cell.selected)):
            key = (cell.groups, is_selected)
            atoms[key] = atoms.get(key, 0) + rows
    order = {atom: i for i, atom in enumerate(atoms)}

    def added(name: Hashable, parts: Sequence[tuple[_Groups, bool]]) -> Sum:
        value = sum(atoms[part] for part in parts)
        return Sum(name, tuple(sorted(order[part] for part in parts)), value, name == "total")

    sums, complements = [added("total", [*atoms])], []
    for positions in which:
        for groups in _categories(counts, positions):
            inside = [atom for atom in atoms if _within(atom[0], positions) == groups]
            sums.append(added((positions, groups, "rows"), inside))
            sums.append(added((positions, groups, "selected"), [a for a in inside if a[1]]))
            complements.append(added((positions, groups), [a for a in inside if not a[1]]))
        outside = [atom for atom in atoms if None in _within(atom[0], positions)]
        sums.append(added((positions, "unknown"), outside))
    hidden = hidden_sums(sums, least, also_secret=complements) if least > 1 else set()
    values = {one.name: None if one.name in hidden else one.value for one in sums}
    everybody = {one.name: one.value for one in sums}
    tables = tuple(_table(counts, positions, values, everybody) for positions in which)
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
    everybody: Mapping[Hashable, int],
) -> RateTable:
    lines: list[RateLine] = []
    small: list[RateLine] = []
    best_rate = 0.0  # hidden or not
    for groups in _categories(counts, positions):
        of_rows, of_selected = (positions, groups, "rows"), (positions, groups, "selected")
        rows, selected = values[of_rows], values[of_selected]
        rate = None if rows is None or selected is None or not rows else selected / rows
        line = RateLine(groups, rows, selected, rate)
        if everybody[of_rows] < SMALL_SHARE * everybody["total"]:
            small.append(line)
        else:
            lines.append(line)
            best_rate = max(best_rate, everybody[of_selected] / max(everybody[of_rows], 1))
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
    """Return the line with its impact ratio, which does not exist if nobody is selected."""
    if line.rate is None or best is None or not best.rate:
        return line
    counts = line.selected or 0, line.rows or 0, best.selected or 0, best.rows or 0
    found = None if line is best else ratio_interval(*counts, ALPHA)
    return replace(line, impact_ratio=line.rate / best.rate, interval=found)


# --- suppression ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """A count, as the sum of atoms: disjoint sets of people.

    A total is hidden only if no other count can be hidden instead.
    """

    name: Hashable
    atoms: tuple[int, ...]
    value: int
    is_total: bool = False

    def is_small(self, least: int) -> bool:
        """Return whether the count must be hidden; 0 need not be."""
        return 0 < self.value < least


def hidden_sums(
    sums: Sequence[Sum], least: int, *, also_secret: Sequence[Sum] = ()
) -> set[Hashable]:
    """Return the sums to hide: small ones, and others until none follows from the rest.

    A small sum follows from those shown if it is a linear combination of them. While one does, the
    smallest shown sum of that combination is hidden too. ``also_secret`` are counts that are not
    shown, and must not follow either.
    """
    n_atoms = 1 + max((atom for one in (*sums, *also_secret) for atom in one.atoms), default=0)
    shown = [one for one in sums if not one.is_small(least)]
    secrets = {one.atoms for one in (*sums, *also_secret) if one.is_small(least)}
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
    """Return the rows of which a linear combination is one of the secrets, if any is."""
    if not len(shown):
        return None
    inverse = np.linalg.pinv(shown.T)
    for secret in secrets:
        weights = inverse @ secret
        if np.abs(shown.T @ weights - secret).max() < ROUNDING:
            return np.flatnonzero(np.abs(weights) > ROUNDING).tolist()
    return None
