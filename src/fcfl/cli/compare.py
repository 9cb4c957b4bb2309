"""fcfl compare: several methods on the same rows."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.results import Comparison
from fcfl.runs import Experiment
from fcfl.runs.many_runs import COMPARED, read_methods, run_comparison
from fcfl.runs.settings import DATA
from fcfl.training.session import Session

from .console import (
    FAILED,
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
from .settings import NOTHING, AtLeastOne, Given, Tables, out_folder, takes
from .train import experiment_of

app = App(
    name="compare",
    help_epilogue="Examples:\n\n  fcfl compare adult --sensitive race --budget 0.05\n\n"
    "  fcfl compare a.csv --client site --label died --sensitive race --budget 0.05 "
    "--methods sqp,fedavg,afl --seeds 5",
)


@app.default
@takes(Experiment, DATA, "metric", "budget", "confidence", "min_group_rows", "l2", "start")
def compare(
    *table: Tables,
    given: Given = NOTHING,
    methods: Annotated[
        str | None,
        Parameter(metavar="NAME,…", help=f"Of {', '.join(COMPARED)}. Default: all of them."),
    ] = None,
    seeds: Annotated[
        AtLeastOne,
        Parameter(
            help="Runs of each method, with seeds from --seed on; then means and intervals, and "
            "by default a uniform --start.",
        ),
    ] = 1,
    out: Annotated[Path | None, out_folder("TABLE-compare")] = None,
    resume: Annotated[bool, flag("Keep the runs that are finished in --out.")] = False,
) -> None:
    """Run several methods on the same rows, from the same start, with the same model.

    One line for each: accuracy and difference on held-out rows, over all rows and of
    clients with at least 30 people in every group, budgets kept, rounds and bytes
    that the clients sent. Methods without budgets are judged by them too; plain
    fedavg and the majority class are always there to compare with. Writes a folder
    for each run, comparison.json and report.html.

    Exit codes: 0 done, 1 an error, also of a single method, 2 wrong usage.
    """
    with usage():
        names = read_methods(methods)
    settings = experiment_of(table, given)
    if settings.table == "synthetic":
        raise WrongUsage("The synthetic problem has no rows to compare methods on.")
    if seeds > 1 and "start" not in given:
        settings = replace(settings, start="uniform")
    folder = out or run_folder(settings.table, "compare")
    with resumable(), progress_bar("compare") as on_round:
        session = Session(folder, resume, on_round, note)
        each = range(settings.seed, settings.seed + seeds)
        comparison = run_comparison(settings, names, each, session)
    _show(comparison, folder)


def _show(comparison: Comparison, folder: Path) -> None:
    """Write a page for every finished run and one for all; a failed run fails the command."""
    from fcfl.report.comparisons import methods_sentences, methods_table
    from fcfl.report.page import write_comparison, write_page

    finished = [folder / run.folder for run in comparison.runs if run.part is not None]
    for place in finished:
        write_page(place)
    out_console.print(methods_table(comparison, out_console.width), "")
    for sentence in methods_sentences(comparison):
        say(sentence)
    if finished:
        say(f"Written to {folder}; open {write_comparison(finished, folder, comparison)}")
    if len(finished) < len(comparison.runs):
        raise SystemExit(FAILED)
