"""fcfl card: what must be handed in about a model."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter, validators

from .console import WrongUsage, flag, say, write_file

app = App(
    name="card",
    help_epilogue="Examples:\n\n  fcfl card --kind ll144 --template --out facts.toml\n\n"
    "  fcfl card runs/audit-p --kind ll144 --facts facts.toml",
)


@app.default
def card(
    run: Annotated[Path | None, Parameter(help="Folder of a run or an audit.")] = None,
    /,
    *,
    kind: Annotated[
        Literal["ll144", "chai", "annex-iv", "skops"],
        Parameter(help="ll144 (New York City), chai (health), annex-iv (EU AI Act), skops."),
    ],
    facts: Annotated[
        Path | None,
        Parameter(help="TOML file with facts that no result has, such as whom to contact."),
    ] = None,
    template: Annotated[bool, flag("Write such a file to fill in, instead of a card.")] = False,
    min_cell: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=0),
            help="Hide counts below it, and what gives them away.",
        ),
    ] = 11,
    out: Annotated[
        Path | None, Parameter(help="File to write. Default: RUN/card-KIND.md or .xml.")
    ] = None,
) -> None:
    """Write what must be handed in about a model: tables, metrics, verdicts, in a given form.

    Facts that no result has are taken from --facts, else shown as not stated.
    Nothing here is legal advice. For tables of intersections (ll144) make the card
    of an audit with several --sensitive columns.
    """
    from datetime import date

    from fcfl.cards.card import SUFFIX, make_card
    from fcfl.cards.facts import facts_template, read_facts

    if template:
        path = out or Path(f"{kind}-facts.toml")
        content = facts_template(kind)
    elif run is None:
        raise WrongUsage("Name the folder of a run or an audit, or pass --template.")
    else:
        path = out or run / f"card-{kind}.{SUFFIX[kind]}"
        content = make_card(run, kind, read_facts(kind, facts), min_cell, date.today())
    write_file(path, content.encode())
    say(f"Written to {path}")
