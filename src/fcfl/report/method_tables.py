"""Methods side by side: one line for each, over all its seeds."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from .words import number, plain

MOST_CLIENTS = 12  # with columns of their own; all are in comparison.json
_HEADINGS = (
    "worst\nclient\naccu-\nracy", "all\nrows\naccu-\nracy", "largest\ndiffer-\nence",
    "its\ninterval", "met/ex-\nceeded/\nundet.", "rounds", "MB\nsent", "sec-\nonds",
)  # fmt: skip
_VERDICTS = ("met", "exceeded", "undetermined")


def methods_table(content: Mapping[str, Any]) -> Table:
    """A comparison on the screen."""
    title = f"{content['table']}: methods on the same rows{_seeds(content)}"
    table = Table(
        title=Text(plain(title)), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False,
        pad_edge=False, collapse_padding=True, padding=(0, 1),
    )  # fmt: skip
    table.add_column("method", no_wrap=True, vertical="bottom")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", overflow="fold", vertical="bottom")
    for line in method_lines(content):
        table.add_row(
            line["method"], line["worst_accuracy"], line["accuracy"], line["largest"],
            line["interval"], "/".join(line["verdicts"]), line["rounds"], line["megabytes"],
            line["seconds"],
        )  # fmt: skip
    return table


def methods_view(content: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the page says of the methods; of runs that are just put side by side, nothing."""
    if content is None:
        return {"methods": [], "seeds": "", "method_clients": []}
    lines = method_lines(content)
    clients = list(dict.fromkeys(name for line in lines for name in line["clients"]))
    count = len(lines)
    return {
        "title": f"{count} {'method' if count == 1 else 'methods'} on {plain(content['table'])}",
        "methods": lines,
        "seeds": _seeds(content),
        "method_clients": clients if len(clients) <= MOST_CLIENTS else [],
    }


def method_lines(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What table and page say of each method, as text.

    With one run the interval is that of its largest disparity, from its rows; with several the
    spread is over seeds.
    """
    runs = {run["method"]: run for run in content["runs"]}
    lines = []
    for method in content["methods"]:
        several = len(method["seeds"]) > 1
        run = runs[method["method"]]
        if several:
            largest = method["largest_disparity"]
            low, high = largest["low"], largest["high"]
        else:
            low, high = run["low"], run["high"]
        lines.append(
            {
                "method": method["method"],
                "what": method["what"],
                "failed": method["failed"],
                "worst_accuracy": _spread(method["worst_accuracy"], 3),
                "accuracy": _spread(method["accuracy"], 3),
                "worst_train_loss": _spread(method["worst_train_loss"], 4),
                "largest": number(method["largest_disparity"]["mean"], 3),
                "interval": _interval(low, high),
                "verdicts": [str(method["verdicts"].get(verdict, 0)) for verdict in _VERDICTS],
                "rounds": _whole(method["rounds"]["mean"]),
                "megabytes": _short(method["bytes_from_clients"]["mean"], 1e6),
                "seconds": _short(method["seconds"]["mean"], 1.0),
                "clients": {
                    name: (_spread(who["accuracy"], 3), _spread(who["disparity"], 3))
                    for name, who in method["clients"].items()
                },
            }
        )
    return lines


def _seeds(content: Mapping[str, Any]) -> str:
    count = max((len(method["seeds"]) for method in content["methods"]), default=1)
    return f", mean of {count} seeds ± half its 95 % interval" if count > 1 else ""


def _spread(over: Mapping[str, float | None], digits: int) -> str:
    """A mean, with half its interval where there is one."""
    mean, high = over["mean"], over["high"]
    if mean is None or high is None:
        return number(mean, digits)
    return f"{number(mean, digits)} ± {number(high - mean, digits)}"


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "–"
    return "–".join(f"{end:.3f}".replace("0.", ".", 1) for end in (low, high))


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _short(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:.3g}"
