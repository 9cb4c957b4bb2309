"""Methods side by side: one line for each, over all its seeds."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from fcfl.results import Comparison, MethodRun, MethodSummary, OverSeeds

from .words import number, plain

MOST_CLIENTS = 12  # with columns of their own; all are in comparison.json
_HEADINGS = (
    "worst\nclient\naccu-\nracy", "all\nrows\naccu-\nracy", "largest\ndiffer-\nence",
    "its\ninterval", "met/ex-\nceeded/\nundet.", "rounds", "MB\nsent", "sec-\nonds",
)  # fmt: skip
_VERDICTS = ("met", "exceeded", "undetermined")


@dataclass(frozen=True)
class MethodLine:
    """What table and page say of a method, as text; of each client accuracy and disparity."""

    method: str
    what: str
    failed: int
    worst_accuracy: str
    accuracy: str
    worst_train_loss: str
    largest: str
    interval: str
    verdicts: tuple[str, ...]
    rounds: str
    megabytes: str
    seconds: str
    clients: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class MethodsView:
    """What the page says of the methods; of runs that are just put side by side, nothing."""

    title: str = ""
    lines: tuple[MethodLine, ...] = ()
    seeds: str = ""
    clients: tuple[str, ...] = ()


def methods_table(comparison: Comparison) -> Table:
    """A comparison on the screen."""
    title = f"{comparison.table}: methods on the same rows{_seeds(comparison)}"
    table = Table(
        title=Text(plain(title)), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False,
        pad_edge=False, collapse_padding=True, padding=(0, 1),
    )  # fmt: skip
    table.add_column("method", no_wrap=True, vertical="bottom")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", overflow="fold", vertical="bottom")
    for line in method_lines(comparison):
        table.add_row(
            line.method, line.worst_accuracy, line.accuracy, line.largest, line.interval,
            "/".join(line.verdicts), line.rounds, line.megabytes, line.seconds,
        )  # fmt: skip
    return table


def methods_view(comparison: Comparison | None) -> MethodsView:
    """What the page says of the methods."""
    if comparison is None:
        return MethodsView()
    lines = method_lines(comparison)
    clients = tuple(dict.fromkeys(name for line in lines for name in line.clients))
    count = len(lines)
    return MethodsView(
        f"{count} {'method' if count == 1 else 'methods'} on {plain(comparison.table)}",
        lines,
        _seeds(comparison),
        clients if len(clients) <= MOST_CLIENTS else (),
    )


def method_lines(comparison: Comparison) -> tuple[MethodLine, ...]:
    """What table and page say of each method."""
    runs = {run.method: run for run in comparison.runs}
    return tuple(_line(summary, runs[summary.method]) for summary in comparison.methods)


def _line(summary: MethodSummary, run: MethodRun) -> MethodLine:
    """With one run the interval is that of its largest disparity, with several over seeds."""
    found = summary.largest_disparity if len(summary.seeds) > 1 else run
    return MethodLine(
        method=summary.method,
        what=summary.what,
        failed=summary.failed,
        worst_accuracy=_spread(summary.worst_accuracy, 3),
        accuracy=_spread(summary.accuracy, 3),
        worst_train_loss=_spread(summary.worst_train_loss, 4),
        largest=number(summary.largest_disparity.mean, 3),
        interval=_interval(found.low, found.high),
        verdicts=tuple(str(summary.verdicts.get(verdict, 0)) for verdict in _VERDICTS),
        rounds=_whole(summary.rounds.mean),
        megabytes=_short(summary.bytes_from_clients.mean, 1e6),
        seconds=_short(summary.seconds.mean, 1.0),
        clients={
            name: (_spread(who.accuracy, 3), _spread(who.disparity, 3))
            for name, who in summary.clients.items()
        },
    )


def _seeds(comparison: Comparison) -> str:
    count = max((len(summary.seeds) for summary in comparison.methods), default=1)
    return f", mean of {count} seeds ± half its 95 % interval" if count > 1 else ""


def _spread(over: OverSeeds, digits: int) -> str:
    """A mean, with half its interval where there is one."""
    if over.mean is None or over.high is None:
        return number(over.mean, digits)
    return f"{number(over.mean, digits)} ± {number(over.high - over.mean, digits)}"


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "–"
    return "–".join(f"{end:.3f}".replace("0.", ".", 1) for end in (low, high))


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _short(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:.3g}"
