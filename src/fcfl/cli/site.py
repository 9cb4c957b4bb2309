"""Command fcfl site: show the requests that a site has answered."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table

from fcfl.cli import COMMANDS
from fcfl.policy import PrivacyBudget
from fcfl.sites.journal import Entry, entries_of, exact_answers, open_journal, privacy_spent
from fcfl.sites.rows import table_checksum
from fcfl.sites.settings import SiteSettings

from .console import out_console, say

app = App(name="site", help=COMMANDS["site"])

SiteFile = Annotated[Path, Parameter(metavar="SITE.toml", help="Settings file of the site's node.")]


@app.command(help_epilogue="Example:\n\n  fcfl site status /srv/fcfl/site.toml")
def status(path: SiteFile, /) -> None:
    """Show the requests that a site has answered and the rest of its privacy budget."""
    settings = SiteSettings.from_file(path)
    journal = open_journal(settings.ledger_folder)
    entries, policy = entries_of(journal), settings.read_policy
    say(f"Site {settings.name!r}, journal {journal.path}")
    if settings.privacy is None:
        say(f"Policy: {settings.policy or 'none; the defaults apply'}.")
        say(
            f"Groups of fewer than {policy.min_group_rows} rows are neither named nor compared, "
            f"and levels of fewer than {policy.withhold_below} rows are not named. No noise is "
            "added to responses."
        )
    else:
        say(_privacy_sentence(entries, settings.privacy))
    table = table_checksum(settings)
    own = [entry for entry in entries if entry.table == table]
    if own:
        out_console.print(_runs_table(own))
    else:
        say("The site has no requests for its current table.")
    others = {entry.table for entry in entries} - {table}
    if others:
        say(f"The journal has entries for {len(others)} other tables or versions of this table.")


def _privacy_sentence(entries: list[Entry], budget: PrivacyBudget) -> str:
    spent, exact = privacy_spent(entries).epsilon(budget.delta), exact_answers(entries)
    without = f" Not included: {exact} earlier responses without noise." if exact else ""
    return (
        f"Privacy: epsilon {spent:.4g} of {budget.epsilon:g} spent at delta {budget.delta:g}, over "
        f"all runs and all versions of the table.{without}"
    )


def _runs_table(entries: list[Entry]) -> Table:
    table = Table(title="this table", title_justify="left", box=None, pad_edge=False)
    for heading in ("run", "requests", "models", "first", "last"):
        table.add_column(heading, justify="right" if heading in ("requests", "models") else "left")
    for run in dict.fromkeys(entry.run for entry in entries):
        own = [entry for entry in entries if entry.run == run]
        points, first, last = sum(entry.points for entry in own), own[0].at, own[-1].at
        table.add_row(run[:8] or "introductions", str(len(own)), str(points), first, last)
    return table
