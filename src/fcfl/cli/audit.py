"""Commands that judge and show: audit, report."""

from pathlib import Path
from typing import Annotated

import typer

from fcfl.report.page import write_comparison, write_page
from fcfl.report.terminal import print_result, runs_table
from fcfl.results import read_results, read_run
from fcfl.runs.audit_run import AuditSettings, run_audit
from fcfl.runs.settings import parse_budget

from .console import (
    Budget,
    Debug,
    Ratio,
    Sensitive,
    WrongUsage,
    app,
    err_console,
    note,
    one_line_errors,
    out_console,
    say,
    usage,
    words,
)

GATE_FAILED = 4
MOST_NOTES = 8  # on the screen; all are in result.json and on the page


@app.command(
    epilog="Examples:\n\n"
    "  fcfl audit p.csv --client branch --label y --prediction yhat --sensitive sex --ratio 0.8\n\n"
    "  fcfl audit p.csv --client site --prediction score --threshold 0.5 --sensitive race "
    "--budget 0.05,north=0.1\n\n"
    "  fcfl audit p.parquet --client site --label y --prediction yhat --policy policy.toml "
    "--fail-on exceeded",
)
def audit(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file with any model's predictions.")],
    client: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that says whose row it is.")
    ],
    prediction: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column with predicted classes, or scores.")
    ],
    sensitive: Sensitive = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column with the right answer. Not needed for selection rates."
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="Value that counts as selected. Default: the last one."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="demographic_parity (default), equal_opportunity or equalized_odds.",
        ),
    ] = None,
    budget: Budget = None,
    ratio: Ratio = None,
    policy: Annotated[
        Path | None, typer.Option(help="TOML file with rules, instead of --metric and budgets.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Predictions are scores; at least this is selected.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="How sure the intervals are, all of them together.")
    ] = 0.95,
    simultaneous: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="bonferroni: all intervals hold together; none: each on its own.",
        ),
    ] = "bonferroni",
    min_group_rows: Annotated[
        int | None, typer.Option(help="Groups with fewer rows are left out, and named.")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="VERDICT",
            help="Exit with 4 where a budget is exceeded, or also where it is undetermined.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/audit-TABLE.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Judge any model's predictions: each client's disparity against its budget.

    Every disparity has an interval, and the verdict met, exceeded or undetermined.
    Writes result.json and report.html to a folder.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 4 --fail-on found a failure.
    """
    with one_line_errors(debug):
        if policy is not None and metric is not None:
            raise WrongUsage("Give `policy` or `metric`, not both.")
        with usage():
            settings = AuditSettings(
                table=table,
                client=client,
                prediction=prediction,
                sensitive=words(sensitive),
                label=label,
                positive=positive,
                metric=metric or "demographic_parity",
                budget=None if budget is None else parse_budget(budget),
                ratio=ratio,
                policy=None if policy is None else str(policy),
                threshold=threshold,
                confidence=confidence,
                simultaneous=simultaneous,  # type: ignore[arg-type]
                min_group_rows=min_group_rows,
                fail_on=fail_on,  # type: ignore[arg-type]
            )
        folder = out or Path("runs") / f"audit-{Path(table).name.split('.')[0]}"
        audited = run_audit(settings, folder)
        page = write_page(folder)
        _say_notes(audited.notes)
        print_result(out_console, audited.result)
        say(f"Written to {folder}; open {page}")
        for sentence in audited.failures:
            err_console.print(f"failed: {sentence}", markup=False, highlight=False, soft_wrap=True)
        if audited.failures:
            raise typer.Exit(GATE_FAILED)


@app.command(
    epilog="Examples:\n\n  fcfl report runs/mine\n\n"
    "  fcfl report runs/a runs/b --out comparison.html",
)
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs or audits.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write, or its folder. Default: comparison.html for several."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw report.html again from a folder's files, or compare several folders."""
    with one_line_errors(debug):
        if len(folders) == 1:
            run = read_run(folders[0])
            page = write_page(folders[0], out)
            if run.result is not None:
                print_result(out_console, run.result)
        else:
            page = write_comparison(folders, out or Path("comparison.html"))
            out_console.print(runs_table(read_results(folders)), "")
        say(f"Written to {page}")


def _say_notes(notes: tuple[str, ...]) -> None:
    for sentence in notes[:MOST_NOTES]:
        note(sentence)
    if len(notes) > MOST_NOTES:
        note(f"{len(notes) - MOST_NOTES} more notes are in result.json and on the page.")
