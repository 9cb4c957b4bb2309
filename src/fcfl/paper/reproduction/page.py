"""Reproduced items on the screen and as a page: everything is read from their result files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fcfl.report.words import plain

from .drawings import figures_of
from .glance import glance
from .page_tables import BESIDE, Item, TextTable, failures_of, tables_of
from .wording import readings

PAGE = "reproduction.md"
_UNBRACKETED = str.maketrans("", "", "()")
_QUICK = (
    "A quick trial: one seed, few rounds, settings not chosen. Its numbers show that the item "
    "runs, nothing else."
)
_HEAD = """# The paper's tables and figures again

Each item names the command that made it; `fcfl reproduce all` makes all of them with five seeds
and twenty re-splits. The paper is FCFL (Cui et al., 2021). Every number is on test or held-out
rows unless it says training rows. Settings are chosen on training rows only; a line that was
added after held-out rows had been looked at says so under its item. *Authors' options* is the
two-stage method with the behaviour of the authors' public code; *sqp* solves the same problem by
sequential quadratic programming. Disparities are absolute differences of hard group rates; "met
in training" counts runs whose smooth disparities on training rows keep every budget (to .001),
"within" runs whose held-out hard disparity does. Conclusions are drawn from the random splits,
not from the one original split. Every run's figures are in `results/`.
"""


def read_item_files(folder: Path) -> list[dict[str, Any]]:
    """All result files of items in a folder."""
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))]


def screen_of(item: Item) -> Iterator[Table | str]:
    """Tables and the reading, for a terminal."""
    yield f"{item['name']}: {item['title']} ({item['of']})"
    for found in tables_of(item):
        yield _grid(found)
    yield from _sentences(item)


def _grid(found: TextTable) -> Table:
    table = Table(
        title=Text(plain(found.caption)), title_justify="left", box=box.SIMPLE_HEAD,
        show_edge=False, pad_edge=False, collapse_padding=True, padding=(0, 1),
    )  # fmt: skip
    table.add_column(found.headings[0], vertical="bottom", overflow="fold")
    for heading in found.headings[1:]:
        stacked = heading.replace(BESIDE, " ").replace(" ", "\n").translate(_UNBRACKETED)
        table.add_column(stacked, justify="right", vertical="bottom", overflow="fold")
    for row in found.rows:
        cells = (cell.replace(" ± ", "±").replace(BESIDE, "\n") for cell in row[1:])
        table.add_row(Text(plain(row[0].replace("*", ""))), *cells)
    return table


def _sentences(item: Item) -> list[str]:
    said = [_QUICK] if item["scale"]["quick"] else []
    return [*said, *readings(item), *failures_of(item)]


def write_reproduction(items: Sequence[Item], folder: Path) -> Path:
    """Write the page and a folder of figures beside it."""
    figures = folder / "reproduction"
    figures.mkdir(parents=True, exist_ok=True)
    parts = [_HEAD, _contents(items), _glance(items)]
    for item in items:
        for name, drawn in figures_of(item).items():
            (figures / name).write_text(str(drawn) + "\n", encoding="utf-8")
        parts.append(_section(item))
    path = folder / PAGE
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _contents(items: Sequence[Item]) -> str:
    lines = ["| item | of the paper |", "| --- | --- |"]
    lines += [f"| [{i['name']}](#{i['name']}) | {i['of']}: {i['title'].lower()} |" for i in items]
    return "\n".join(lines) + "\n"


def _glance(items: Sequence[Item]) -> str:
    lines = [line for found in glance(items) for line in (*markdown(found), "")]
    return "\n".join(["## At a glance", "", *lines]) if lines else ""


def _section(item: Item) -> str:
    lines = [f"## {item['name']}", "", f"{item['title']} ({item['of']}).", ""]
    lines += [f"**The paper.** {item['paper']}", ""]
    lines += [f"**Protocol.** {_protocol(item)} Made by `{_command(item)}`.", ""]
    lines += [f"**Settings.** {item['chosen'][0].upper()}{item['chosen'][1:]}.", ""]
    for name, drawn in figures_of(item).items():
        lines += [f"![{_title(drawn)}](reproduction/{name})", ""]
    lines += ["**Reading.**", ""]
    lines += [f"* {sentence}" for sentence in _sentences(item)] + [""]
    for found in tables_of(item):
        lines += [*markdown(found), ""]
    return "\n".join(lines)


def _title(drawn: Any) -> str:
    return unescape(str(drawn).split("<title", 1)[1].split(">", 1)[1].split("</title>", 1)[0])


def _protocol(item: Item) -> str:
    said = [f"{words}" for words in item["protocols"].values()]
    rows = "; ".join(said)
    return f"{rows[0].upper()}{rows[1:]}.{_source(item)}"


def _command(item: Item) -> str:
    """What makes this item's numbers."""
    scale = item["scale"]
    splits = f" --splits {scale['splits']}" if "resplits" in item["protocols"] else ""
    return f"fcfl reproduce {item['name']} --seeds {scale['seeds']}{splits}"


def _source(item: Item) -> str:
    """Which rows stood in for data that are not here."""
    words = {
        "demo": " Here: the open eICU demo, regions as clients, APACHE day-one features.",
        "simulated": " Here: simulated tables in the schema of eICU, no patient behind any row.",
        "own": " Here: the folder of eICU tables that was given, hospitals as clients.",
    }
    sources = {table.split(":")[1] for table in item["tables"] if table.startswith("eicu:")}
    return "".join(words[source] for source in sorted(sources))


def markdown(found: TextTable) -> Iterator[str]:
    """A table in Markdown under its caption."""
    yield f"{found.caption[0].upper()}{found.caption[1:]}:"
    yield ""
    yield "| " + " | ".join(found.headings) + " |"
    yield "| --- |" + " ---: |" * (len(found.headings) - 1)
    for row in found.rows:
        yield "| " + " | ".join(row) + " |"


def item_path(folder: Path, item: Mapping[str, Any]) -> Path:
    """The result file of an item."""
    return folder / f"{item['name']}.json"
