"""The command that lists and describes data sets."""

from typing import Annotated, Any

import typer
from rich.table import Table as Grid
from typer.core import TyperCommand

from fcfl.data import BUILTIN, describe
from fcfl.report.terminal import MOST_CLIENTS, federation_table
from fcfl.runs import Experiment
from fcfl.runs.tasks import open_federation

from . import eicu
from .console import (
    Client,
    Debug,
    Drop,
    Label,
    Positive,
    Seed,
    Sensitive,
    TestSize,
    app,
    check_columns,
    note,
    one_line_errors,
    out_console,
    say,
    usage,
    words,
)


class _Data(TyperCommand):
    """`fcfl data TABLE`, and `fcfl data eicu` as a command of its own with its own options."""

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **more: Any) -> Any:
        if args[:1] == ["eicu"]:
            return eicu.command.make_context(f"{info_name} eicu", args[1:], *rest, **more)
        return super().make_context(info_name, args, *rest, **more)


@app.command(
    cls=_Data,
    epilog="Examples:\n\n  fcfl data\n\n  fcfl data adult --sensitive sex\n\n"
    "  fcfl data a.csv --client site --label died --sensitive race\n\n"
    "  fcfl data eicu --help",
)
def data(
    table: Annotated[
        str | None,
        typer.Argument(help="A built-in set or a CSV or Parquet file; left out: list the sets."),
    ] = None,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    debug: Debug = False,
) -> None:
    """List the built-in data sets, or describe one: rows, groups, label rates.

    fcfl data eicu DIR makes a table of hospital stays from the eICU tables; it
    has options of its own.
    """
    with one_line_errors(debug):
        if table is None:
            sets = Grid.grid(padding=(0, 2))
            for name, what in {**BUILTIN, "synthetic": _SYNTHETIC, "eicu": _EICU}.items():
                sets.add_row(f"[bold]{name}[/]", what)
            out_console.print(sets, "\nDescribe one with: fcfl data NAME", highlight=False)
            return
        if table == "synthetic":
            out_console.print(_SYNTHETIC, highlight=False)
            return
        with usage():
            experiment = Experiment(
                table=table,
                client=client,
                label=label,
                sensitive=words(sensitive),
                positive=positive,
                drop=words(drop),
                seed=seed,
                test_size=test_size,
            )
        check_columns(experiment)
        federation = open_federation(experiment)
        for sentence in federation.notes:
            note(sentence)
        clients = describe(federation)
        out_console.print(federation_table(table, clients), "")
        features, label = federation.schema.n_features, federation.columns.label
        more = f"{len(clients)} clients, " if len(clients) > MOST_CLIENTS else ""
        say(f"{more}{features} features, label {label}: {federation.labels[1]} counts as 1")


_SYNTHETIC = "Two non-convex objectives in 20 dimensions (the paper, section 5.2), no rows"
_EICU = "Hospital stays, from your own copy of the tables: fcfl data eicu --help"
