"""A result on the screen: tables that fit its width, and sentences that sum them up."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fcfl.results import ClientResult, Disparity, Part, Result
from fcfl.results.findings import exceeded_budgets, findings_of, warnings_of
from fcfl.results.many_runs import judge

from .claims import Claim, claims_of, count_verdicts, first_claim
from .layout import EXTRA, Column, fitted_table
from .words import (
    exchanges_called,
    number,
    people_sentence,
    plain,
    prices_sentence,
    privacy_sentences,
    served_sentence,
    share,
    steps_sentence,
    trained_sentence,
    unknown_worst,
    verdict_sentence,
)

if TYPE_CHECKING:  # a report reads results; of a data set it only shows a description
    from fcfl.data.builtin import ClientDescription

MOST_CLIENTS = 40  # rows shown; the rest is in result.json
MOST_PRICES = 2
_COUNTED = {"met": "met", "ex-\nceeded": "exceeded", "undeter-\nmined": "undetermined"}
STYLES = {"met": "green", "exceeded": "bold red", "undetermined": "yellow"}


def result_tables(result: Result, width: int = 80) -> Iterator[Table]:
    """Yield one table of at most ``width`` cells for each rule, the worst-served client first."""
    clients, part = by_loss(result.clients)[:MOST_CLIENTS], result.judged_part
    lines = [*clients, (result.name_of_all, result.overall)] if len(clients) > 1 else clients
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
    """Yield what is known of each client; an audit has no training."""
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
    yield Column("interval", [_short_interval(entry) for entry in entries], rank=2)
    limits = ["–" if entry.budget is None else f"{entry.budget:.4g}" for entry in entries]
    yield Column("budget", limits)
    yield Column("verdict", [_verdict(entry) for entry in entries], is_number=False)


def _verdict(entry: Disparity) -> Text:
    verdict = Claim("", entry, None, 0).verdict
    is_judged = verdict in STYLES or verdict == "not compared"
    return Text(verdict, STYLES.get(verdict, "")) if is_judged else Text("–")


def _short_interval(entry: Disparity) -> str:
    if entry.interval is None:
        return "–"
    return "–".join(f"{end:.3f}".removeprefix("0") for end in entry.interval)


def _entry(part: Part, rule: Disparity) -> Disparity:
    """Return the part's disparity by a rule, one without values if there is none."""
    unknown = Disparity(rule.metric, rule.attribute, rule.rule, None)
    return next((entry for entry in part.disparities if entry.title == rule.title), unknown)


def by_loss(clients: Mapping[str, ClientResult]) -> list[tuple[str, ClientResult]]:
    """Clients from the largest training loss, or the lowest accuracy, to the best served."""

    def served(item: tuple[str, ClientResult]) -> tuple[float, float]:
        loss, accuracy = item[1].train.loss, item[1].test.accuracy
        return -(loss or 0.0), 1.0 if loss is not None or accuracy is None else accuracy

    return sorted(clients.items(), key=served)


def print_result(console: Console, result: Result) -> None:
    """Print findings, tables, verdicts, and how training ended."""
    for sentence in leading_sentences(result):
        console.print(sentence, markup=False, highlight=False)
    for table in result_tables(result, console.width):
        console.print(table, "")
    if len(result.clients) > MOST_CLIENTS:
        more = len(result.clients) - MOST_CLIENTS
        console.print(f"… and {more} more clients in result.json", highlight=False)
    for sentence in summary_sentences(result):
        console.print(sentence, markup=False, highlight=False)


def leading_sentences(result: Result) -> list[str]:
    """Return the reasons for exit code 3, and the cost of budgets where it is high."""
    return [
        *(f"Exit code 3: {plain(one.sentence)}" for one in findings_of(result)),
        *(f"Warning: {plain(one.sentence)}" for one in warnings_of(result)),
    ]


def summary_sentences(result: Result) -> list[str]:
    """Return the sentences of the page's first screen, the cost, and how the run ended."""
    served, first = served_sentence(result) or unknown_worst(result), first_claim(result)
    is_met = not exceeded_budgets(result)
    sentences = [f"{served} {trained_sentence(result)}".strip() if is_met else served]
    if first is not None and any(claim.verdict in STYLES for claim in claims_of(result)):
        sentences += [verdict_sentence(result), people_sentence(first)]
    exchanges = exchanges_called(result)
    sentences += [
        steps_sentence(result),
        prices_sentence(result, MOST_PRICES),
        result.message,
        f"Exchanges with all clients: {exchanges}." if exchanges else "",
        *privacy_sentences(result),
    ]
    return [sentence for sentence in sentences if sentence]


def runs_table(results: Mapping[str, Result], width: int = 80) -> Table:
    """Return several runs in one line each."""
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
    """Return several runs on the same rows side by side: accuracy and disparity on test rows."""
    first = next(iter(results.values()))
    clients = by_loss(first.clients)
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
    """Return rows and label rate of each client of a data set, and of each of its groups."""
    lines = [
        (client if position == 0 else None, group)
        for client in clients[:MOST_CLIENTS]
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
