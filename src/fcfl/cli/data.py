"""fcfl data: list and describe data sets."""

from typing import Annotated, Any

from rich.table import Table as Grid
from typer.core import TyperCommand

from fcfl.data import BUILTIN, describe, table_files
from fcfl.report.terminal import MOST_CLIENTS, federation_table
from fcfl.runs import Experiment
from fcfl.runs.opening import open_table
from fcfl.runs.settings import DATA

from . import eicu
from .console import app, asking, note, out_console, say
from .options import Options, command
from .train import check_columns

_SYNTHETIC = "Two non-convex objectives in 20 dimensions (the paper, section 5.2), no rows"
_EICU = "Hospital stays, from your own copy of the tables: fcfl data eicu --help"


class _Data(TyperCommand):
    """`fcfl data TABLE`, and `fcfl data eicu` as a command of its own with its own options."""

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **more: Any) -> Any:
        if args[:1] == ["eicu"]:
            return eicu.eicu_command.make_context(f"{info_name} eicu", args[1:], *rest, **more)
        return super().make_context(info_name, args, *rest, **more)


@command(
    app,
    cls=_Data,
    epilog="Examples:\n\n  fcfl data\n\n  fcfl data adult --sensitive sex\n\n"
    "  fcfl data a.csv --client site --label died --sensitive race\n\n"
    "  fcfl data eicu --help",
)
def data(
    settings: Annotated[
        Experiment | None,
        Options(Experiment, DATA, without_table="Leave it out to list the built-in sets."),
    ],
) -> None:
    """List the built-in data sets, or describe one: rows, groups, label rates.

    fcfl data eicu DIR makes a table of hospital stays from the eICU tables; it
    has options of its own.
    """
    if settings is None:
        _list_sets()
    elif settings.table == "synthetic":
        out_console.print(_SYNTHETIC, highlight=False)
    else:
        check_columns(settings)
        _describe(settings)


def _list_sets() -> None:
    sets = Grid.grid(padding=(0, 2))
    for name, what in {**BUILTIN, "synthetic": _SYNTHETIC, "eicu": _EICU}.items():
        sets.add_row(f"[bold]{name}[/]", what)
    out_console.print(sets, "\nDescribe one with: fcfl data NAME", highlight=False)


def _describe(settings: Experiment) -> None:
    federation, _ = asking(open_table, settings)
    for sentence in federation.notes:
        note(sentence)
    clients = describe(federation)
    several = "," in settings.table and len(table_files(settings.table))
    title = f"{several} files" if several else settings.table
    out_console.print(federation_table(title, clients, out_console.width), "")
    features, label = federation.schema.n_features, federation.columns.label
    more = f"{len(clients)} clients, " if len(clients) > MOST_CLIENTS else ""
    say(f"{more}{features} features, label {label}: {federation.labels[1]} counts as 1")
