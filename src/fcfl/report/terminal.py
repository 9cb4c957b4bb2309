"""A result on the screen: tables that fit 80 columns, and one sentence that sums them up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .claims import claims_of, judged_part, rule_of, together_called
from .comparison import run_summary
from .views import dear_claims
from .words import headline, price_sentence, verdict_sentence, worst_sentence
from .words import number as number
from .words import plain as plain

MOST_CLIENTS = 40  # rows shown; the rest is in result.json
MOST_PRICES = 3
STYLES = {"met": "green", "exceeded": "bold red", "undetermined": "yellow"}


def result_tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """One table for each rule, the worst-served client first."""
    clients = list(by_loss(result["clients"]))[:MOST_CLIENTS]
    together = _together(result)
    part = judged_part(result)
    entries = [*clients[0][1][part]["disparities"], *together[part]["disparities"]]
    for rule, kind in {rule_name(entry): entry["rule"] for entry in entries}.items():
        table = _table(f"{result['method']}: {rule}")
        for heading in _headings(result, kind):
            _numbers(table, heading)
        table.add_column("verdict", no_wrap=True, vertical="bottom")
        for name, client in clients:
            _add_row(table, name, client, rule, result)
        if len(clients) > 1:
            table.add_section()
            _add_row(table, together_called(result), together, rule, result)
        yield table


def _headings(result: Mapping[str, Any], kind: str) -> list[str]:
    """What the numbers of a client are; an audit has trained nothing."""
    value = {"ratio": "ratio", "bound": "value"}.get(kind, "differ-\nence")
    if result["method"] == "audit":
        return ["rows", "accu-\nracy", value, "interval", "budget"]
    part = judged_part(result)
    return [
        f"{part}\nrows", "train\nloss", f"{part}\naccu-\nracy", "train\nsmooth", f"{part}\nhard",
        "interval", "budget",
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


def _add_row(
    table: Table, name: str, who: Mapping[str, Any], rule: str, result: Mapping[str, Any]
) -> None:
    part = judged_part(result)
    train, judged = _entry(who["train"], rule), _entry(who[part], rule)
    found = [number(judged.get("value"), 3), _short_interval(judged), _budget(judged)]
    share = number(who[part]["accuracy"], 3)
    rows = str(who["rows"][part])
    if result["method"] == "audit":
        cells = [rows, share, *found]
    else:
        cells = [rows, number(who["train"]["loss"]), share, number(train.get("smooth")), *found]
    verdict = judged.get("verdict")
    shown = Text(verdict, STYLES[verdict]) if verdict in STYLES else Text("–")
    table.add_row(Text(plain(name)), *cells, shown)


def _short_interval(entry: Mapping[str, Any]) -> str:
    low, high = entry.get("low"), entry.get("high")
    if low is None or high is None:
        return "–"
    return "–".join(f"{end:.3f}".removeprefix("0") for end in (low, high))


def _budget(entry: Mapping[str, Any]) -> str:
    budget = entry.get("budget")
    return "–" if budget is None else f"{budget:.4g}"


def _entry(part: Mapping[str, Any], rule: str) -> Mapping[str, Any]:
    entries: Iterable[Mapping[str, Any]] = part["disparities"]
    return next((entry for entry in entries if rule_name(entry) == rule), {})


def _together(result: Mapping[str, Any]) -> dict[str, Any]:
    """All clients' rows as one more line of the table."""
    clients = result["clients"].values()
    rows = {part: sum(client["rows"][part] for client in clients) for part in ("train", "test")}
    return {"rows": rows, **result["global"]}


def rule_name(entry: Mapping[str, Any]) -> str:
    """What is compared, in few words."""
    return str(rule_of(entry))


def by_loss(clients: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Clients from the largest training loss, or the lowest accuracy, to the best served."""

    def served(item: tuple[str, Any]) -> tuple[float, float]:
        loss, accuracy = item[1]["train"]["loss"], item[1]["test"]["accuracy"]
        return -(loss or 0.0), 1.0 if loss is not None or accuracy is None else accuracy

    return sorted(clients.items(), key=served)


def print_result(console: Console, result: Mapping[str, Any]) -> None:
    """The tables, what the judged rows say, the headline, and how training ended."""
    for table in result_tables(result):
        console.print(table, "")
    if len(result["clients"]) > MOST_CLIENTS:
        more = len(result["clients"]) - MOST_CLIENTS
        console.print(f"… and {more} more clients in result.json", highlight=False)
    for sentence in summary_sentences(result):
        console.print(sentence, markup=False, highlight=False)


def summary_sentences(result: Mapping[str, Any]) -> list[str]:
    """What the page says on its first screen, and how the run ended."""
    told = [headline(result)]
    if any(claim.verdict in STYLES for claim in claims_of(result)):
        told += [verdict_sentence(result), worst_sentence(result) or ""]
    told += [price_sentence(claim, result) for claim in dear_claims(result)[:MOST_PRICES]]
    return [sentence for sentence in (*told, result["message"]) if sentence]


def runs_table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Several runs in one line each."""
    table = _table("Runs", "run")
    table.add_column("worst\nserved", overflow="fold", min_width=6, vertical="bottom")
    headings = ("its train\nloss", "lowest\naccuracy", "largest\ndifference", "met", "ex-\nceeded")
    for heading in (*headings, "undeter-\nmined"):
        _numbers(table, heading)
    for name, result in results.items():
        run = run_summary(name, result)
        verdicts = [str(run["counts"][v]) for v in ("met", "exceeded", "undetermined")]
        table.add_row(
            Text(plain(name)),
            Text(plain(run["worst_client"])),
            number(run["train_loss"]),
            number(run["lowest_accuracy"], 3),
            number(run["largest"], 3),
            *verdicts,
        )
    return table


def comparison_table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Several runs on the same rows side by side: accuracy and hard disparity on test rows."""
    table = _table("Test rows, hard decisions")
    _numbers(table, "rows")
    for label in results:
        _numbers(table, f"accuracy\n{label}")
    for label in results:
        _numbers(table, f"disparity\n{label}")
    _numbers(table, "budget")
    first = next(iter(results.values()))
    for name, client in by_loss(first["clients"]):
        tests = [result["clients"][name]["test"] for result in results.values()]
        table.add_row(
            Text(plain(name)),
            str(client["rows"]["test"]),
            *[number(test["accuracy"]) for test in tests],
            *[number(test["disparities"][0]["value"]) for test in tests],
            number(client["train"]["disparities"][0]["budget"], 3),
        )
    return table


def federation_table(name: str, clients: Sequence[Mapping[str, Any]]) -> Table:
    """Rows and label rate of each client of a data set, and of each of its groups."""
    table = _table(name)
    for heading in ("train\nrows", "test\nrows", "label\nrate"):
        _numbers(table, heading)
    table.add_column("group", overflow="fold", vertical="bottom")
    for heading in ("group\nrows", "group\nlabel rate"):
        _numbers(table, heading)
    for client in clients[:MOST_CLIENTS]:
        facts = [
            Text(plain(client["name"])),
            Text(str(client["train_rows"])),
            Text(str(client["test_rows"])),
            Text(number(client["positive_rate"], 3)),
        ]
        for attribute, levels in client["groups"].items():
            for group, about in levels.items():
                table.add_row(
                    *facts,
                    Text(plain(f"{attribute} = {group}")),
                    str(about["rows"]),
                    number(about["positive_rate"], 3),
                )
                facts = [Text()] * len(facts)
    return table
