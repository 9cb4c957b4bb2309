"""A result on the screen: one table, one line per client and rule."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

MOST_CLIENTS = 40  # rows shown; the rest is in result.json


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def result_table(result: Mapping[str, Any]) -> Table:
    """Accuracy, disparity and budget of each client, the worst-served first."""
    clients = list(by_loss(result["clients"]))[:MOST_CLIENTS]
    rules = {rule_name(entry) for _, client in clients for entry in client["train"]["disparities"]}
    title = f"{result['method']}, {result['status']}"
    table = Table(title=": ".join([title, *rules]) if len(rules) == 1 else title)
    table.title_justify = "left"
    table.add_column("client", overflow="fold")
    headings = ("rows\ntrain", "rows\ntest", "loss\ntrain", "accuracy\ntest")
    for heading in headings:
        table.add_column(heading, justify="right")
    if len(rules) > 1:
        table.add_column("rule", overflow="fold")
    for heading in ("disparity\ntrain, smooth", "disparity\ntest, hard", "budget"):
        table.add_column(heading, justify="right")
    for name, client in clients:
        facts = [
            escape(name),
            str(client["rows"]["train"]),
            str(client["rows"]["test"]),
            number(client["train"]["loss"]),
            number(client["test"]["accuracy"]),
        ]
        for train, test in _rules(client):
            rule = [rule_name(train)] if len(rules) > 1 else []
            hard = number(test["value"] if test else None)
            table.add_row(*facts, *rule, number(train["smooth"]), hard, number(train["budget"], 3))
            facts = [""] * len(facts)
    return table


def rule_name(entry: Mapping[str, Any]) -> str:
    """What is compared, in few words."""
    metric = entry["metric"].replace("_", " ")
    return escape(f"{metric} {entry['rule']}, {entry['attribute']}")


def by_loss(clients: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Clients from the largest training loss to the smallest."""
    return sorted(clients.items(), key=lambda item: -(item[1]["train"]["loss"] or 0.0))


def _rules(client: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    test = client["test"]["disparities"] or [None] * len(client["train"]["disparities"])
    return list(zip(client["train"]["disparities"], test, strict=True))


def headline(result: Mapping[str, Any]) -> str:
    """One sentence: who is served worst, which budgets are exceeded on training rows."""
    worst = result["worst_client"]
    over, budgets = 0, 0
    parts = [client["train"] for client in result["clients"].values()]
    for part in [*parts, result["global"]["train"]]:
        for entry in part["disparities"]:
            if entry["budget"] is None or entry["smooth"] is None:
                continue
            budgets += 1
            gap = entry["smooth"] - entry["budget"]
            over += (-gap if entry["rule"] == "ratio" else gap) > 1e-6
    served = f"Worst served: {worst['name']}, training loss {number(worst['train_loss'])}"
    if worst["test_accuracy"] is not None:
        served += f", test accuracy {number(worst['test_accuracy'])}"
    if not budgets:
        return f"{served}. No budget was set."
    kept = f"{budgets - over} of {budgets} budgets met on training rows (smooth disparity)"
    return f"{served}. {kept}."


def print_result(console: Console, result: Mapping[str, Any]) -> None:
    """The table, the headline, and how training ended."""
    console.print(result_table(result))
    if len(result["clients"]) > MOST_CLIENTS:
        console.print(f"… and {len(result['clients']) - MOST_CLIENTS} more clients in result.json")
    console.print(headline(result), markup=False, highlight=False)
    console.print(result["message"], markup=False, highlight=False)


def comparison_table(results: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Several runs on the same rows side by side: accuracy and hard disparity on test rows."""
    table = Table(title="On held-out rows", title_justify="left")
    table.add_column("client")
    table.add_column("rows", justify="right")
    for label in results:
        table.add_column(f"accuracy\n{label}", justify="right")
    for label in results:
        table.add_column(f"disparity\n{label}", justify="right")
    table.add_column("budget", justify="right")
    first = next(iter(results.values()))
    for name, client in by_loss(first["clients"]):
        tests = [result["clients"][name]["test"] for result in results.values()]
        table.add_row(
            escape(name),
            str(client["rows"]["test"]),
            *[number(test["accuracy"]) for test in tests],
            *[number(test["disparities"][0]["value"]) for test in tests],
            number(client["train"]["disparities"][0]["budget"], 3),
        )
    return table


def federation_table(name: str, clients: Sequence[Mapping[str, Any]]) -> Table:
    """Rows, label rate and groups of each client of a data set."""
    table = Table(title=escape(name), title_justify="left")
    table.add_column("client")
    for heading in ("train rows", "test rows", "label rate"):
        table.add_column(heading, justify="right")
    table.add_column("groups: rows (label rate)")
    for client in clients[:MOST_CLIENTS]:
        groups = "\n".join(
            f"{attribute} = {group}: {facts['rows']} ({number(facts['positive_rate'], 3)})"
            for attribute, levels in client["groups"].items()
            for group, facts in levels.items()
        )
        table.add_row(
            escape(client["name"]),
            str(client["train_rows"]),
            str(client["test_rows"]),
            number(client["positive_rate"], 3),
            escape(groups),
        )
    return table
