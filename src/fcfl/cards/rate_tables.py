"""Selection rates and impact ratios by group, and by combinations of groups."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from fcfl.audit.intervals import ratio_interval
from fcfl.audit.predictions import Cell, CellCounts
from fcfl.cards.suppression import Sum, hidden_sums
from fcfl.errors import FCFLError
from fcfl.results import Result

SMALL_SHARE = 0.02  # of all rows: below it a category may be left out of impact ratios
ALPHA = 0.05


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
    low: float | None = None
    high: float | None = None

    @property
    def name(self) -> str:
        """The category in words."""
        return ", ".join(self.groups)


@dataclass(frozen=True)
class RateTable:
    """Categories of one attribute, or of several together.

    ``small`` are those under two per cent of all rows, which have no impact ratio; ``unknown`` the
    rows of no category. ``best_is_hidden`` says that impact ratios are relative to the highest
    rate that is shown.
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
    """A table for each attribute over all clients' rows; a run has counted no combinations.

    Each table is a system of its own. They share the number of all rows, which is hidden in both
    or in none: only where it is small itself.
    """
    part = result.judged_part
    total = sum(client.rows.of(part) for client in result.clients.values())
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


def rate_tables(counts: CellCounts, least: int = 0) -> RateTables:
    """A table for each attribute and for all of them together; counts under ``least`` are hidden.

    Hidden are also counts from which, with everything else that is shown, a small one would follow:
    selected, not selected, or in no category.
    """
    n = len(counts.attributes)
    which = [(i,) for i in range(n)] + ([tuple(range(n))] if n > 1 else [])
    atoms = _atoms(counts)
    whole = [*atoms]
    sums = [_sum("total", whole, atoms, is_total=True)]
    complements = []
    for positions in which:
        for groups in _categories(counts, positions):
            name = (positions, groups)
            inside = [a for a in whole if _within(a[0], positions) == groups]
            sums.append(_sum((*name, "rows"), inside, atoms))
            sums.append(_sum((*name, "selected"), [a for a in inside if a[1]], atoms))
            complements.append(_sum(name, [a for a in inside if not a[1]], atoms))
        outside = [a for a in whole if None in _within(a[0], positions)]
        sums.append(_sum((positions, "unknown"), outside, atoms))
    hidden = hidden_sums(sums, least, also_secret=complements) if least > 1 else set()
    values = {one.name: None if one.name in hidden else one.value for one in sums}
    everybody = {one.name: one.value for one in sums}
    total = everybody["total"]
    tables = tuple(_table(counts, positions, values, everybody, total) for positions in which)
    return RateTables(tables, values["total"], n > 1)


_Atom = tuple[tuple[str | None, ...], bool]
_Values = dict[Hashable, int | None]


def _atoms(counts: CellCounts) -> dict[_Atom, int]:
    """Rows by combination of groups, selected and not."""
    atoms: dict[_Atom, int] = {}
    for cell in counts.cells:
        for is_selected, rows in ((True, cell.selected), (False, cell.rows - cell.selected)):
            key = (cell.groups, is_selected)
            atoms[key] = atoms.get(key, 0) + rows
    return atoms


def _sum(
    name: Hashable, parts: Sequence[_Atom], atoms: dict[_Atom, int], *, is_total: bool = False
) -> Sum:
    position = {atom: i for i, atom in enumerate(atoms)}
    value = sum(atoms[part] for part in parts)
    return Sum(name, tuple(sorted(position[part] for part in parts)), value, is_total)


def _within(groups: tuple[str | None, ...], positions: tuple[int, ...]) -> tuple[str | None, ...]:
    return tuple(groups[i] for i in positions)


def _categories(counts: CellCounts, positions: tuple[int, ...]) -> list[tuple[str, ...]]:
    found = dict.fromkeys(_within(cell.groups, positions) for cell in counts.cells)
    known = [groups for groups in found if None not in groups]
    return sorted(known)  # type: ignore[arg-type]


def _table(
    counts: CellCounts,
    positions: tuple[int, ...],
    values: _Values,
    everybody: dict[Hashable, int],
    total: int,
) -> RateTable:
    lines: list[RateLine] = []
    small: list[RateLine] = []
    for groups in _categories(counts, positions):
        rows, selected = (
            values[(positions, groups, "rows")],
            values[(positions, groups, "selected")],
        )
        rate = None if rows is None or selected is None or not rows else selected / rows
        line = RateLine(groups, rows, selected, rate)
        is_small = everybody[(positions, groups, "rows")] < SMALL_SHARE * total
        (small if is_small else lines).append(line)
    best_rate = max(
        (
            everybody[(positions, line.groups, "selected")]
            / everybody[(positions, line.groups, "rows")]
            for line in lines
            if everybody[(positions, line.groups, "rows")]
        ),
        default=0.0,
    )
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
    """The line with its impact ratio; where nobody is selected at all there is none."""
    if line.rate is None or best is None or not best.rate:
        return line
    found = ratio_interval(
        line.selected or 0, line.rows or 0, best.selected or 0, best.rows or 0, ALPHA
    )
    low, high = found if found and line is not best else (None, None)
    return replace(line, impact_ratio=line.rate / best.rate, low=low, high=high)
