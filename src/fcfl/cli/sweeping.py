"""The command that draws the trade-off curve."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from fcfl.experiment import Experiment
from fcfl.experiment.sweep import parse_budgets, run_sweep
from fcfl.experiment.training import Session
from fcfl.report.page import write_page
from fcfl.report.words import number, plain

from .common import (
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
    consistency: Annotated[
        str | None, typer.Option(metavar="max|X|auto", help="As for train.")
    ] = None,
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/TABLE-sweep.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the points that are finished in --out.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Train under one budget after another: what each tightening costs.

    Every point starts from the one before; what is left to cross-validation is
    chosen once. Writes sweep.json and a folder per point.
    """
    with one_line_errors(debug):
        if (budgets is None) == (relative is None):
            raise WrongUsage("Give --budgets or --relative.")
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
                consistency=number_or_word("consistency", consistency, ("max", "auto")),
                seed=seed,
                test_size=test_size,
            )
        check_columns(experiment)
        folder = out or Path("runs") / f"{Path(table).stem}-sweep"
        with progress_bar("sweep") as watch:
            session = Session(folder, resume, watch, note)
            curve = run_sweep(experiment, values, session, relative=relative is not None)
        write_page(folder)
        out_console.print(curve_table(curve["points"]))
        say(f"Written to {folder}")


def curve_table(points: list[dict[str, Any]]) -> Grid:
    """One line per budget."""
    table = Grid(box=None, title="trade-off", title_justify="left")
    first = "budget" if "budget" in points[0] else "relative"
    for heading in (
        first, "rounds", "worst client", "its train\nloss", "its test\naccuracy",
        "all rows\naccuracy", "largest\ntrain, smooth", "largest\ntest, hard",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    measured = (
        "worst_client_train_loss", "worst_client_test_accuracy", "test_accuracy",
        "largest_train_disparity", "largest_test_disparity",
    )  # fmt: skip
    for point in points:
        told = (number(point[key]) for key in measured)
        table.add_row(
            f"{point[first]:g}", str(point["rounds"]), plain(point["worst_client"]), *told
        )
    return table
