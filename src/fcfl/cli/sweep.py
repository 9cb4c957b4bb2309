"""fcfl sweep: the trade-off curve between budgets and loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table as Grid

from fcfl.report.comparisons import tradeoff_sentence
from fcfl.report.layout import Column, fitted_table
from fcfl.report.page import write_page
from fcfl.report.words import number
from fcfl.results import Sweep
from fcfl.results.many_runs import SweepPoint
from fcfl.runs import Experiment
from fcfl.runs.many_runs import check_sweep, run_sweep
from fcfl.runs.settings import DATA
from fcfl.runs.text_values import read_numbers
from fcfl.training.session import Session

from .console import (
    INFEASIBLE,
    WrongUsage,
    flag,
    note,
    out_console,
    progress_bar,
    resumable,
    run_folder,
    say,
    usage,
)
from .settings import NOTHING, Given, Tables, out_folder, takes
from .train import check_resume, experiment_of

app = App(
    name="sweep",
    help_epilogue="Examples:\n\n"
    "  fcfl sweep adult --sensitive race --budgets 0.2,0.1,0.05,0.02,0.01\n\n"
    "  fcfl sweep adult --sensitive race --relative 1.0,0.8,0.6,0.4,0.2",
)


@app.default
@takes(
    *(Experiment, DATA, "metric", "confidence", "max_accuracy_loss", "max_rate_shift"),
    *("pooling", "new_rows", "min_group_rows", "method", "l2", "objective", "starts"),
)
def sweep(
    *table: Tables,
    given: Given = NOTHING,
    budgets: Annotated[
        str | None, Parameter(metavar="X,X,…", help="Budgets to train under.")
    ] = None,
    relative: Annotated[
        str | None,
        Parameter(metavar="X,X,…", help="Shares of the disparity each client has without budgets."),
    ] = None,
    out: Annotated[Path | None, out_folder("TABLE-sweep")] = None,
    resume: Annotated[bool, flag("Keep the finished points in --out; train the others.")] = False,
    overwrite: Annotated[bool, flag("Replace points with other settings in --out.")] = False,
) -> None:
    """Train under one budget after another: what each tightening costs.

    sqp trains every point after the first twice, from the point before and from
    zero, and keeps the better run that meets its budgets; other methods start from
    zero. Settings that are left open are chosen once. Writes sweep.json and a
    folder per point.

    Exit codes: 0 budgets met on the training rows at every point, 1 an error, 2
    wrong usage, 3 done, but a budget is exceeded on the training rows, or a model
    selects nearly nobody, nearly everybody, or fewer than half as many as without
    budgets.
    """
    if (budgets is None) == (relative is None):
        both = ", not both" if budgets is not None else ""
        raise WrongUsage(f"Give --budgets or --relative{both}.")
    check_resume(resume, overwrite)
    is_relative = relative is not None
    settings = experiment_of(table, given)
    with usage():
        values = read_numbers("budgets", budgets or relative or "")
        check_sweep(settings, values, relative=is_relative)
    folder = out or run_folder(settings.table, "sweep")
    with resumable(), progress_bar("sweep") as on_round:
        session = Session(folder, resume, on_round, note)
        curve = run_sweep(settings, values, session, relative=is_relative, overwrite=overwrite)
    for point in curve.points:
        write_page(folder / point.folder)
    _show(curve, folder, write_page(folder))


def _show(curve: Sweep, folder: Path, page: Path) -> None:
    """Print the curve as a table; a point that exceeds its budget fails the command."""
    out_console.print(curve_table(curve.points))
    say(tradeoff_sentence(curve.points))
    say(f"Written to {folder}; open {page}")
    exceeded = [point.folder for point in curve.points if not point.budgets_met]
    if exceeded:
        note(f"Budgets are exceeded on the training rows at {', '.join(exceeded)}.")
    degenerate = [point.folder for point in curve.points if point.degenerate]
    if degenerate:
        points = ", ".join(degenerate)
        note(f"The model selects nearly nobody, nearly everybody, or too few at {points}.")
    if exceeded or degenerate:
        raise SystemExit(INFEASIBLE)


def curve_table(points: Sequence[SweepPoint]) -> Grid:
    """Return one line per budget, with whether it is met on the training rows."""
    judged = [point.judged for point in points]
    losses = [number(point.worst_client_train_loss) for point in points]
    first = "budget" if points[0].relative is None else "relative"
    statuses = ["degenerate" if point.degenerate else point.status for point in points]
    columns = [
        Column(first, [f"{point.value:g}" for point in points]),
        Column("status", statuses, is_number=False),
        Column("met in\ntrain-\ning", [("no", "yes")[point.budgets_met] for point in points]),
        Column("worst\nclient’s\ntrain\nloss", losses, rank=2),
        Column("all\nrows\naccu-\nracy", [number(one.accuracy, 3) for one in judged]),
        Column("all\nrows\nse-\nlected", [number(one.selected, 3) for one in judged], rank=1),
        Column("lowest\naccu-\nracy", [number(one.lowest_accuracy, 3) for one in judged]),
        Column("differ-\nence,\nall\nrows", [number(one.all_rows, 3) for one in judged]),
        Column("median\nclient", [number(one.median, 3) for one in judged], rank=3),
        Column("largest\nclient", [number(one.largest, 3) for one in judged], rank=2),
        Column("kept", [one.keeps for one in judged]),
        Column("ex-\nchan-\nges", [f"{point.exchanges:,}" for point in points], rank=1),
    ]
    return fitted_table("trade-off", columns, out_console.width)
