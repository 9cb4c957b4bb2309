"""The command that draws the trade-off curve."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from fcfl.errors import Interrupted
from fcfl.report.page import write_page
from fcfl.report.words import number, plain
from fcfl.results import SweepPoint
from fcfl.runs import Experiment
from fcfl.runs.budget_sweep import check_sweep, parse_budgets, run_sweep
from fcfl.training.rounds import Session

from .console import (
    INFEASIBLE,
    Client,
    Debug,
    Drop,
    Label,
    Metric,
    Positive,
    Seed,
    Sensitive,
    TestSize,
    WrongUsage,
    app,
    check_columns,
    note,
    number_or_word,
    one_line_errors,
    out_console,
    progress_bar,
    say,
    usage,
    words,
)


@app.command(
    epilog="Examples:\n\n  fcfl sweep adult --sensitive race --budgets 0.2,0.1,0.05,0.02,0.01\n\n"
    "  fcfl sweep adult --sensitive race --relative 1.0,0.8,0.6,0.4,0.2",
)
def sweep(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or a built-in set.")],
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    metric: Metric = "demographic_parity",
    budgets: Annotated[
        str | None, typer.Option(metavar="X,X,…", help="Budgets to train under.")
    ] = None,
    relative: Annotated[
        str | None,
        typer.Option(metavar="X,X,…", help="Shares of the disparity each client has without any."),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="As for train.")] = "sqp",
    l2: Annotated[str | None, typer.Option("--l2", metavar="X|auto", help="As for train.")] = None,
    objective: Annotated[
        str | None, typer.Option(metavar="max|X|auto", help="As for train.")
    ] = None,
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/TABLE-sweep.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Keep the points that are finished in --out, go on with the others."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace points with other settings in --out.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Train under one budget after another: what each tightening costs.

    sqp trains every point after the first twice, from the point before and from
    zero, and keeps the better run that meets its budgets; other methods start from
    zero. What is left to cross-validation is chosen once. Writes sweep.json and a
    folder per point.

    Exit codes: 0 budgets met on the training rows at every point, 1 an error, 2
    wrong usage, 3 done, but a budget is exceeded on the training rows.
    """
    with one_line_errors(debug):
        if (budgets is None) == (relative is None):
            both = ", not both" if budgets is not None else ""
            raise WrongUsage(f"Give --budgets or --relative{both}.")
        if resume and overwrite:
            raise WrongUsage("Give --resume or --overwrite, not both.")
        is_relative = relative is not None
        with usage():
            values = parse_budgets(budgets or relative or "")
            experiment = Experiment(
                table=table,
                client=client,
                label=label,
                sensitive=words(sensitive),
                positive=positive,
                drop=words(drop),
                metric=metric,
                method=method,
                l2=number_or_word("l2", l2, ("auto",)),
                objective=number_or_word("objective", objective, ("max", "auto")),
                seed=seed,
                test_size=test_size,
            )
            check_sweep(experiment, values, relative=is_relative)
        check_columns(experiment)
        folder = out or Path("runs") / f"{Path(table).stem}-sweep"
        try:
            with progress_bar("sweep") as on_round:
                session = Session(folder, resume, on_round, note)
                curve = run_sweep(
                    experiment, values, session, relative=is_relative, overwrite=overwrite
                )
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise Interrupted(f"{_told(stopped)} {_how_to_go_on(folder, overwrite)}") from None
        write_page(folder)
        out_console.print(curve_table(curve.points))
        say(f"Written to {folder}")
        exceeded = [point.folder for point in curve.points if not point.budgets_met]
        if exceeded:
            note(f"Budgets are exceeded on the training rows at {', '.join(exceeded)}.")
            raise typer.Exit(INFEASIBLE)


def _told(stopped: BaseException) -> str:
    return str(stopped) if isinstance(stopped, Interrupted) else "Stopped."


def _how_to_go_on(folder: Path, overwrite: bool) -> str:
    instead = " in place of --overwrite" if overwrite else ""
    place = shlex.quote(str(folder))
    return f"Go on with the same command and --resume{instead} --out {place}"


def curve_table(points: Sequence[SweepPoint]) -> Grid:
    """One line per budget, and a second where it is exceeded on the training rows."""
    table = Grid(box=None, title="trade-off", title_justify="left")
    first = "budget" if points[0].relative is None else "relative"
    table.add_column(first, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for heading in (
        "rounds", "worst\nclient", "its\ntrain\nloss", "its\ntest\naccu-\nracy",
        "all\nrows\naccu-\nracy", "largest\ntrain,\nsmooth", "largest\ntest,\nhard",
    ):  # fmt: skip
        table.add_column(heading, justify="right", overflow="fold")
    for point in points:
        table.add_row(
            f"{point.value:g}",
            _status(point),
            str(point.rounds),
            plain(point.worst_client or "–"),
            number(point.worst_client_train_loss),
            number(point.worst_client_test_accuracy),
            number(point.test_accuracy),
            number(point.largest_train_disparity),
            number(point.largest_test_disparity),
        )
    return table


def _status(point: SweepPoint) -> str:
    """How training ended, and whether a budget is exceeded on the training rows."""
    return point.status if point.budgets_met else f"{point.status}\nexceeded"
