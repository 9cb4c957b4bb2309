"""The command that turns the eICU tables into one table of stays."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from fcfl.paper.eicu import (
    FEATURES,
    Options,
    Prepared,
    check_out,
    check_size,
    clients,
    prepare,
    simulate,
    write_prepared,
)
from fcfl.report.terminal import MOST_CLIENTS
from fcfl.report.words import number, plain

from .console import (
    Debug,
    WrongUsage,
    err_console,
    note,
    one_line_errors,
    out_console,
    say,
    usage,
    words,
)

_app = typer.Typer(
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _features_help() -> str:
    return "; ".join(f"{name}: {what}" for name, what in FEATURES.items()) + "."


@_app.command(
    epilog="Examples:\n\n  fcfl data eicu eicu-crd-2.0 --label los7 --out stays.parquet\n\n"
    "  fcfl data eicu demo --features apache --client region --out stays.parquet\n\n"
    "  fcfl data eicu --simulated simulated --hospitals 11 --stays 2000",
)
def eicu(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder with the tables as published, .csv.gz or .csv."),
    ],
    features: Annotated[str, typer.Option(metavar="NAME", help=_features_help())] = "day1",
    label: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="los7: hospital stay above 7 days; mortality: died in hospital or unit.",
        ),
    ] = "los7",
    client: Annotated[
        str, typer.Option(metavar="NAME", help="Whose row it is: hospital or region.")
    ] = "hospital",
    min_stays: Annotated[
        int | None,
        typer.Option(
            help="Leave out clients with fewer stays. Default: 1500 for hospitals, 1 for regions."
        ),
    ] = None,
    sensitive: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help="Groups to compare: race (Caucasian or not), gender, or both with a comma. "
            "What says them outright leaves the inputs.",
        ),
    ] = "race",
    out: Annotated[Path, typer.Option(help="Parquet file to write.")] = Path("stays.parquet"),
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Write simulated tables to DIR instead of reading.")
    ] = False,
    hospitals: Annotated[int, typer.Option(help="With --simulated: how many hospitals.")] = 11,
    stays: Annotated[int, typer.Option(help="With --simulated: stays of each hospital.")] = 2000,
    seed: Annotated[int, typer.Option(help="With --simulated: seed of the draws.")] = 0,
    debug: Debug = False,
) -> None:
    """Turn the eICU tables in DIR into one table of hospital stays.

    Applies the published cohort rules, shows how many stays each removes, and
    writes client, label, groups and features to one file; beside it the same
    counts as FILE.cohort.json. The database is credentialed: get your own copy,
    or try it all with --simulated.
    """
    with one_line_errors(debug):
        _check_fitting(context, simulated)
        if simulated:
            with usage():
                check_size(hospitals, stays)
            with table_bar("writing", each=False) as watch:
                rows = simulate(folder, hospitals, stays, seed, watch)
            _tell_simulated(folder, rows, stays)
            return
        with usage():
            options = Options(features, label, client, min_stays, words(sensitive))
            check_out(out)
        with table_bar("reading", each=True) as watch:
            prepared = prepare(folder, options, watch)
        beside = write_prepared(prepared, out)
        for sentence in prepared.notes:
            note(sentence)
        out_console.print(flow_table(prepared), "", clients_table(prepared), "")
        size = f"{len(prepared.frame)} stays, {len(prepared.features)} inputs"
        say(f"{size}, written to {out}; the counts to {beside}")
        say(f"Next: {next_command(prepared, out)}")


command = typer.main.get_command(_app)


def _check_fitting(context: typer.Context, simulated: bool) -> None:
    """Options that would be ignored are refused."""
    only_simulated = {"hospitals", "stays", "seed"}
    always = {"folder", "debug", "simulated"}
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in always or source is None or source.name != "COMMANDLINE":
            continue
        if simulated != (name in only_simulated):
            fits = "without" if simulated else "with"
            raise WrongUsage(f"{parameter.opts[0]} only goes {fits} --simulated.")


@contextmanager
def table_bar(verb: str, *, each: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A bar for each table or one for all of them, where somebody can see it."""
    if not err_console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err_console, transient=True) as progress:
        task: TaskID | None = None
        current = ""

        def watch(table: str, share: float) -> None:
            nonlocal task, current
            if task is None or (each and table != current):
                task = progress.add_task("", total=1.0)
            current = table
            progress.update(task, completed=share, description=f"{verb} {table}")

        yield watch


def flow_table(prepared: Prepared) -> Grid:
    """The cohort flow: each rule in order, what it removed, what was left."""
    table = Grid(box=None, title="cohort", title_justify="left")
    table.add_column("")
    table.add_column("removed", justify="right")
    table.add_column("left", justify="right")
    table.add_row("stays read", "", f"{prepared.n_read:,}")
    for step in prepared.flow:
        removed = "not applied" if step.removed is None else f"{step.removed:,}"
        table.add_row(f"  {step.words}", removed, f"{step.left:,}")
    table.add_row("stays kept", "", f"{len(prepared.frame):,}")
    return table


def clients_table(prepared: Prepared) -> Grid:
    """Rows, label rate and group sizes of each client, the largest first."""
    options = prepared.options
    described = clients(prepared)
    groups = [
        (attribute, str(group))
        for attribute in options.sensitive
        for group in sorted(prepared.frame[attribute].unique())
    ]
    table = Grid(box=None, title=f"clients: {options.client}", title_justify="left")
    table.add_column(options.client)
    for heading in ("rows", f"{options.label}\nrate", *(group for _, group in groups)):
        table.add_column(heading, justify="right")
    for client in described[:MOST_CLIENTS]:
        counts = (f"{client['groups'][name].get(group, 0):,}" for name, group in groups)
        rate = number(client["positive_rate"])
        table.add_row(plain(client["name"]), f"{client['rows']:,}", rate, *counts)
    if len(described) > MOST_CLIENTS:
        table.add_row(f"and {len(described) - MOST_CLIENTS} more", "", "", *("" for _ in groups))
    return table


def next_command(prepared: Prepared, out: Path) -> str:
    """The training command, as it can be typed; the split is the paper's."""
    options: Any = prepared.options
    return (
        f"fcfl train {shlex.quote(str(out))} --client {options.client} --label {options.label} "
        f"--sensitive {','.join(options.sensitive)} --budget 0.05 --test-size 0.33"
    )


def _tell_simulated(folder: Path, rows: dict[str, int], stays: int) -> None:
    counts = ", ".join(f"{name} {count:,}" for name, count in rows.items())
    say(f"Simulated tables, no patient behind any row, written to {folder}: {counts} rows.")
    fewest = "" if stays >= 2000 else f" --min-stays {max(stays * 3 // 4, 1)}"
    say(f"Next: fcfl data eicu {shlex.quote(str(folder))}{fewest} --out stays.parquet")
