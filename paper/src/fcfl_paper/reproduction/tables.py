"""Tables as text cells; the screen and the page show the same."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fcfl.results import OverSeeds

from .records import CaseResult, ItemResult, Published, Row

MAX_CLIENT_COLUMNS = 3  # with more clients a table shows the extremes only
BESIDE = " / "  # between the numbers of two clients
NOTHING = "–"
_OF_CLIENT = ("budget", "training disparity", "test disparity", "accuracy")
_OF_ALL = ("largest local", "worst client", "accuracy")


@dataclass(frozen=True, slots=True)
class TextTable:
    """A caption, headings, and rows of text; the first column is words, the others numbers."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(item: ItemResult) -> list[TextTable]:
    """Return every table of an item."""
    if item.figure == "front":
        return [_front(item)]
    if item.figure == "series":
        return [_series(item, protocol) for protocol in item.protocols]
    return [
        table
        for protocol in item.protocols
        for case in item.cases
        if (table := _case(item, case, protocol)) is not None
    ]


# --- one case -------------------------------------------------------------------------------------


def _case(item: ItemResult, case: CaseResult, protocol: str) -> TextTable | None:
    rows = item.rows_of(case.name, protocol)
    if not rows:
        return None
    clients = item.clients
    caption = f"{case.name}, {_describe_protocol(protocol, rows)}"
    if len(clients) <= MAX_CLIENT_COLUMNS:
        whose = f"({' / '.join(clients)})"
        headings: tuple[str, ...] = (
            "method", f"accuracy {whose}", f"disparity {whose}", "met in training",
            f"within {whose}", "all within", "rounds",
        )  # fmt: skip
        lines = [_by_client(row, clients) for row in rows]
        if protocol == "original":  # published figures are on these rows
            lines += [_published_by_client(given, clients) for given in case.given]
    else:
        headings = (
            "method", "accuracy", "worst client", "largest local", "the same, ≥100 rows",
            "global", "met in training", "all within", "rounds",
        )  # fmt: skip
        lines = [_by_extremes(row) for row in rows]
        lines += [_published_extremes(given) for given in case.given]
    return _without_empty(TextTable(caption, headings, tuple(lines)))


def _by_client(row: Row, clients: Sequence[str]) -> tuple[str, ...]:
    found = [row.clients[client] for client in clients]
    accuracies = _each(spread(client.accuracy, row.protocol) for client in found)
    disparities = _each(spread(client.disparity, row.protocol) for client in found)
    within = _each(share(row.share_within.get(client), row.n_runs) for client in clients)
    met, every = share(row.share_met_in_training, row.n_runs), _within(row)
    return row.label, accuracies, disparities, met, within, every, number(row.rounds, 0)


def _each(cells: Iterable[str]) -> str:
    """Return one cell for all clients; one dash where nothing is known."""
    known = list(cells)
    return NOTHING if set(known) == {NOTHING} else BESIDE.join(known)


def _published_by_client(given: Published, clients: Sequence[str]) -> tuple[str, ...]:
    accuracies = _each(_with_sd(given.accuracy.get(c), given.sd.get(c)) for c in clients)
    disparities = _each(number(given.disparity.get(c)) for c in clients)
    return (f"*{given.label}*", accuracies, disparities, *(NOTHING,) * 4)


def _by_extremes(row: Row) -> tuple[str, ...]:
    first = (row.accuracy, row.worst_accuracy, row.largest_disparity)
    measures = (*first, row.largest_large_disparity, row.global_disparity)
    spreads = (spread(measure, row.protocol) for measure in measures)
    met = share(row.share_met_in_training, row.n_runs)
    return row.label, *spreads, met, _within(row), number(row.rounds, 0)


def _published_extremes(given: Published) -> tuple[str, ...]:
    found = given.numbers
    cells = [number(found.get(name)) for name in ("accuracy", "worst_accuracy", "local")]
    return (f"*{given.label}*", *cells, NOTHING, number(found.get("global")), *(NOTHING,) * 3)


# --- series and fronts ----------------------------------------------------------------------------


def _series(item: ItemResult, protocol: str) -> TextTable:
    clients = item.clients if len(item.clients) <= MAX_CLIENT_COLUMNS else []
    lines: list[tuple[str, ...]] = []
    rows: list[Row] = []
    for case in item.cases:
        here = item.rows_of(case.name, protocol)
        rows += here
        for row in here:
            met = share(row.share_met_in_training, row.n_runs)
            lines.append((f"{case.name}, {row.label}", *_series_cells(row, clients), met))
        if clients:
            lines += [_published_series(case, given, clients) for given in case.given]
    whose = f" ({' / '.join(clients)})" if clients else ""
    columns = _OF_CLIENT if clients else _OF_ALL
    headings = ("w, method", *(f"{what}{whose}" for what in columns), "met in training")
    return TextTable(f"all w, {_describe_protocol(protocol, rows)}", headings, tuple(lines))


def _series_cells(row: Row, clients: Sequence[str]) -> list[str]:
    if not clients:
        measures = (row.largest_disparity, row.worst_accuracy, row.accuracy)
        return [spread(measure, row.protocol) for measure in measures]
    found = [row.clients[client] for client in clients]
    names = ("budget", "train_smooth", "disparity", "accuracy")
    of_all = ([getattr(client, name) for client in found] for name in names)
    return [_each(spread(one, row.protocol) for one in each) for each in of_all]


def _published_series(
    case: CaseResult, given: Published, clients: Sequence[str]
) -> tuple[str, ...]:
    budgets = case.budget if isinstance(case.budget, Mapping) else {}
    budget = _each(number(budgets.get(c)) for c in clients)
    disparity = _each(number(given.disparity[c]) for c in clients)
    accuracy = _each(number(given.accuracy[c]) for c in clients)
    return f"{case.name}, *{given.label}*", budget, NOTHING, disparity, accuracy, NOTHING


def _front(item: ItemResult) -> TextTable:
    lines = []
    for case in item.cases:
        for row in item.rows_of(case.name, "starts"):
            run = row.runs[0]
            found = (run.train_loss, case.optimum, run.clients["synthetic"].train_smooth)
            cells = (*map(number, found), number(row.rounds, 0))
            lines.append((f"{case.name}: {row.label}", *cells))
    headings = ("start, budget: method", "first objective", "its optimum", "second", "rounds")
    return TextTable("where each run ended", headings, tuple(lines))


# --- text -----------------------------------------------------------------------------------------


def _describe_protocol(protocol: str, rows: Sequence[Row]) -> str:
    most = max((row.n_runs for row in rows), default=0)
    if protocol == "original":
        seeds = "one seed" if most == 1 else f"{most} seeds, mean ± standard deviation over them"
        return f"original split, test rows; {seeds}"
    word = "re-split" if protocol == "resplits" else "random split"
    if most == 1:
        return f"one {word}, held-out rows"
    return f"{most} {word}s, held-out rows; mean ± half of its 95 % interval"


def spread(found: OverSeeds, protocol: str, digits: int = 4) -> str:
    """Return a mean with its deviation over seeds, or half of its interval over splits."""
    if found.mean is None:
        return NOTHING
    if found.sd is None or found.high is None:
        return number(found.mean, digits)
    around = found.sd if protocol == "original" else found.high - found.mean
    return f"{number(found.mean, digits)} ± {number(around, digits)}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number without the leading zero, as in the paper's tables."""
    if value is None:
        return NOTHING
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def share(value: float | None, count: int) -> str:
    """Return ``14/20``."""
    return NOTHING if value is None else f"{round(value * count)}/{count}"


def _with_sd(value: float | None, sd: float | None) -> str:
    return number(value) if sd is None else f"{number(value)} ± {number(sd)}"


def _without_empty(table: TextTable) -> TextTable:
    """Leave out columns in which nothing is known."""
    columns = list(zip(*table.rows, strict=True))
    kept = [i for i, column in enumerate(columns) if i == 0 or set(column) != {NOTHING}]
    headings, *rows = (tuple(row[i] for i in kept) for row in (table.headings, *table.rows))
    return TextTable(table.caption, headings, tuple(rows))


def sampling_deviation(rate: float, rows: int) -> float:
    r"""Return :math:`\sqrt{p (1 - p) / n}`, of a share of so many rows."""
    return math.sqrt(rate * (1 - rate) / rows) if rows else math.nan


def failures_of(item: ItemResult) -> Iterator[str]:
    """Yield a sentence for every run that failed."""
    for row in item.rows:
        for message in dict.fromkeys(row.failures):
            count = row.failures.count(message)
            yield f"{row.label}, {row.case}, {row.protocol}: {count} failed: {message}"


_BESIDE_THEIRS = ("sqp", "sqp-mean")
_ROUNDING = 1e-9


def glance(items: Sequence[ItemResult]) -> list[TextTable]:
    """Return tables of worst clients beside the authors', and of shares within budget."""
    beside = tuple(_beside(items))
    splits = tuple(_splits(items))
    tables = []
    if beside:
        headings: tuple[str, ...] = (
            "item", "theirs, worst client", "authors' options here", "sqp", "sqp no worse, ± 1 sd",
            "theirs on test rows", "sqp on training rows",
        )  # fmt: skip
        caption = "original split: the worst client's test accuracy, and whose budgets are met"
        tables.append(TextTable(caption, headings, beside))
    if splits:
        headings = (
            "item", "sqp within", "sqp, a tenth", "two-stage", "best baseline",
            "worst client: sqp", "a tenth", "two-stage", "best baseline",
        )  # fmt: skip
        caption = (
            "random re-splits: how often all held-out disparities are within budget, and the "
            "worst client's accuracy"
        )
        tables.append(TextTable(caption, headings, splits))
    return tables


def _beside(items: Sequence[ItemResult]) -> Iterator[tuple[str, ...]]:
    for item in items:
        for case in item.cases:
            given = next((given for given in case.given if given.accuracy), None)
            rows = {row.line: row for row in item.rows_of(case.name, "original")}
            ours = next((rows[name] for name in _BESIDE_THEIRS if name in rows), None)
            if given is not None and ours is not None:
                name = f"{item.name}, {case.name}"
                yield name, *_beside_cells(case, given, ours, rows.get("two-stage"))


def _beside_cells(
    case: CaseResult, given: Published, ours: Row, two_stage: Row | None
) -> tuple[str, ...]:
    worst = given.worst_client
    theirs, people = given.accuracy[worst], ours.runs[0].clients[worst].rows
    found = ours.clients[worst].accuracy
    least = theirs - sampling_deviation(theirs, people) - _ROUNDING
    met = ours.share_met_in_training
    return (
        number(theirs),
        NOTHING if two_stage is None else spread(two_stage.clients[worst].accuracy, "original"),
        spread(found, "original"),
        "yes" if found.mean is not None and found.mean >= least else "no",
        _describe_published(case, given),
        "no budget" if met is None else f"met in {share(met, ours.n_runs)}",
    )


def _describe_published(case: CaseResult, given: Published) -> str:
    exceeded = case.exceeded_by(given)
    if exceeded is None:
        return "no budget"
    return f"exceeded: {', '.join(exceeded)}" if exceeded else "within"


def _splits(items: Sequence[ItemResult]) -> Iterator[tuple[str, ...]]:
    for item in items:
        for case in item.cases:
            rows = {row.line: row for row in item.rows_of(case.name, "resplits")}
            baselines = [row for row in rows.values() if row.kind == "baseline"]
            if case.budget is None or "sqp" not in rows or not baselines:
                continue
            best = max(baselines, key=_rank)
            shown = [rows["sqp"], rows.get("sqp-tenth"), rows.get("two-stage"), best]
            *shares, highest = (_within(row) for row in shown)
            worst = (spread(row.worst_accuracy, "resplits") if row else NOTHING for row in shown)
            yield f"{item.name}, {case.name}", *shares, f"{best.label} {highest}", *worst


def _rank(row: Row) -> tuple[float, float]:
    within, accuracy = row.share_within["all"], row.worst_accuracy.mean
    return (-math.inf if within is None else within, -math.inf if accuracy is None else accuracy)


def _within(row: Row | None) -> str:
    return NOTHING if row is None else share(row.share_within["all"], row.n_runs)
