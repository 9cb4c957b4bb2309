"""Results on the terminal: tables that fit its width, and summary sentences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from unicodedata import combining

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fcfl.results import ClientResult, Comparison, Disparity, Part, Result
from fcfl.results.findings import exceeded_budgets, findings_of, warnings_of
from fcfl.results.many_runs import judge

from .comparisons import difference_bounds, keeps, seeds_called, spread, whole
from .words import (
    Claim,
    claims_of,
    count_verdicts,
    exchanges_called,
    first_claim,
    number,
    people_sentence,
    plain,
    prices_sentence,
    privacy_sentences,
    served_sentence,
    share,
    short_interval,
    steps_sentence,
    trained_sentence,
    verdict_sentence,
    worst_served_first,
)

if TYPE_CHECKING:  # a report reads results; of a data set it only shows a description
    from fcfl.data.builtin import ClientDescription

MAX_CLIENTS = 40  # rows shown; the rest is in result.json
MAX_PRICES = 2
_COUNTED = {"met": "met", "ex-\nceeded": "exceeded", "undeter-\nmined": "undetermined"}
MIN_NAME = 12  # smallest width of a name while other columns can be omitted
MIN_SHORT_NAME = 5  # smallest width of a name in any case
EXTRA = 9  # rank of columns that are shown only if all columns fit
STYLES = {"met": "green", "exceeded": "bold red", "undetermined": "yellow"}


# --- tables that fit the width --------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """Heading and cells of one column of a table.

    Columns with the largest ``rank`` are omitted first; rank 0 is never omitted. Columns of other
    ranks are also omitted if all their cells are unknown. ``is_name`` allows cells to be shortened.
    Numbers are aligned to the right.
    """

    heading: str
    cells: Sequence[str | Text]
    rank: int = 0
    is_name: bool = False
    is_number: bool = True

    @property
    def width(self) -> int:
        """Width of the column in terminal cells, without shortening names."""
        cells = [self.heading, *map(str, self.cells)]
        return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def fitted_table(title: str, columns: Sequence[Column], width: int, last: int = 0) -> Table:
    """Return a table of at most ``width`` cells.

    Numbers and verdicts are never shortened. If the table is too wide, reduce the space between
    columns from two cells to one, then shorten names to at least `MIN_NAME` cells, then omit
    columns of high rank, then shorten names further. A line separates the ``last`` rows.
    """
    shown, gap = _chosen(columns, width)
    names = sorted(column.width for column in shown if column.is_name)
    left = width - sum(c.width for c in shown if not c.is_name) - gap * (len(shown) - 1)
    most = MIN_SHORT_NAME
    for position, size in enumerate(names):  # longer names use the space that short names leave
        most = max(left // (len(names) - position), MIN_SHORT_NAME)
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
    """Return the columns to show, and the space between them."""
    shown = [column for column in columns if not column.rank or {*column.cells} != {"–"}]
    if sum(column.width for column in shown) + 2 * (len(shown) - 1) > width:
        shown = [column for column in shown if column.rank < EXTRA]
    while True:
        for gap, least in ((2, None), (1, None), (1, MIN_NAME)):
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
    """Shorten names to ``width`` cells with ellipses, keeping different names different.

    1. Replace a part by an ellipsis, in the middle if possible.
    2. If names would coincide, keep only a middle part between two ellipses.
    3. If they still coincide, number them.
    """
    names = [plain(name) for name in names]
    places = sorted(range(width), key=lambda place: abs(place - width // 2))
    starts = range(1, max(map(len, names), default=0)) if width > 2 else ()
    for short in chain(
        ([_shortened(name, width, head) for name in names] for head in places),
        ([_middle(name, width, start) for name in names] for start in starts),
    ):
        if len(set(short)) == len(set(names)):
            return short
    numbers = {name: f"…{number}" for number, name in enumerate(dict.fromkeys(names), 1)}
    return [
        name
        if cell_len(name) <= width
        else _first(name, width - len(numbers[name])) + numbers[name]
        for name in names
    ]


def _shortened(name: str, width: int, head: int) -> str:
    """Keep ``head`` cells of the beginning, and fill the remaining width from the end."""
    if cell_len(name) <= width:
        return name
    end = _first(name[::-1], width - head - 1)[::-1]
    while end and combining(end[0]):  # a combining mark without its letter
        end = end[1:]
    return f"{_first(name, head)}…{end}"


def _middle(name: str, width: int, start: int) -> str:
    """Keep the part from index ``start`` on, between two ellipses."""
    return name if cell_len(name) <= width else f"…{_first(name[start:], width - 2)}…"


def _first(name: str, size: int) -> str:
    """Return the longest beginning that fits, without splitting wide characters."""
    return chop_cells(name[: 4 * size], size)[0] if size > 0 and name else ""


# --- a result -------------------------------------------------------------------------------------


def result_tables(result: Result, width: int = 80) -> Iterator[Table]:
    """Yield a table of at most ``width`` cells for each rule, worst-served client first."""
    part, n_clients, ranked = result.judged_part, len(result.clients), worst_served_first(result)
    clients = ranked[: min(n_clients, MAX_CLIENTS)]
    lines = [*clients, *ranked[n_clients:]]
    every = [*clients[0][1].part(part).disparities, *result.overall.part(part).disparities]
    trained_as = result.method
    if result.chosen_threshold is not None:
        trained_as += f", threshold {result.chosen_threshold:g}"
    for rule in {entry.title: entry for entry in every}.values():
        budgets = [_entry(client.part(part), rule).budget for _, client in lines]
        shared = set(budgets) - {None}
        is_shared = len(shared) == 1 and budgets[0] is not None
        title = f"{trained_as}: {rule.title}" + (f", budget {budgets[0]:g}" if is_shared else "")
        columns = [
            column
            for column in _columns(lines, rule, result)
            if column.heading != "budget" or (shared and not is_shared)
        ]
        yield fitted_table(title, columns, width, last=len(lines) - len(clients))


def _columns(
    lines: Sequence[tuple[str, ClientResult]], rule: Disparity, result: Result
) -> Iterator[Column]:
    """Yield the columns of a result; audits have no columns about training."""
    part, is_audit = result.judged_part, result.method == "audit"
    judged = [client.part(part) for _, client in lines]
    entries = [_entry(one, rule) for one in judged]
    rows = [client.rows.of(part) for _, client in lines]
    value = {"ratio": "ratio", "bound": "value"}.get(rule.rule, "diff.")
    yield Column("client", [name for name, _ in lines], is_name=True)
    yield Column("rows", list(map(str, rows)), rank=6)
    for heading, counts, rank in (
        ("posi-\ntive", [one.positives for one in judged], EXTRA),
        ("se-\nlected", [one.selected for one in judged], 1),
    ):
        yield Column(heading, list(map(share, counts, rows)), rank=rank)
    if not is_audit:
        losses = [number(client.train.loss) for _, client in lines]
        yield Column("train\nloss", losses, rank=5)
    yield Column("accu-\nracy", [number(one.accuracy, 3) for one in judged], rank=3)
    if not is_audit and part == "test":
        trained = [_entry(client.train, rule).trained for _, client in lines]
        yield Column(f"train\n{value}", [number(found, 3) for found in trained], rank=4)
    yield Column(value if is_audit else f"{part}\n{value}", [number(e.value, 3) for e in entries])
    yield Column("interval", [short_interval(entry.interval) for entry in entries], rank=2)
    limits = ["–" if entry.budget is None else f"{entry.budget:.4g}" for entry in entries]
    yield Column("budget", limits)
    yield Column("verdict", [_verdict(entry) for entry in entries], is_number=False)


def _verdict(entry: Disparity) -> Text:
    verdict = Claim("", entry, None, 0).verdict
    is_judged = verdict in STYLES or verdict == "not compared"
    return Text(verdict, STYLES.get(verdict, "")) if is_judged else Text("–")


def _entry(part: Part, rule: Disparity) -> Disparity:
    """Return the disparity of a part by a rule, with empty values if there is none."""
    unknown = Disparity(rule.metric, rule.attribute, rule.rule, None)
    return next((entry for entry in part.disparities if entry.title == rule.title), unknown)


def print_result(console: Console, result: Result) -> None:
    """Print findings, tables, verdicts, and how training ended."""
    for sentence in leading_sentences(result):
        console.print(sentence, markup=False, highlight=False)
    for table in result_tables(result, console.width):
        console.print(table, "")
    if len(result.clients) > MAX_CLIENTS:
        more = len(result.clients) - MAX_CLIENTS
        console.print(f"… and {more} more clients in result.json", highlight=False)
    for sentence in summary_sentences(result):
        console.print(sentence, markup=False, highlight=False)


def leading_sentences(result: Result) -> list[str]:
    """Return the reasons for exit code 3, and warnings."""
    return [
        *(f"Exit code 3: {plain(one.sentence)}" for one in findings_of(result)),
        *(f"Warning: {plain(one.sentence)}" for one in warnings_of(result)),
    ]


def summary_sentences(result: Result) -> list[str]:
    """Return sentences on verdicts, prices, the end of the run, exchanges and privacy."""
    served, first = served_sentence(result), first_claim(result)
    is_met = not exceeded_budgets(result)
    sentences = [f"{served} {trained_sentence(result)}".strip() if is_met else served]
    if first is not None and any(claim.verdict in STYLES for claim in claims_of(result)):
        sentences += [verdict_sentence(result), people_sentence(first)]
    exchanges = exchanges_called(result)
    sentences += [
        steps_sentence(result),
        prices_sentence(result, MAX_PRICES),
        result.message,
        f"Exchanges with all clients: {exchanges}." if exchanges else "",
        *privacy_sentences(result),
    ]
    return [sentence for sentence in sentences if sentence]


# --- several runs ---------------------------------------------------------------------------------


def runs_table(results: Mapping[str, Result], width: int = 80) -> Table:
    """Return a table of several runs, one line for each."""
    runs = [(result.worst_client, judge(result)) for result in results.values()]
    counts = [
        count_verdicts(claim for claim in claims_of(result) if claim.entry.budget is not None)
        for result in results.values()
    ]
    columns = [
        Column("run", list(results), is_name=True),
        Column("worst\nserved", [worst.name or "–" for worst, _ in runs], is_name=True),
        Column("its train\nloss", [number(worst.train_loss) for worst, _ in runs], rank=3),
        Column("se-\nlected", [number(one.selected, 3) for _, one in runs], rank=2),
        Column("lowest\naccuracy", [number(one.lowest_accuracy, 3) for _, one in runs], rank=1),
        Column("largest\ndifference", [number(one.largest, 3) for _, one in runs]),
        *[
            Column(heading, [str(count[verdict]) for count in counts])
            for heading, verdict in _COUNTED.items()
        ],
    ]
    return fitted_table("Runs", columns, width)


def comparison_table(results: Mapping[str, Result], width: int = 80) -> Table:
    """Return a table of several runs on the same rows: accuracy and disparity on test rows."""
    first = next(iter(results.values()))
    clients = worst_served_first(first)[: len(first.clients)]
    tests = {
        label: [result.clients[name].test for name, _ in clients]
        for label, result in results.items()
    }
    rows = [client.rows.test for _, client in clients]
    budgets = [number(client.train.disparities[0].budget, 3) for _, client in clients]
    measured = {
        "selected": lambda test, n_rows: share(test.selected, n_rows),
        "accuracy": lambda test, n_rows: number(test.accuracy),
        "disparity": lambda test, n_rows: number(test.disparities[0].value),
    }
    columns = [
        Column("client", [name for name, _ in clients], is_name=True),
        Column("rows", list(map(str, rows)), rank=1),
        *[
            Column(f"{what}\n{label}", list(map(shown, found, rows)), rank=2 * (what == "selected"))
            for what, shown in measured.items()
            for label, found in tests.items()
        ],
        Column("budget", budgets),
    ]
    return fitted_table("Test rows, hard decisions", columns, width)


def federation_table(name: str, clients: Sequence["ClientDescription"], width: int = 80) -> Table:
    """Return a table of rows and label rates by client and group of a data set."""
    lines = [
        (client if position == 0 else None, group)
        for client in clients[:MAX_CLIENTS]
        for position, group in enumerate(client.groups)
    ]

    def of_client(shown: Callable[["ClientDescription"], str]) -> list[str]:
        return ["" if client is None else shown(client) for client, _ in lines]

    groups = [group for _, group in lines]
    columns = [
        Column("client", of_client(lambda client: client.name), is_name=True),
        Column("train\nrows", of_client(lambda client: str(client.train_rows)), rank=2),
        Column("test\nrows", of_client(lambda client: str(client.test_rows)), rank=3),
        Column("label\nrate", of_client(lambda client: number(client.positive_rate, 3)), rank=1),
        Column("group", [f"{group.attribute} = {group.name}" for group in groups], is_name=True),
        Column("group\nrows", [str(group.rows) for group in groups]),
        Column("group\nlabel rate", [number(group.positive_rate, 3) for group in groups]),
    ]
    return fitted_table(name, columns, width)


def methods_table(comparison: Comparison, width: int = 80) -> Table:
    """Return a table of methods of at most ``width`` cells."""
    methods = comparison.methods
    intervals = [difference_bounds(comparison, one) for one in methods]
    columns = [
        Column("method", [one.method for one in methods], is_number=False),
        Column("lowest\naccu-\nracy", [spread(one.lowest_accuracy) for one in methods]),
        Column("all\nrows\naccu-\nracy", [spread(one.accuracy) for one in methods], rank=1),
        Column("all\nrows\nse-\nlected", [number(one.selected.mean, 3) for one in methods], rank=5),
        Column("differ-\nence,\nall\nrows", [number(one.all_rows.mean, 3) for one in methods]),
        Column("interval", [short_interval(one) for one in intervals], rank=3),
        Column("median\nclient", [number(one.median.mean, 3) for one in methods], rank=4),
        Column("largest\nclient", [number(one.largest.mean, 3) for one in methods], rank=2),
        Column("kept", [keeps(one) for one in methods]),
        Column("ex-\nchanges", [whole(one.exchanges.mean) for one in methods], rank=1),
    ]
    title = f"{comparison.table}: methods on the same rows{seeds_called(comparison)}"
    return fitted_table(title, columns, width)
