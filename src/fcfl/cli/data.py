"""fcfl data: list and describe data sets."""

from importlib.metadata import entry_points
from typing import Annotated

from cyclopts import App
from rich.table import Table as Grid

from fcfl.data import BUILTIN, describe, table_files
from fcfl.report.terminal import MOST_CLIENTS, federation_table
from fcfl.runs import Experiment
from fcfl.runs.opening import open_table
from fcfl.runs.settings import DATA

from .console import note, out_console, say
from .settings import NOTHING, Given, table_argument, takes
from .train import experiment_of

_SYNTHETIC = "Two non-convex objectives in 20 dimensions (the paper, section 5.2), no rows"
_ADDED = {
    entry.name.removeprefix("data."): entry.value
    for entry in entry_points(group="fcfl.commands")
    if entry.name.startswith("data.")
}


app = App(
    name="data",
    help_epilogue="Examples:\n\n  fcfl data\n\n  fcfl data adult --sensitive sex\n\n"
    "  fcfl data a.csv --client site --label died --sensitive race",
)
for _name, _app in _ADDED.items():
    app.command(_app, name=_name)


@app.default
@takes(Experiment, DATA)
def data(
    *table: Annotated[str, table_argument("Leave it out to list the built-in sets.")],
    given: Given = NOTHING,
) -> None:
    """List the built-in data sets, or describe one: rows, groups, label rates."""
    if not table:
        _list_sets()
        return
    settings = experiment_of(table, given)
    if settings.table == "synthetic":
        out_console.print(_SYNTHETIC, highlight=False)
    else:
        _describe(settings)


def _list_sets() -> None:
    sets = Grid.grid(padding=(0, 2))
    added = {name: f"Made from your own files: fcfl data {name} --help" for name in _ADDED}
    for name, what in {**BUILTIN, "synthetic": _SYNTHETIC, **added}.items():
        sets.add_row(f"[bold]{name}[/]", what)
    out_console.print(sets, "\nDescribe one with: fcfl data NAME", highlight=False)


def _describe(settings: Experiment) -> None:
    federation = open_table(settings)
    for sentence in federation.notes:
        note(sentence)
    clients = describe(federation)
    several = "," in settings.table and len(table_files(settings.table))
    title = f"{several} files" if several else settings.table
    out_console.print(federation_table(title, clients, out_console.width), "")
    features, label = federation.schema.n_features, federation.columns.label
    more = f"{len(clients)} clients, " if len(clients) > MOST_CLIENTS else ""
    say(f"{more}{features} features, label {label}: {federation.labels[1]} counts as 1")
