"""fcfl card: what must be handed in about a model."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fcfl.errors import FCFLError

from .console import WrongUsage, app, say
from .options import command


class CardKind(StrEnum):
    """What a card can be."""

    ll144 = "ll144"
    chai = "chai"
    annex_iv = "annex-iv"
    skops = "skops"


@command(
    app,
    epilog="Examples:\n\n  fcfl card --kind ll144 --template --out facts.toml\n\n"
    "  fcfl card runs/audit-p --kind ll144 --facts facts.toml",
)
def card(
    kind: Annotated[
        CardKind,
        typer.Option(help="ll144 (New York City), chai (health), annex-iv (EU AI Act), skops."),
    ],
    run: Annotated[
        Path | None, typer.Argument(help="Folder of a run or an audit.", show_default=False)
    ] = None,
    facts: Annotated[
        Path | None,
        typer.Option(help="TOML file with what no result knows, such as who to contact."),
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Write such a file to fill in, instead of a card.")
    ] = False,
    min_cell: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Hide counts below it, and what gives them away."),
    ] = 11,
    out: Annotated[
        Path | None, typer.Option(help="File to write. Default: RUN/card-KIND.md or .xml.")
    ] = None,
) -> None:
    """Write what must be handed in about a model: tables, metrics, verdicts, in a given form.

    What no result knows is taken from --facts, and said to be not stated otherwise.
    Nothing here is legal advice. For tables of intersections (ll144) make the card
    of an audit with several --sensitive columns.
    """
    from datetime import date

    from fcfl._files import replace_file
    from fcfl.cards.facts import facts_template, read_facts
    from fcfl.cards.kinds import SUFFIX, make_card

    name = kind.value
    if template:
        path = out or Path(f"{name}-facts.toml")
        content = facts_template(name)
    elif run is None:
        raise WrongUsage("Name the folder of a run or an audit, or pass --template.")
    else:
        path = out or run / f"card-{name}.{SUFFIX[name]}"
        content = make_card(run, name, read_facts(name, facts), min_cell, date.today())
    if path.is_dir() or not path.parent.is_dir():
        raise FCFLError(f"`--out` must be a file in a folder that exists, got {str(path)!r}.")
    replace_file(path, content.encode())
    say(f"Written to {path}")
