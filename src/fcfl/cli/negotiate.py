"""fcfl negotiate: budgets that all clients could accept."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table as Grid

from fcfl.negotiation.negotiating import MOST, Procedure
from fcfl.report.negotiation import headline
from fcfl.report.page import PAGE
from fcfl.report.words import number, plain
from fcfl.results.negotiation import Negotiation, VotingRule
from fcfl.runs import Experiment
from fcfl.runs.negotiation_run import AGREED, MIN_GROUP_ROWS, read_policies, run_negotiation
from fcfl.runs.opening import Opened, open_run
from fcfl.runs.options import chosen
from fcfl.runs.settings import DATA
from fcfl.runs.text_values import read_numbers
from fcfl.training.session import Session

from .console import flag, note, out_console, resumable, run_folder, say, usage
from .settings import NOTHING, Given, Tables, out_folder, takes
from .train import check_resume, experiment_of

_POLICIES = "Clients' policy files, each CLIENT.toml: its preference, and budgets insisted on."
_RESUME = "Keep what was trained in --out; --budgets, --most, --by and preferences may change."

app = App(
    name="negotiate",
    help_epilogue="Examples:\n\n  fcfl negotiate adult-5 --sensitive sex\n\n"
    "  fcfl negotiate a.csv --client site --label died --sensitive race --budgets 0.2,0.1,0.05 "
    "--policies wishes/",
)


@app.default
@takes(Experiment, DATA, "metric", "loss", "l2", "objective")
def negotiate(
    *table: Tables,
    given: Given = NOTHING,
    budgets: Annotated[
        str | None,
        Parameter(
            metavar="X,X,…",
            help="Budgets to combine. Default: shares of the largest disparity without budgets.",
        ),
    ] = None,
    policies: Annotated[Path | None, Parameter(metavar="FOLDER", help=_POLICIES)] = None,
    by: Annotated[VotingRule, Parameter(help="Rule whose winner is written.")] = "nash",
    most: Annotated[int, Parameter(metavar="N", help="Combinations trained at most.")] = MOST,
    min_group_rows: Annotated[
        int, Parameter(metavar="N", help="Groups with fewer rows are not compared.")
    ] = MIN_GROUP_ROWS,
    out: Annotated[Path | None, out_folder("TABLE-negotiation")] = None,
    resume: Annotated[bool, flag(_RESUME)] = False,
    overwrite: Annotated[bool, flag("Replace a negotiation with other settings in --out.")] = False,
) -> None:
    """Which budgets could all clients live with? Try combinations, and vote.

    Trains combinations of budgets, leaves out what another one dominates for
    everybody, and lets every client vote by its own preference between accuracy and
    disparity: by approval, by Borda and by the Nash bargaining solution from what
    it would have alone. Writes negotiation.json, report.html with sliders, and the
    winner as agreed.toml, which fcfl train --policy takes. Every model is stored as
    soon as it is trained; --resume continues a stopped negotiation.
    """
    check_resume(resume, overwrite)
    with usage():
        ladder = None if budgets is None else read_numbers("budgets", budgets)
        procedure = Procedure(ladder, by, most)
    settings = experiment_of(table, {**given, "min_group_rows": min_group_rows})
    folder = out or run_folder(settings.table, "negotiation")

    def opener(settings: Experiment) -> Opened:
        opened = open_run(settings)
        given = read_policies(policies, opened.federation.names)
        return replace(opened, federation=opened.federation.under(given))

    with resumable():
        found = run_negotiation(
            settings,
            procedure,
            Session(folder, resume, on_message=note),
            opener,
            command=lambda settings, found: _command(settings, found, folder),
            overwrite=overwrite,
        )
    show_negotiation(found)
    say(f"Written to {folder}; open {folder / PAGE}")


def _command(settings: Experiment, found: Negotiation, folder: Path) -> str:
    """Return the command that trains the agreement."""
    words = ["fcfl", "train", settings.table]
    for name, option in chosen(Experiment, DATA, "loss", "threshold").items():
        value = getattr(settings, name)
        if name != "table" and value != option.default:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [f"--{option.key}", *([] if value is True else [text])]
    words += ["--policy", str(folder / AGREED), "--l2", f"{found.l2:g}"]
    words += ["--objective", f"{found.objective}", "--confidence", "0"]
    return shlex.join(words)


def show_negotiation(found: Negotiation) -> None:
    """Print the winners and what each client gets of the agreement."""
    say(headline(found))
    for sentence in found.notes:
        note(sentence)
    if found.agreed is None:
        return
    offer = found.offers[found.agreed]
    grid = Grid(box=None, title="what everybody gets", title_justify="left")
    grid.add_column("client", overflow="fold")
    for heading in ("budget", "accuracy", "disparity", "alone:\naccuracy", "alone:\ndisparity"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for client in found.clients:
        view, alone = offer.views[client], found.alone[client]
        figures = (view.accuracy, view.disparity, alone.accuracy, alone.disparity)
        grid.add_row(
            plain(client),
            f"{offer.budgets[client]:g}",
            *(number(figure, 3) for figure in figures),
        )
    out_console.print(grid)
    say(f"Train it with: {found.command}")
