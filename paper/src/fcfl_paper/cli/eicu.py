"""`fcfl data eicu`: turn the eICU tables into one table of stays."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from fcfl.cli.console import WrongUsage, flag, note, out_console, say, usage, was_given
from fcfl.report.words import plain
from fcfl.runs.options import words
from fcfl_paper.eicu import Options, Prepared, check_out, client_counts, prepare, write_prepared
from fcfl_paper.eicu.simulate import check_size, simulate

MOST_CLIENTS = 40  # rows of the table of clients
_ONLY_SIMULATED = {"hospitals", "stays", "seed"}
_ONLY_PREPARED = {"features", "label", "client", "min_stays", "sensitive", "out"}

Folder = Annotated[
    Path,
    Parameter(metavar="DIR", help="Folder with the tables as published, .csv.gz or .csv."),
]
Features = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="day1: 53 inputs of the first 24 h: last, smallest and largest values; day1-all: "
        "the same and first values, 82 in all; apache: worst values of day one that APACHE "
        "keeps; needs neither nurseCharting nor lab.",
    ),
]
Label = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="los7: hospital stay above 7 days; mortality: died in hospital or unit.",
    ),
]
Client = Annotated[str, Parameter(metavar="NAME", help="What a client is: hospital or region.")]
MinStays = Annotated[
    int | None,
    Parameter(
        help="Leave out clients with fewer stays. Default: 1500 for hospitals, 1 for regions."
    ),
]
Sensitive = Annotated[
    str,
    Parameter(
        metavar="NAME,…",
        help="Groups to compare: race (Caucasian or not), gender, or both with a comma. "
        "The sensitive columns themselves are not used as inputs.",
    ),
]
Out = Annotated[Path, Parameter(help="Parquet file to write.")]
Simulated = Annotated[bool, flag("Write simulated tables to DIR instead of reading.")]
Hospitals = Annotated[int, Parameter(help="With --simulated: how many hospitals.")]
Stays = Annotated[int, Parameter(help="With --simulated: stays of each hospital.")]
Seed = Annotated[int, Parameter(help="With --simulated: seed of the draws.")]


app = App(
    name="eicu",
    help_epilogue="Examples:\n\n  fcfl data eicu eicu-crd-2.0 --label los7 --out stays.parquet\n\n"
    "  fcfl data eicu demo --features apache --client region --out stays.parquet\n\n"
    "  fcfl data eicu --simulated simulated --hospitals 11 --stays 2000",
)


@app.default
def eicu(
    dir: Folder,
    /,
    *,
    features: Features = "day1",
    label: Label = "los7",
    client: Client = "hospital",
    min_stays: MinStays = None,
    sensitive: Sensitive = "race",
    out: Out = Path("stays.parquet"),
    simulated: Simulated = False,
    hospitals: Hospitals = 11,
    stays: Stays = 2000,
    seed: Seed = 0,
) -> None:
    """Turn the eICU tables in DIR into one table of hospital stays.

    Applies the published cohort rules, shows how many stays each removes, and
    writes client, label, groups and features to one file; beside it the same
    counts as FILE.cohort.json. The database is credentialed: get your own copy,
    or try it with --simulated.
    """
    _check_options(simulated)
    if simulated:
        _simulate(dir, hospitals, stays, seed)
        return
    with usage():
        options = Options(features, label, client, min_stays, words(sensitive))
        check_out(out)
    _prepare(dir, options, out)


def _check_options(simulated: bool) -> None:
    """Raise if an option is given that would be ignored."""
    fits = "without" if simulated else "with"
    for name in sorted(_ONLY_PREPARED if simulated else _ONLY_SIMULATED):
        if was_given(name):
            raise WrongUsage(f"`{name}` only goes {fits} --simulated.")


def _simulate(folder: Path, hospitals: int, stays: int, seed: int) -> None:
    with usage():
        check_size(hospitals, stays)
    with table_bar("writing", each=False) as on_progress:
        rows = simulate(folder, hospitals, stays, seed, on_progress)
    _show_simulated(folder, rows, stays)


def _prepare(folder: Path, options: Options, out: Path) -> None:
    with table_bar("reading", each=True) as on_progress:
        prepared = prepare(folder, options, on_progress)
    counts_file = write_prepared(prepared, out)
    for sentence in prepared.notes:
        note(sentence)
    out_console.print(flow_table(prepared), "", clients_table(prepared), "")
    size = f"{len(prepared.frame)} stays, {len(prepared.features)} inputs"
    say(f"{size}, written to {out}; the counts to {counts_file}")
    say(f"Next: {next_command(options, out)}")


@contextmanager
def table_bar(verb: str, *, each: bool) -> Iterator[Callable[[str, float], None] | None]:
    """Show a progress bar for each table, or one for all; none without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task: TaskID | None = None
        current = ""

        def on_progress(table: str, share: float) -> None:
            nonlocal task, current
            if task is None or (each and table != current):
                task = progress.add_task("", total=1.0)
            current = table
            progress.update(task, completed=share, description=f"{verb} {table}")

        yield on_progress


def flow_table(prepared: Prepared) -> Grid:
    """Return the cohort flow: each rule in order, the stays it removed and those left."""
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
    """Return rows, label rate and group sizes of each client, the largest first."""
    options = prepared.options
    counts = client_counts(prepared)
    groups = [
        (attribute, str(group))
        for attribute in options.sensitive
        for group in sorted(prepared.frame[attribute].unique())
    ]
    table = Grid(box=None, title=f"clients: {options.client}", title_justify="left")
    table.add_column(options.client)
    for heading in ("rows", f"{options.label}\nrate", *(group for _, group in groups)):
        table.add_column(heading, justify="right")
    for client in counts[:MOST_CLIENTS]:
        sizes = (f"{client.groups[name].get(group, 0):,}" for name, group in groups)
        table.add_row(plain(client.name), f"{client.rows:,}", f"{client.positive_rate:.4f}", *sizes)
    if len(counts) > MOST_CLIENTS:
        table.add_row(f"and {len(counts) - MOST_CLIENTS} more", "", "", *("" for _ in groups))
    return table


def next_command(options: Options, out: Path) -> str:
    """Return the training command to type next, with the paper's split."""
    return (
        f"fcfl train {shlex.quote(str(out))} --client {options.client} --label {options.label} "
        f"--sensitive {','.join(options.sensitive)} --budget 0.05 --test-size 0.33"
    )


def _show_simulated(folder: Path, rows: Mapping[str, int], stays: int) -> None:
    counts = ", ".join(f"{name} {count:,}" for name, count in rows.items())
    say(f"Simulated tables, no patient behind any row, written to {folder}: {counts} rows.")
    fewest = "" if stays >= 2000 else f" --min-stays {max(stays * 3 // 4, 1)}"
    say(f"Next: fcfl data eicu {shlex.quote(str(folder))}{fewest} --out stays.parquet")
