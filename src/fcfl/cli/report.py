"""fcfl report: show a folder's result again, or several side by side."""

from pathlib import Path
from typing import Annotated

import typer

from fcfl.report.page import write_comparison, write_page
from fcfl.report.terminal import print_result, runs_table
from fcfl.results import read_results, read_run

from .console import app, out_console, say
from .options import command


@command(
    app,
    epilog="Examples:\n\n  fcfl report runs/mine\n\n"
    "  fcfl report runs/a runs/b --out comparison.html",
)
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs or audits.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write, or its folder. Default: comparison.html for several."),
    ] = None,
) -> None:
    """Write report.html again from a folder's files, or compare several folders."""
    if len(folders) == 1:
        run = read_run(folders[0])
        page = write_page(folders[0], out)
        if run.result is not None:
            print_result(out_console, run.result)
    else:
        page = write_comparison(folders, out or Path("comparison.html"))
        out_console.print(runs_table(read_results(folders)), "")
    say(f"Written to {page}")
