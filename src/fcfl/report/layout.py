"""Tables of names and numbers that fit the width of a terminal without breaking either."""

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import combining

from rich import box
from rich.cells import cell_len, chop_cells
from rich.table import Table
from rich.text import Text

from .words import plain

LEAST_NAME = 12  # cells that a name keeps while there is another column to leave out
FEWEST = 5  # cells that a name keeps in any case
EXTRA = 9  # rank of a column that is shown only where there is space for everything


@dataclass(frozen=True)
class Column:
    """A heading, whose lines are as short as its cells, and a cell for each line of the table.

    Of two columns the one with the larger ``rank`` is left out first; rank 0 is never left out. A
    column of another rank is not shown either if nothing in it is known. Numbers stand to the
    right. ``is_name`` marks a column whose cells may be shortened.
    """

    heading: str
    cells: Sequence[str | Text]
    rank: int = 0
    is_name: bool = False
    is_number: bool = True

    @property
    def width(self) -> int:
        """Cells that the column takes, shortened names aside."""
        cells = [self.heading, *map(str, self.cells)]
        return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def fitted_table(title: str, columns: Sequence[Column], width: int, last: int = 0) -> Table:
    """Return a table of at most ``width`` cells.

    Numbers and verdicts are always whole. Where names do not fit beside them, the space between
    columns is one cell instead of two; then columns of high rank are left out until a name has
    `LEAST_NAME` cells; then names are shortened. The ``last`` lines stand apart.
    """
    shown, gap = _chosen(columns, width)
    names = sorted(column.width for column in shown if column.is_name)
    left = width - sum(c.width for c in shown if not c.is_name) - gap * (len(shown) - 1)
    most = FEWEST
    for position, size in enumerate(names):  # what short names leave is for the longer ones
        most = max(left // (len(names) - position), FEWEST)
        left -= min(size, most)
    table = Table(
        title=Text(plain(title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,  # one cell between columns
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
    )
    cells: list[list[str | Text]] = []
    for column in shown:
        size = column.width
        if column.is_name:
            size = min(size, most)
            cells.append([Text(name) for name in short_names(list(map(str, column.cells)), size)])
        else:
            cells.append(list(column.cells))
        table.add_column(
            column.heading,
            justify="right" if column.is_number and not column.is_name else "left",
            no_wrap=True,
            min_width=size,
            vertical="bottom",
        )
    rows = list(zip(*cells, strict=True))
    for index, row in enumerate(rows):
        table.add_row(*row, end_section=index == len(rows) - 1 - last)
    return table


def _chosen(columns: Sequence[Column], width: int) -> tuple[list[Column], int]:
    """Return the columns that are shown, and the space between them."""
    shown = [column for column in columns if not column.rank or {*column.cells} != {"–"}]
    if sum(column.width for column in shown) + 2 * (len(shown) - 1) > width:
        shown = [column for column in shown if column.rank < EXTRA]
    while True:
        for gap, least in ((2, None), (1, None), (1, LEAST_NAME)):
            taken = sum(_least_width(column, least) for column in shown) + gap * (len(shown) - 1)
            if taken <= width:
                return shown, gap
        highest = max(shown, key=lambda column: column.rank)
        if highest.rank == 0:
            return shown, 1
        shown.remove(highest)


def _least_width(column: Column, least: int | None) -> int:
    return min(column.width, least) if column.is_name and least is not None else column.width


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Shorten names to ``width`` cells by ellipses, different names differently.

    An ellipsis stands where it keeps the most names apart, first in the middle; else only a middle
    part is kept. Names that are still the same are numbered.
    """
    names = [plain(name) for name in names]
    places = sorted(range(width), key=lambda head: abs(head - width // 2))
    starts = range(1, max(map(len, names), default=0)) if width > 2 else ()
    for short in (
        *([_shortened(name, width, head) for name in names] for head in places),
        *([_middle(name, width, start) for name in names] for start in starts),
    ):
        if len(set(short)) == len(set(names)):
            return short
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names), 1)}
    return [
        name if cell_len(name) <= width else _numbered(name, numbers[name], width)
        for name in names
    ]  # fmt: skip


def _shortened(name: str, width: int, head: int) -> str:
    """Keep ``head`` cells of the beginning and as many of the end as there is space for."""
    if cell_len(name) <= width:
        return name
    end = _first(name[::-1], width - head - 1)[::-1]
    while end and combining(end[0]):  # a mark whose letter is cut off
        end = end[1:]
    return f"{_first(name, head)}…{end}"


def _middle(name: str, width: int, start: int) -> str:
    """Keep what follows ``start``, between two ellipses."""
    if cell_len(name) <= width:
        return name
    return f"…{_first(name[start:], width - 2)}…"


def _numbered(name: str, number: int, width: int) -> str:
    return f"{_first(name, width - 1 - len(str(number)))}…{number}"


def _first(name: str, size: int) -> str:
    """Return as much of the beginning as fits; no wide character is cut in two."""
    return chop_cells(name[: 4 * size], size)[0] if size > 0 and name else ""
