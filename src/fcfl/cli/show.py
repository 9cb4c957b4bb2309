"""Print the results in a folder, write their pages, and return the exit code of the command."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as Grid

from fcfl._files import read_json
from fcfl.report import comparisons, page, terminal
from fcfl.report.terminal import Column, fitted_table
from fcfl.report.words import number, plain
from fcfl.results import COMPARISON, NEGOTIATION, read_comparison, read_run
from fcfl.results.findings import findings_of
from fcfl.results.many_runs import SweepPoint

from .console import FAILED, INFEASIBLE, note, out_console, say


def finish(folder: Path) -> None:
    """Show the results of a command and exit with its code."""
    written, code = show_folder(folder)
    say(f"Written to {folder}; open {written}")
    if code:
        raise SystemExit(code)


def show_folder(folder: Path, out: Path | None = None) -> tuple[Path, int]:
    """Print the results in a folder and write its page; return the page and the exit code.

    By default, the page is written to the folder, and the pages of all runs in the folder are
    written, too. With ``out``, only this page is written, to ``out``.
    """
    if (folder / COMPARISON).exists():
        return _show_comparison(folder, out)
    if (folder / NEGOTIATION).exists():
        return _show_negotiation(folder, out)
    run = read_run(folder)
    if run.sweep:
        code = _show_curve(run.sweep)
        for point in () if out else run.sweep:
            page.write_page(folder / point.folder)
    else:
        code = 0
        if run.result is not None:
            terminal.print_result(out_console, run.result)
            code = INFEASIBLE if findings_of(run.result) else 0
    return page.write_page(folder, out), code


def _show_comparison(folder: Path, out: Path | None) -> tuple[Path, int]:
    comparison = read_comparison(folder / COMPARISON)
    out_console.print(terminal.methods_table(comparison, out_console.width), "")
    for sentence in comparisons.methods_sentences(comparison):
        say(sentence)
    finished = [folder / run.folder for run in comparison.runs if run.part is not None]
    if not finished:
        raise SystemExit(FAILED)
    for place in () if out else finished:
        page.write_page(place)
    code = FAILED if len(finished) < len(comparison.runs) else 0
    return page.write_comparison(finished, out or folder, comparison), code


def _show_curve(points: Sequence[SweepPoint]) -> int:
    out_console.print(_curve_table(points))
    say(comparisons.tradeoff_sentence(points))
    exceeded = ", ".join(point.folder for point in points if not point.budgets_met)
    if exceeded:
        note(f"Budgets are exceeded on the training rows at {exceeded}.")
    degenerate = ", ".join(point.folder for point in points if point.degenerate)
    if degenerate:
        note(f"The model selects nearly nobody, nearly everybody, or too few at {degenerate}.")
    return INFEASIBLE if exceeded or degenerate else 0


def _curve_table(points: Sequence[SweepPoint]) -> Grid:
    """Return a table with one line per budget and its verdict on the training rows."""
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


def _show_negotiation(folder: Path, out: Path | None) -> tuple[Path, int]:
    """Print the winners, and the results of the agreement for each client."""
    from fcfl.report import negotiation
    from fcfl.results.negotiation import Negotiation

    found = read_json(folder / NEGOTIATION, Negotiation)
    written = negotiation.write_negotiation_page(found, out or folder / page.PAGE)
    say(negotiation.headline(found))
    for sentence in found.notes:
        note(sentence)
    if found.agreed is None:
        return written, 0
    offer = found.offers[found.agreed]
    grid = Grid(box=None, title="results by client", title_justify="left")
    grid.add_column("client", overflow="fold")
    for heading in ("budget", "accuracy", "disparity", "alone:\naccuracy", "alone:\ndisparity"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for client in found.clients:
        view, alone = offer.views[client], found.alone[client]
        figures = (view.accuracy, view.disparity, alone.accuracy, alone.disparity)
        budget = f"{offer.budgets[client]:g}"
        grid.add_row(plain(client), budget, *(number(figure, 3) for figure in figures))
    out_console.print(grid)
    say(f"Train it with: {found.command}")
    return written, 0
