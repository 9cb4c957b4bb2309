"""Items on the screen and as a Markdown page: everything is read from their result files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich import box
from rich.table import Table
from rich.text import Text

from fcfl.report.words import plain

from .readings import readings
from .records import CaseResult, ItemResult
from .tables import BESIDE, TextTable, failures_of, glance, tables_of

INSTALL = "pip install matplotlib"


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure to be drawn: of a whole item, or of one of its cases."""

    item: ItemResult
    case: CaseResult | None
    protocol: str
    file_name: str
    title: str
    description: str


def plots_of(item: ItemResult) -> list[Plot]:
    """Return the figures of an item, in order; none where no run finished."""
    if not item.finished_rows:
        return []
    return list(_of_cases(item) if item.figure in ("dots", "clients") else _of_item(item))


def _of_cases(item: ItemResult) -> Iterator[Plot]:
    """Yield one figure per case: methods as rows of dots, or clients as points."""
    protocols = list(item.protocols)
    protocol = protocols[-1] if item.figure == "dots" else protocols[0]
    for position, case in enumerate(item.cases, start=1):
        rows = item.rows_of(case.name, protocol)
        if not rows:
            continue
        if item.figure == "dots":
            runs = _count_runs(protocol, max(row.n_runs for row in rows))
            title = f"{item.title}, {case.name}: {runs}"
            budget = "; the dashed line is the budget" if isinstance(case.budget, float) else ""
            text = f"{title}; marks are means, bars one standard deviation over splits{budget}."
        else:
            title = f"{item.title}, {case.name}: each client's accuracy and disparity"
            text = f"{title}, held-out rows, means over splits."
        yield Plot(item, case, protocol, f"{item.name}-{position}.svg", title, text)


def _count_runs(protocol: str, count: int) -> str:
    word = {"resplits": "random re-split", "original": "seed"}.get(protocol, "random split")
    return f"{count} {word}{'' if count == 1 else 's'}"


def _of_item(item: ItemResult) -> Iterator[Plot]:
    """Yield one figure for all cases together."""
    if item.figure == "series":
        title = f"{item.title}: test disparity and accuracy as budgets tighten"
        text = f"{title}, means over seeds."
    elif item.figure == "front":
        title = "Synthetic problem: paths to the constrained optimum"
        text = (
            f"{title}; one colour per budget, solid lines: two-stage, squares: every round of sqp, "
            "grey: Pareto front."
        )
    else:
        title = f"{item.title}: accuracy against the largest local disparity"
        text = f"{title}; clients with 100 held-out rows of each group; dashed: the target."
    yield Plot(item, None, next(iter(item.protocols)), f"{item.name}.svg", title, text)


PAGE = "reproduction.md"
_UNBRACKETED = str.maketrans("", "", "()")
_QUICK = (
    "A quick trial: one seed, few rounds, settings not tuned. It only shows that the item runs; "
    "its numbers mean nothing."
)
_SOURCES = {
    "demo": " Here: the open eICU demo, regions as clients, APACHE day-one features.",
    "simulated": " Here: simulated tables in the schema of eICU, no patient behind any row.",
    "own": " Here: the folder of eICU tables that was given, hospitals as clients.",
}


def screen_of(item: ItemResult) -> Iterator[Table | str]:
    """Yield tables and readings, for a terminal."""
    yield f"{item.name}: {item.title} ({item.of})"
    for found in tables_of(item):
        yield _grid(found)
    yield from _sentences(item)


def _grid(found: TextTable) -> Table:
    table = Table(
        title=Text(plain(found.caption)), title_justify="left", box=box.SIMPLE_HEAD,
        show_edge=False, pad_edge=False, collapse_padding=True, padding=(0, 1),
    )  # fmt: skip
    table.add_column(found.headings[0], vertical="bottom", overflow="fold")
    for heading in found.headings[1:]:
        stacked = heading.replace(BESIDE, " ").replace(" ", "\n").translate(_UNBRACKETED)
        table.add_column(stacked, justify="right", vertical="bottom", overflow="fold")
    for row in found.rows:
        cells = (cell.replace(" ± ", "±").replace(BESIDE, "\n") for cell in row[1:])
        table.add_row(Text(plain(row[0].replace("*", ""))), *cells)
    return table


def _sentences(item: ItemResult) -> list[str]:
    return [*([_QUICK] if item.scale.quick else []), *readings(item), *failures_of(item)]


def write_reproduction(items: Sequence[ItemResult], folder: Path) -> Path:
    """Write the page and, where matplotlib is installed, a folder of figures beside it."""
    has_figures = can_draw()
    folder.mkdir(parents=True, exist_ok=True)
    if has_figures:
        from .figures import write_figures

        write_figures([plot for item in items for plot in plots_of(item)], folder / "reproduction")
    path = folder / PAGE
    path.write_text(page_text(items, has_figures=has_figures), encoding="utf-8")
    return path


def page_text(items: Sequence[ItemResult], *, has_figures: bool = True) -> str:
    """Return the page in Markdown."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["first_upper"] = lambda text: f"{text[0].upper()}{text[1:]}"
    text = environment.get_template("page.md.jinja").render(
        items=items, glances=glance(items), sources=_sources, sentences=_sentences,
        tables=tables_of, plots=lambda item: plots_of(item) if has_figures else [],
    )  # fmt: skip
    return text.rstrip("\n") + "\n"


def _sources(item: ItemResult) -> str:
    """Describe the rows that were used instead of data that cannot be shared."""
    used = {table.split(":")[1] for table in item.tables if table.startswith("eicu:")}
    return "".join(_SOURCES[source] for source in sorted(used))
