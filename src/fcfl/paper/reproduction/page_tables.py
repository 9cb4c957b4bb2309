"""Tables of a reproduced item as plain text cells; the screen and the page show the same."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Item = Mapping[str, Any]
Row = Mapping[str, Any]
MOST_COLUMNED = 3  # clients whose numbers are all in a table
BESIDE = " / "  # between the numbers of two clients
NOTHING = "–"

_OF_CLIENT = {
    "budget": "budget",
    "train_smooth": "training disparity",
    "disparity": "test disparity",
    "accuracy": "accuracy",
}
_OF_ALL = {
    "largest_disparity": "largest local",
    "worst_accuracy": "worst client",
    "accuracy": "accuracy",
}


@dataclass(frozen=True)
class TextTable:
    """A caption, headings, and rows of text; the first column is words, the others numbers."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(item: Item) -> list[TextTable]:
    """Every table of an item."""
    if item["figure"] == "front":
        return [_front(item)]
    if item["figure"] == "series":
        return [_series(item, protocol) for protocol in item["protocols"]]
    return [
        table
        for protocol in item["protocols"]
        for case in item["cases"]
        if (table := _case(item, case, protocol)) is not None
    ]


def rows_of(item: Item, case: str, protocol: str) -> list[Row]:
    """The rows of one case under one protocol that have a run."""
    return [
        row
        for row in item["rows"]
        if row["case"] == case and row["protocol"] == protocol and row["n_runs"]
    ]


def clients_of(item: Item) -> list[str]:
    """All clients, the worst-served first where rows say so."""
    names = dict.fromkeys(client for row in item["rows"] for client in row["clients"])
    return sorted(names, key=lambda name: (name != "phd", name))


# --- one case -------------------------------------------------------------------------------------


def _case(item: Item, case: Mapping[str, Any], protocol: str) -> TextTable | None:
    rows = rows_of(item, case["name"], protocol)
    if not rows:
        return None
    clients = clients_of(item)
    few = len(clients) <= MOST_COLUMNED
    caption = f"{case['name']}, {_protocol_words(protocol, rows)}"
    if few:
        whose = f"({' / '.join(clients)})"
        headings: tuple[str, ...] = (
            "method", f"accuracy {whose}", f"disparity {whose}", "met in training",
            f"within {whose}", "all within", "rounds",
        )  # fmt: skip
        lines = [_few(row, clients, protocol) for row in rows]
        lines += [_given_few(given, clients) for given in _given(case, protocol)]
    else:
        headings = (
            "method", "accuracy", "worst client", "largest local", "the same, ≥100 rows",
            "global", "met in training", "all within", "rounds",
        )  # fmt: skip
        lines = [_many(row, protocol) for row in rows]
        lines += [_given_many(given) for given in case["given"]]
    return _without_empty(TextTable(caption, headings, tuple(lines)))


def _few(row: Row, clients: Sequence[str], protocol: str) -> tuple[str, ...]:
    found = row["clients"]
    return (
        row["label"],
        _each(spread(found[c]["accuracy"], protocol) for c in clients),
        _each(spread(found[c]["disparity"], protocol) for c in clients),
        share(row["share_met_in_training"], row["n_runs"]),
        _each(share(row["share_within"].get(c), row["n_runs"]) for c in clients),
        share(row["share_within"]["all"], row["n_runs"]),
        number(row["rounds"], 0),
    )


def _each(cells: Iterable[str]) -> str:
    """One cell of all clients; one dash where nothing is known."""
    known = list(cells)
    return NOTHING if set(known) == {NOTHING} else BESIDE.join(known)


def _given(case: Mapping[str, Any], protocol: str) -> Sequence[Mapping[str, Any]]:
    """What others found belongs to the rows they found it on."""
    return case["given"] if protocol == "original" else ()


def _given_few(given: Mapping[str, Any], clients: Sequence[str]) -> tuple[str, ...]:
    accuracy, disparity = given.get("accuracy", {}), given.get("disparity", {})
    sd = given.get("sd", {})
    return (
        f"*{given['label']}*",
        _each(_with_sd(accuracy.get(c), sd.get(c)) for c in clients),
        _each(number(disparity.get(c)) for c in clients),
        *(NOTHING,) * 4,
    )


def _many(row: Row, protocol: str) -> tuple[str, ...]:
    keys = (
        "accuracy", "worst_accuracy", "largest_disparity", "largest_large_disparity",
        "global_disparity",
    )  # fmt: skip
    return (
        row["label"],
        *(spread(row[key], protocol) for key in keys),
        share(row["share_met_in_training"], row["n_runs"]),
        share(row["share_within"]["all"], row["n_runs"]),
        number(row["rounds"], 0),
    )


def _given_many(given: Mapping[str, Any]) -> tuple[str, ...]:
    found = given.get("numbers", {})
    cells = [number(found.get(k)) for k in ("accuracy", "worst_accuracy", "local")]
    return (f"*{given['label']}*", *cells, NOTHING, number(found.get("global")), *(NOTHING,) * 3)


# --- series and fronts ----------------------------------------------------------------------------


def _series(item: Item, protocol: str) -> TextTable:
    clients = clients_of(item)
    few = len(clients) <= MOST_COLUMNED
    columns = _OF_CLIENT if few else _OF_ALL
    lines: list[tuple[str, ...]] = []
    rows: list[Row] = []
    for case in item["cases"]:
        here = rows_of(item, case["name"], protocol)
        rows += here
        for row in here:
            cells = [_series_cell(row, key, clients if few else (), protocol) for key in columns]
            met = share(row["share_met_in_training"], row["n_runs"])
            lines.append((f"{case['name']}, {row['label']}", *cells, met))
        lines += [_given_series(case, given, clients) for given in case["given"] if few]
    whose = f" ({' / '.join(clients)})" if few else ""
    headings = ("w, method", *(f"{what}{whose}" for what in columns.values()), "met in training")
    return TextTable(f"all w, {_protocol_words(protocol, rows)}", headings, tuple(lines))


def _series_cell(row: Row, key: str, clients: Sequence[str], protocol: str) -> str:
    if not clients:
        return spread(row[key], protocol)
    return _each(spread(row["clients"][client][key], protocol) for client in clients)


def _given_series(
    case: Mapping[str, Any], given: Mapping[str, Any], clients: Sequence[str]
) -> tuple[str, ...]:
    budgets = case["budget"] or {}
    return (
        f"{case['name']}, *{given['label']}*",
        _each(number(budgets.get(c)) for c in clients),
        NOTHING,
        _each(number(given["disparity"][c]) for c in clients),
        _each(number(given["accuracy"][c]) for c in clients),
        NOTHING,
    )


def _front(item: Item) -> TextTable:
    lines = []
    for case in item["cases"]:
        for row in rows_of(item, case["name"], "starts"):
            run = row["runs"][0]
            lines.append(
                (
                    f"{case['name']}: {row['label']}",
                    number(run["train_loss"]),
                    number(case["optimum"]),
                    number(run["clients"]["synthetic"]["train_smooth"]),
                    number(row["rounds"], 0),
                )
            )
    headings = ("start, budget: method", "first objective", "its optimum", "second", "rounds")
    return TextTable("where each run ended", headings, tuple(lines))


# --- words ----------------------------------------------------------------------------------------


def _protocol_words(protocol: str, rows: Sequence[Row]) -> str:
    most = max((row["n_runs"] for row in rows), default=0)
    if protocol == "original":
        seeds = "one seed" if most == 1 else f"{most} seeds, mean ± standard deviation over them"
        return f"original split, test rows; {seeds}"
    if protocol == "resplits":
        return f"{_count(most, 're-split')}, held-out rows{_interval_words(most)}"
    return f"{_count(most, 'random split')}, held-out rows{_interval_words(most)}"


def _count(count: int, word: str) -> str:
    return f"one {word}" if count == 1 else f"{count} {word}s"


def _interval_words(count: int) -> str:
    return "" if count == 1 else "; mean ± half of its 95 % interval"


def spread(found: Mapping[str, float | None], protocol: str, digits: int = 4) -> str:
    """A mean with the standard deviation over seeds, or with half of its interval over splits."""
    mean, sd, high = found["mean"], found["sd"], found["high"]
    if mean is None:
        return NOTHING
    if sd is None or high is None:
        return number(mean, digits)
    around = sd if protocol == "original" else high - mean
    return f"{number(mean, digits)} ± {number(around, digits)}"


def number(value: float | None, digits: int = 4) -> str:
    """Without the leading zero, as the paper's tables are read."""
    if value is None:
        return NOTHING
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def share(value: float | None, count: int) -> str:
    """``14/20``."""
    return NOTHING if value is None else f"{round(value * count)}/{count}"


def _with_sd(value: float | None, sd: float | None) -> str:
    return number(value) if sd is None else f"{number(value)} ± {number(sd)}"


def _without_empty(table: TextTable) -> TextTable:
    """Leave out columns in which nothing is known."""
    columns = list(zip(*table.rows, strict=True))
    kept = [i for i, column in enumerate(columns) if i == 0 or set(column) != {NOTHING}]
    return TextTable(
        table.caption,
        tuple(table.headings[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in table.rows),
    )


def sampling_deviation(rate: float, rows: int) -> float:
    r""":math:`\sqrt{p (1 - p) / n}`, of a share of so many rows."""
    return math.sqrt(rate * (1 - rate) / rows) if rows else math.nan


def failures_of(item: Item) -> Iterator[str]:
    """A sentence for every run that failed."""
    for row in item["rows"]:
        for message in dict.fromkeys(row["failures"]):
            count = row["failures"].count(message)
            yield f"{row['label']}, {row['case']}, {row['protocol']}: {count} failed: {message}"
