"""The command that runs several methods on the same rows."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fcfl.errors import Interrupted
from fcfl.report.method_tables import methods_table
from fcfl.report.page import write_comparison, write_page
from fcfl.runs import Experiment
from fcfl.runs.method_comparison import parse_methods, run_comparison
from fcfl.runs.settings import parse_budget
from fcfl.server.registry import METHODS
from fcfl.training.rounds import Session

from .console import (
    FAILED,
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
    epilog="Examples:\n\n  fcfl compare adult --sensitive race --budget 0.05\n\n"
    "  fcfl compare a.csv --client site --label died --sensitive race --budget 0.05 "
    "--methods sqp,fedavg,afl --seeds 5",
)
def compare(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or a built-in set.")],
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    metric: Metric = "demographic_parity",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET", help="As for train; methods that know no budgets are judged by it."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help=f"Of {', '.join(METHODS)}. Default: all of them."),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="Runs of each method, with seeds from --seed on; then means and intervals."
        ),
    ] = 1,
    l2: Annotated[
        str | None,
        typer.Option(
            "--l2",
            metavar="X|auto",
            help="Weight of |params|²/2 for every method. Default: each method's own.",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="First parameters: zero, or uniform (random). "
            "Default: zero for one seed, uniform for several.",
        ),
    ] = None,
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/TABLE-compare.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs that are finished in --out.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run several methods on the same rows, from the same start, with the same model.

    One line for each: accuracy and disparity on held-out rows, rounds and bytes
    that the clients sent. Writes a folder for each run, comparison.json and
    report.html.

    Exit codes: 0 done, 1 an error, also of a single method, 2 wrong usage.
    """
    with one_line_errors(debug):
        with usage():
            names = parse_methods(methods)
            experiment = Experiment(
                table=table,
                client=client,
                label=label,
                sensitive=words(sensitive),
                positive=positive,
                drop=words(drop),
                metric=metric,
                budget=None if budget is None else parse_budget(budget),
                l2=number_or_word("l2", l2, ("auto",)),
                start=start or ("zero" if seeds == 1 else "uniform"),  # type: ignore[arg-type]
                seed=seed,
                test_size=test_size,
            )
        check_columns(experiment)
        if table == "synthetic":
            raise WrongUsage("The synthetic problem has no rows to compare methods on.")
        folder = out or Path("runs") / f"{Path(table).stem}-compare"
        try:
            with progress_bar("compare") as on_round:
                session = Session(folder, resume, on_round, note)
                comparison = run_comparison(experiment, names, range(seed, seed + seeds), session)
        except Interrupted as stopped:
            raise Interrupted(
                f"{stopped} Go on with the same command and --resume --out "
                f"{shlex.quote(str(folder))}"
            ) from None
        finished = [folder / run.folder for run in comparison.runs if run.part is not None]
        for place in finished:
            write_page(place)
        out_console.print(methods_table(comparison), "")
        if finished:
            say(f"Written to {folder}; open {write_comparison(finished, folder, comparison)}")
        if len(finished) < len(comparison.runs):
            raise typer.Exit(FAILED)
