"""fcfl report: show a folder's result again, or several side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.report.comparisons import methods_sentences, methods_table, tradeoff_sentence
from fcfl.report.page import write_comparison, write_comparison_page, write_page
from fcfl.report.terminal import print_result, runs_table
from fcfl.results import read_comparison, read_results, read_run
from fcfl.results.files import COMPARISON

from .console import out_console, say
from .sweep import curve_table

app = App(
    name="report",
    help_epilogue="Examples:\n\n  fcfl report runs/mine\n\n"
    "  fcfl report runs/a runs/b --out comparison.html",
)


@app.default
def report(
    folder: Annotated[Path, Parameter(help="Folder of a run, audit, sweep or comparison.")],
    /,
    *more: Annotated[Path, Parameter(help="More folders, to compare.", metavar="FOLDER")],
    out: Annotated[
        Path | None,
        Parameter(help="Page to write, or its folder. Default: comparison.html for several."),
    ] = None,
) -> None:
    """Write report.html again from a folder's files, or compare several folders.

    Takes every folder that fcfl writes: of a run, an audit, a sweep, a comparison, a
    classifier saved in Python.
    """
    if not more:
        page = _show_one(folder, out)
    else:
        folders = [folder, *more]
        page = write_comparison(folders, out or Path("comparison.html"))
        out_console.print(runs_table(read_results(folders), out_console.width), "")
    say(f"Written to {page}")


def _show_one(folder: Path, out: Path | None) -> Path:
    """Print the content of one folder, of a kind that its files determine, and write its page."""
    if (folder / COMPARISON).exists():
        comparison = read_comparison(folder / COMPARISON)
        out_console.print(methods_table(comparison, out_console.width), "")
        for sentence in methods_sentences(comparison):
            say(sentence)
        return write_comparison_page(folder, out)
    run = read_run(folder)
    if run.sweep:
        out_console.print(curve_table(run.sweep))
        say(tradeoff_sentence(run.sweep))
    elif run.result is not None:
        print_result(out_console, run.result)
    return write_page(folder, out)
