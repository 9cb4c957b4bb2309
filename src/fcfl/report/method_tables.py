"""Methods side by side: one line for each, over all its seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from rich.table import Table

from fcfl.results import Comparison
from fcfl.results.many_runs import ENOUGH, MAJORITY, MethodRun, MethodSummary, OverSeeds

from .claims import part_called
from .figures import Dot, scatter
from .layout import Column, fitted_table
from .words import number, plain

MOST_CLIENTS = 12  # with columns of their own; all are in comparison.json


@dataclass(frozen=True)
class MethodLine:
    """What table and page say of a method, as text; of each client accuracy and disparity."""

    method: str
    what: str
    failed: int
    accuracy: str
    selected: str
    exchanges: str
    megabytes: str
    seconds: str
    clients: Mapping[str, tuple[str, str]]
    lowest_accuracy: str
    all_rows: str
    all_rows_interval: str
    median: str
    largest_judged: str
    kept: str
    how_ended: str


@dataclass(frozen=True)
class MethodsView:
    """What the page says of the methods; of runs that are just put side by side, nothing."""

    title: str = ""
    lines: tuple[MethodLine, ...] = ()
    seeds: str = ""
    clients: tuple[str, ...] = ()
    too_small: str = ""
    figure: Markup | None = None
    headline: str = ""
    rows: str = ""


def methods_table(comparison: Comparison, width: int = 80) -> Table:
    """Return a comparison for a screen of ``width`` cells."""
    lines = method_lines(comparison)
    columns = [
        Column("method", [line.method for line in lines], is_number=False),
        Column("lowest\naccu-\nracy", [line.lowest_accuracy for line in lines]),
        Column("all\nrows\naccu-\nracy", [line.accuracy for line in lines], rank=1),
        Column("all\nrows\nse-\nlected", [line.selected for line in lines], rank=5),
        Column("differ-\nence,\nall\nrows", [line.all_rows for line in lines]),
        Column("interval", [line.all_rows_interval for line in lines], rank=3),
        Column("median\nclient", [line.median for line in lines], rank=4),
        Column("largest\nclient", [line.largest_judged for line in lines], rank=2),
        Column("kept", [line.kept for line in lines]),
        Column("ex-\nchanges", [line.exchanges for line in lines], rank=1),
    ]
    title = f"{comparison.table}: methods on the same rows{_seeds(comparison)}"
    return fitted_table(title, columns, width)


def methods_sentences(comparison: Comparison) -> list[str]:
    """What to read the table with: who is best, who is too small, who has not converged."""
    lines = method_lines(comparison)
    stopped = [f"{line.method}: {line.how_ended}." for line in lines if line.how_ended]
    return [s for s in (best_sentence(comparison), too_small_sentence(comparison), *stopped) if s]


def best_sentence(comparison: Comparison) -> str:
    """What each method is best at; equals are named together, the majority class never."""
    methods = [s for s in comparison.methods if s.method != MAJORITY]
    claims: dict[tuple[str, ...], list[str]] = {}
    by_accuracy: tuple[str, ...] = ()
    for criterion in _CRITERIA:
        found = [(s, known) for s in methods if (known := criterion.value(s)) is not None]
        best = [s for s, known in found if known == max(value for _, value in found)]
        names = tuple(s.method for s in best)
        if not names or (criterion is _ANY_ACCURACY and names == by_accuracy):
            continue  # who is best within budgets as well as without has been named
        if criterion is _KEPT_ACCURACY:
            by_accuracy = names
        verb = criterion.verbs[len(names) > 1]
        claims.setdefault(names, []).append(f"{verb} {criterion.told(best)}")
    if not claims:
        return ""
    each = [f"{_together(names)} {_together(what)}" for names, what in claims.items()]
    return f"On {_rows_of(comparison)} {'; '.join(each)}."


def _rows_of(comparison: Comparison) -> str:
    """What the rows are that methods are judged by."""
    parts = {run.part for run in comparison.runs if run.part is not None}
    return " and ".join(part_called(part) for part in sorted(parts, reverse=True)) or "no rows"


def _together(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _share_kept(summary: MethodSummary) -> float | None:
    return summary.kept / summary.n_budgets if summary.kept else None  # none is not most


def _negative(over: OverSeeds) -> float | None:
    return None if over.mean is None else -over.mean


def _budgets_kept(summary: MethodSummary) -> str:
    return f"{summary.kept} of {summary.n_budgets}"


@dataclass(frozen=True)
class _Criterion:
    """Verbs for one and for several, words for the best, and a value whose largest is best."""

    verbs: tuple[str, str]
    told: Callable[[Sequence[MethodSummary]], str]
    value: Callable[[MethodSummary], float | None]


_HAS = ("has", "have")
_KEPT_ACCURACY = _Criterion(
    _HAS,
    lambda best: (
        f"the highest accuracy at the worst client ({number(best[0].lowest_accuracy.mean, 3)}) "
        "of those that keep half of the budgets"
    ),
    lambda s: s.lowest_accuracy.mean if (_share_kept(s) or 0.0) >= 0.5 else None,
)
_ANY_ACCURACY = _Criterion(
    _HAS,
    lambda best: (
        "the highest accuracy at the worst client without regard to budgets "
        f"({number(best[0].lowest_accuracy.mean, 3)}; kept: "
        f"{_together([_budgets_kept(s) for s in best])})"
    ),
    lambda s: s.lowest_accuracy.mean,
)
_CRITERIA = (
    _Criterion(
        ("keeps", "keep"), lambda best: f"most budgets ({_budgets_kept(best[0])})", _share_kept
    ),
    _Criterion(
        _HAS,
        lambda best: f"the smallest difference over all rows ({number(best[0].all_rows.mean, 3)})",
        lambda s: _negative(s.all_rows),
    ),
    _Criterion(
        _HAS,
        lambda best: f"the smallest difference at any client ({number(best[0].largest.mean, 3)})",
        lambda s: _negative(s.largest),
    ),
    _KEPT_ACCURACY,
    _ANY_ACCURACY,
)
"""What methods are compared by."""


def too_small_sentence(comparison: Comparison) -> str:
    """Clients that do not decide how methods compare."""
    names = dict.fromkeys(name for summary in comparison.methods for name in summary.too_small)
    if not names:
        return ""
    shown = ", ".join(plain(name) for name in [*names][:MOST_CLIENTS])
    more = f" and {len(names) - MOST_CLIENTS} more" if len(names) > MOST_CLIENTS else ""
    who = "has" if len(names) == 1 else "have"
    return (
        f"{shown}{more} {who} fewer than {ENOUGH} people in a group that is compared, or no two "
        "groups to compare: too few to judge by, and left out of lowest, median, largest and kept. "
        "They are in the table of clients."
    )


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
        too_small_sentence(comparison),
        _figure(comparison),
        best_sentence(comparison),
        _rows_of(comparison),
    )


def _figure(comparison: Comparison) -> Markup | None:
    """Each method by its difference over all rows, with the interval, and its lowest accuracy."""
    runs = {run.method: run for run in comparison.runs}
    dots = []
    for summary in comparison.methods:
        x, y = summary.all_rows, summary.lowest_accuracy
        if x.mean is None or y.mean is None:
            continue
        run = runs.get(summary.method)
        bounds = (x.low, x.high) if x.low is not None or run is None else _bounds(run)
        kept = "met" if summary.n_budgets and summary.kept == summary.n_budgets else "unconstrained"
        low, high = bounds
        dots.append(Dot(summary.method, x.mean, y.mean, kept, True, low, high))
    if not dots:
        return None
    axes = ("difference over all rows", "lowest accuracy of a client with enough people")
    return scatter("methods", "Methods by accuracy and difference", dots, axes)


def _bounds(run: MethodRun) -> tuple[float | None, float | None]:
    return run.judged.low, run.judged.high


def method_lines(comparison: Comparison) -> tuple[MethodLine, ...]:
    """What table and page say of each method."""
    runs = {run.method: run for run in comparison.runs}
    return tuple(_line(summary, runs.get(summary.method)) for summary in comparison.methods)


def _line(summary: MethodSummary, run: MethodRun | None) -> MethodLine:
    """With one run intervals are those of its disparities, with several those over seeds."""
    over = summary.all_rows
    is_one = run is not None and len(summary.seeds) == 1
    together = _bounds(run) if run is not None and is_one else (over.low, over.high)
    return MethodLine(
        method=summary.method,
        what=summary.what,
        failed=summary.failed,
        accuracy=_spread(summary.accuracy, 3),
        selected=number(summary.selected.mean, 3),
        exchanges=_whole(summary.exchanges.mean),
        megabytes=_short(summary.bytes_from_clients.mean, 1e6),
        seconds=_short(summary.seconds.mean, 1.0),
        clients={
            name: (_spread(who.accuracy, 3), _spread(who.disparity, 3))
            for name, who in summary.clients.items()
        },
        lowest_accuracy=_spread(summary.lowest_accuracy, 3),
        all_rows=number(summary.all_rows.mean, 3),
        all_rows_interval=_interval(*together),
        median=number(summary.median.mean, 3),
        largest_judged=number(summary.largest.mean, 3),
        kept=f"{summary.kept}/{summary.n_budgets}" if summary.n_budgets else "–",
        how_ended=run.still_moving if run is not None else "",
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
