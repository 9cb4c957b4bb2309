"""A result on the screen: tables that fit 80 columns, and one sentence that sums them up."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fcfl.results import ClientResult, Disparity, Part, Result
from fcfl.results.findings import trained_value

from .claims import RuleName, claims_of, rule_of, shown_verdict
from .people import people_sentences
from .run_comparison import run_line
from .views import claims_with_price
from .words import (
    finding_sentences,
    price_sentence,
    privacy_sentences,
    served_sentence,
    trained_sentence,
    unknown_worst,
    verdict_sentence,
    worst_sentence,
)
from .words import number as number
from .words import plain as plain

if TYPE_CHECKING:  # a report reads results; of a data set it only shows a description
    from fcfl.data.catalog import ClientDescription

MOST_CLIENTS = 40  # rows shown; the rest is in result.json
MOST_PRICES = 3
STYLES = {"met": "green", "exceeded": "bold red", "undetermined": "yellow"}


def result_tables(result: Result) -> Iterator[Table]:
    """One table for each rule, the worst-served client first."""
    clients = by_loss(result.clients)[:MOST_CLIENTS]
    together, part = result.all_rows, result.judged_part
    entries = [*clients[0][1].part(part).disparities, *together.part(part).disparities]
    for rule in dict.fromkeys(map(rule_of, entries)):
        table = _table(f"{result.method}: {rule}")
        for heading in _headings(result, rule.rule):
            _numbers(table, heading)
        table.add_column("verdict", no_wrap=True, vertical="bottom")
        for name, client in clients:
            _add_row(table, name, client, rule, result)
        if len(clients) > 1:
            table.add_section()
            _add_row(table, result.name_of_all, together, rule, result)
        yield table


def _headings(result: Result, kind: str) -> list[str]:
    """What the numbers of a client are; an audit has trained nothing."""
    value = {"ratio": "ratio", "bound": "value"}.get(kind, "differ-\nence")
    if result.method == "audit":
        return ["rows", "accu-\nracy", value, "interval", "budget"]
    part = result.judged_part
    return [
        f"{part}\nrows", "train\nloss", f"{part}\naccu-\nracy", f"train\n{value}",
        f"{part}\n{value}", "interval", "budget",
    ]  # fmt: skip


def _table(title: str, first: str = "client") -> Table:
    table = Table(
        title=Text(plain(title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column(first, overflow="fold", min_width=6, vertical="bottom")
    return table


def _numbers(table: Table, heading: str) -> None:
    width = _width(heading)
    table.add_column(heading, justify="right", no_wrap=True, min_width=width, vertical="bottom")


def _width(heading: str) -> int:
    return max(len(line) for line in heading.split("\n"))


def _add_row(table: Table, name: str, client: ClientResult, rule: RuleName, result: Result) -> None:
    part = result.judged_part
    train, judged = _entry(client.train, rule), _entry(client.part(part), rule)
    found = [number(judged.value, 3), _short_interval(judged), _budget(judged)]
    share = number(client.part(part).accuracy, 3)
    rows = str(client.rows.of(part))
    if result.method == "audit":
        cells = [rows, share, *found]
    else:
        cells = [rows, number(client.train.loss), share, number(trained_value(train), 3), *found]
    verdict = shown_verdict(judged)
    named = verdict in STYLES or verdict == "not compared"
    shown = Text(verdict, STYLES.get(verdict, "")) if named else Text("–")
    table.add_row(Text(plain(name)), *cells, shown)


def _short_interval(entry: Disparity) -> str:
    if entry.low is None or entry.high is None:
        return "–"
    return "–".join(f"{end:.3f}".removeprefix("0") for end in (entry.low, entry.high))


def _budget(entry: Disparity) -> str:
    return "–" if entry.budget is None else f"{entry.budget:.4g}"


def _entry(part: Part, rule: RuleName) -> Disparity:
    """What the part says of a rule; where it says nothing, nothing is known."""
    unknown = Disparity(rule.metric, rule.attribute, rule.rule, None)
    return next((entry for entry in part.disparities if rule_of(entry) == rule), unknown)


def by_loss(clients: Mapping[str, ClientResult]) -> list[tuple[str, ClientResult]]:
    """Clients from the largest training loss, or the lowest accuracy, to the best served."""

    def served(item: tuple[str, ClientResult]) -> tuple[float, float]:
        loss, accuracy = item[1].train.loss, item[1].test.accuracy
        return -(loss or 0.0), 1.0 if loss is not None or accuracy is None else accuracy

    return sorted(clients.items(), key=served)


def print_result(console: Console, result: Result) -> None:
    """The tables, what the judged rows say, the headline, and how training ended."""
    for table in result_tables(result):
        console.print(table, "")
    if len(result.clients) > MOST_CLIENTS:
        more = len(result.clients) - MOST_CLIENTS
        console.print(f"… and {more} more clients in result.json", highlight=False)
    for sentence in summary_sentences(result):
        console.print(sentence, markup=False, highlight=False)


def summary_sentences(result: Result) -> list[str]:
    """What the page says on its first screen, and how the run ended."""
    served = served_sentence(result) or unknown_worst(result)
    wrong = finding_sentences(result)
    sentences = [*wrong, served, *([] if wrong else [trained_sentence(result)])]
    if any(claim.verdict in STYLES for claim in claims_of(result)):
        sentences += [verdict_sentence(result), *people_sentences(result)]
        sentences += [worst_sentence(result) or ""]
    priced = claims_with_price(result)[:MOST_PRICES]
    sentences += [price_sentence(claim, result) for claim in priced]
    sentences += [result.message, *privacy_sentences(result)]
    return [sentence for sentence in sentences if sentence]


def runs_table(results: Mapping[str, Result]) -> Table:
    """Several runs in one line each."""
    table = _table("Runs", "run")
    table.add_column("worst\nserved", overflow="fold", min_width=6, vertical="bottom")
    headings = ("its train\nloss", "lowest\naccuracy", "largest\ndifference", "met", "ex-\nceeded")
    for heading in (*headings, "undeter-\nmined"):
        _numbers(table, heading)
    for name, result in results.items():
        run = run_line(name, result)
        verdicts = [str(run.counts[v]) for v in ("met", "exceeded", "undetermined")]
        table.add_row(
            Text(plain(name)),
            Text(plain(run.worst_client)),
            number(run.train_loss),
            number(run.lowest_accuracy, 3),
            number(run.largest, 3),
            *verdicts,
        )
    return table


def comparison_table(results: Mapping[str, Result]) -> Table:
    """Several runs on the same rows side by side: accuracy and hard disparity on test rows."""
    table = _table("Test rows, hard decisions")
    _numbers(table, "rows")
    for label in results:
        _numbers(table, f"accuracy\n{label}")
    for label in results:
        _numbers(table, f"disparity\n{label}")
    _numbers(table, "budget")
    first = next(iter(results.values()))
    for name, client in by_loss(first.clients):
        tests = [result.clients[name].test for result in results.values()]
        table.add_row(
            Text(plain(name)),
            str(client.rows.test),
            *[number(test.accuracy) for test in tests],
            *[number(test.disparities[0].value) for test in tests],
            number(client.train.disparities[0].budget, 3),
        )
    return table


def federation_table(name: str, clients: Sequence["ClientDescription"]) -> Table:
    """Rows and label rate of each client of a data set, and of each of its groups."""
    table = _table(name)
    for heading in ("train\nrows", "test\nrows", "label\nrate"):
        _numbers(table, heading)
    table.add_column("group", overflow="fold", vertical="bottom")
    for heading in ("group\nrows", "group\nlabel rate"):
        _numbers(table, heading)
    for client in clients[:MOST_CLIENTS]:
        facts = [
            Text(plain(client.name)),
            Text(str(client.train_rows)),
            Text(str(client.test_rows)),
            Text(number(client.positive_rate, 3)),
        ]
        for group in client.groups:
            table.add_row(
                *facts,
                Text(plain(f"{group.attribute} = {group.name}")),
                str(group.rows),
                number(group.positive_rate, 3),
            )
            facts = [Text()] * len(facts)
    return table
