"""A result on the screen: tables that fit 80 columns, and one sentence that sums them up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MOST_CLIENTS = 40  # rows shown; the rest is in result.json
MOST_NAMED = 3  # exceeded budgets the headline spells out
TOLERANCE = 1e-6  # a smooth disparity that exceeds its budget by less counts as met
TOGETHER = "all rows"


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def plain(name: str) -> str:
    """A name as it is, but without characters that would steer the terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)


def result_tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """One table for each rule, the worst-served client first."""
    clients = list(by_loss(result["clients"]))[:MOST_CLIENTS]
    together = _together(result)
    entries = [*clients[0][1]["train"]["disparities"], *together["train"]["disparities"]]
    for rule, kind in {rule_name(entry): entry["rule"] for entry in entries}.items():
        table = _table(f"{result['method']}: {rule}")
        for heading in ("train\nrows", "test\nrows", "train\nloss", "test\naccuracy"):
            _numbers(table, heading)
        what = {"ratio": "ratio", "bound": "value"}.get(kind, "disparity")
        for heading in (f"{what}\ntrain\nsmooth", f"{what}\ntest\nhard"):
            _numbers(table, heading)
        _numbers(table, "budget")
        for name, client in clients:
            _add_row(table, name, client, rule)
        if len(clients) > 1:
            table.add_section()
            _add_row(table, TOGETHER, together, rule)
        yield table


def _table(title: str) -> Table:
    table = Table(
        title=Text(plain(title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("client", overflow="fold", min_width=6, vertical="bottom")
    return table


def _numbers(table: Table, heading: str) -> None:
    table.add_column(heading, justify="right", no_wrap=True, min_width=_width(heading))


def _width(heading: str) -> int:
    return max(len(line) for line in heading.split("\n"))


def _add_row(table: Table, name: str, who: Mapping[str, Any], rule: str) -> None:
    train, test = _entry(who["train"], rule), _entry(who["test"], rule)
    table.add_row(
        Text(plain(name)),
        str(who["rows"]["train"]),
        str(who["rows"]["test"]),
        number(who["train"]["loss"]),
        number(who["test"]["accuracy"]),
        number(train.get("smooth")),
        number(test.get("value")),
        number(train.get("budget"), 3),
    )


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
    metric = entry["metric"].replace("_", " ")
    return f"{metric} {entry['rule']}, {entry['attribute']}"


def by_loss(clients: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Clients from the largest training loss to the smallest."""
    return sorted(clients.items(), key=lambda item: -(item[1]["train"]["loss"] or 0.0))


def budgets(result: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Everyone with a budget, and the entry about it, on training rows."""
    for name, who in [*result["clients"].items(), (TOGETHER, result["global"])]:
        for entry in who["train"]["disparities"]:
            if entry["budget"] is not None:
                yield name, entry


def is_exceeded(entry: Mapping[str, Any]) -> bool:
    """Whether the smooth disparity breaks its budget: above a difference's, below a ratio's."""
    gap = float(entry["smooth"] - entry["budget"])
    return (-gap if entry["rule"] == "ratio" else gap) > TOLERANCE


def headline(result: Mapping[str, Any]) -> str:
    """Who is served worst, and how many budgets are met on training rows."""
    worst = result["worst_client"]
    served = f"Worst served: {plain(worst['name'])}, training loss {number(worst['train_loss'])}"
    if worst["test_accuracy"] is not None:
        served += f", test accuracy {number(worst['test_accuracy'])}"
    given = list(budgets(result))
    if not given:
        return f"{served}. No budget was set."
    known = [(name, entry) for name, entry in given if entry["smooth"] is not None]
    exceeded = [(name, entry) for name, entry in known if is_exceeded(entry)]
    met = f"{len(known) - len(exceeded)} of {len(given)} budgets met on the training rows (smooth)"
    if exceeded:
        met += f". Not met: {_named(exceeded)}"
    if len(known) < len(given):
        met += f". Without two groups to compare: {len(given) - len(known)}"
    return f"{served}. {met}."


def _named(exceeded: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    named = [
        f"{plain(name)} {number(entry['smooth'])}, budget {number(entry['budget'], 3)}"
        for name, entry in exceeded[:MOST_NAMED]
    ]
    more = [f"{len(exceeded) - MOST_NAMED} more"] if len(exceeded) > MOST_NAMED else []
    return "; ".join(named + more)


def print_result(console: Console, result: Mapping[str, Any]) -> None:
    """The tables, the headline, and how training ended."""
    for table in result_tables(result):
        console.print(table, "")
    if len(result["clients"]) > MOST_CLIENTS:
        more = len(result["clients"]) - MOST_CLIENTS
        console.print(f"… and {more} more clients in result.json", highlight=False)
    console.print(headline(result), markup=False, highlight=False)
    console.print(result["message"], markup=False, highlight=False)


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
