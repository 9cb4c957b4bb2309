"""fcfl negotiate: budgets that all clients could live with."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.negotiating import (
    MIN_GROUP_ROWS,
    MOST,
    check_ladder,
    read_wishes,
    write_policy,
)
from fcfl.negotiation.negotiating import (
    negotiate as run_negotiation,
)
from fcfl.report.negotiation_page import headline, write_negotiation_page
from fcfl.report.page import PAGE
from fcfl.report.words import number, plain
from fcfl.results.negotiation_result import VOTING_RULES, Negotiation
from fcfl.results.result_file import NEGOTIATION, write_negotiation
from fcfl.rules import Difference
from fcfl.runs import Experiment
from fcfl.runs.budget_sweep import parse_budgets
from fcfl.runs.opening import open_run
from fcfl.runs.option_fields import option_fields, option_of
from fcfl.runs.settings import DATA

from .console import WrongUsage, app, asking, note, out_console, run_folder, say, usage
from .options import Options, command
from .train import check_columns


@command(
    app,
    epilog="Examples:\n\n  fcfl negotiate adult-5 --sensitive sex\n\n"
    "  fcfl negotiate a.csv --client site --label died --sensitive race --budgets 0.2,0.1,0.05 "
    "--policies wishes/",
)
def negotiate(
    settings: Annotated[Experiment, Options(Experiment, DATA, "metric", "loss", "l2", "objective")],
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="X,X,…",
            help="Budgets to combine. Default: shares of the largest disparity without budgets.",
        ),
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Clients' policy files, each CLIENT.toml: [preference], and budgets insisted on.",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="RULE", help="approval, borda or nash: whose winner is written.")
    ] = "nash",
    most: Annotated[int, typer.Option(metavar="N", help="Combinations trained at most.")] = MOST,
    min_group_rows: Annotated[
        int, typer.Option(metavar="N", help="Groups with fewer rows are not compared.")
    ] = MIN_GROUP_ROWS,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/TABLE-negotiation.")
    ] = None,
) -> None:
    """Which budgets could all clients live with? Try combinations, and vote.

    Trains combinations of budgets, leaves out what another one dominates for
    everybody, and lets every client vote by its own preference between accuracy and
    disparity: by approval, by Borda and by the Nash bargaining solution from what
    it would have alone. Writes negotiation.json, report.html with sliders, and the
    winner as agreed.toml, which fcfl train --policy takes.
    """
    with usage():
        if by not in VOTING_RULES:
            raise ValueError(f"`by` must be one of {', '.join(VOTING_RULES)}, got {by!r}.")
        if most < 1 or min_group_rows < 1:
            raise ValueError("`most` and `min-group-rows` must be at least 1.")
        ladder = None if budgets is None else check_ladder(parse_budgets(budgets))
    check_columns(settings)
    opened, settings = asking(open_run, settings)
    for sentence in opened.notes:
        note(sentence)
    rules = tuple(rule for rule in opened.rules if isinstance(rule, Difference))
    names = opened.federation.names
    if len(names) < 2:
        raise WrongUsage(f"A negotiation needs two clients or more, got {len(names)}.")
    folder = out or run_folder(settings.table, "negotiation")
    bargain = Bargain(
        opened.federation,
        opened.model,
        rules,
        settings.l2_or_default,
        settings.objective_or_default,
        float(min_group_rows),
        settings.seed,
    )
    found = run_negotiation(
        bargain,
        read_wishes(policies, names),
        table=settings.table,
        budgets=ladder,
        decided_by=by,
        most=most,
        on_message=note,
    )
    found = replace(found, command=_command(settings, found, folder))
    folder.mkdir(parents=True, exist_ok=True)
    write_negotiation(folder / NEGOTIATION, found)
    if found.agreed is not None:
        write_policy(found, folder)
    write_negotiation_page(found, folder / PAGE)
    _show(found)
    say(f"Written to {folder}; open {folder / PAGE}")


def _command(settings: Experiment, found: Negotiation, folder: Path) -> str:
    """What trains the agreement; nothing where there is none."""
    if found.agreed is None:
        return ""
    words = ["fcfl", "train", settings.table]
    for field in option_fields(Experiment, DATA):
        value = getattr(settings, field.name)
        if option_of(field).argument or value == field.default:
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        if value is not True:
            words.append(",".join(value) if isinstance(value, tuple) else str(value))
    if settings.loss != "cross-entropy":
        words += ["--loss", settings.loss]
    words += ["--policy", str(folder / "agreed.toml"), "--l2", f"{found.l2:g}"]
    words += ["--objective", f"{found.objective}", "--confidence", "0"]
    return shlex.join(words)


def _show(found: Negotiation) -> None:
    """Winners and what everybody gets of the agreement."""
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
        grid.add_row(
            plain(client),
            f"{offer.budgets[client]:g}",
            number(view.accuracy, 3),
            number(view.disparity, 3),
            number(alone.accuracy, 3),
            number(alone.disparity, 3),
        )
    out_console.print(grid)
    say(f"Train it with: {found.command}")
