"""fcfl site: what a data holder's own machine has answered, and what it still will."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table

from fcfl.limits import Limits
from fcfl.policy import PrivacyBudget
from fcfl.sites.ledger import PARTS, Ledger, Spent
from fcfl.sites.rows import table_checksum
from fcfl.sites.settings import SiteSettings

from .commands import COMMANDS
from .console import out_console, say

app = App(name="site", help=COMMANDS["site"])

SiteFile = Annotated[
    Path, Parameter(metavar="SITE.toml", help="The site's file, as its node has it.")
]


@app.command(help_epilogue="Example:\n\n  fcfl site status /srv/fcfl/site.toml")
def status(path: SiteFile, /) -> None:
    """Show what was asked of this site's table, and what is left of its limits."""
    settings = SiteSettings.from_file(path)
    ledger = Ledger(settings.ledger_folder)
    usages, now = ledger.usages(), table_checksum(settings)
    say(f"Site {settings.name!r}, ledger {ledger.path}")
    if settings.privacy is None:
        _show_policy(settings)
    else:
        say(_privacy_sentence(ledger, settings.privacy))
    others = [table for table in usages if table != now]
    if now not in usages:
        say("Nothing was asked of its table as it is now.")
    else:
        usage = usages[now]
        _show("this table", usage.in_all, settings.limits, "table")
        for number, (run, spent) in enumerate(usage.runs.items(), start=1):
            _show(f"run {number} ({run[:8]})", spent, settings.limits, "run")
        runs, splits = len(usage.runs), len(usage.splits)
        say(f"{runs} of {settings.limits.runs_per_table} runs; {splits} ways to split rows.")
        say(f"Last asked {usage.last}.")
    if others:
        say(f"Of {len(others)} other tables, or states of this one, there are entries, too.")


def _privacy_sentence(ledger: Ledger, budget: PrivacyBudget) -> str:
    spent, exact = ledger.privacy_spent().epsilon(budget.delta), ledger.exact_answers()
    without = f" {exact} answers before had no noise; no epsilon covers them." if exact else ""
    return (
        f"Privacy: epsilon {spent:.4g} of {budget.epsilon:g} spent at delta {budget.delta:g}, over "
        f"all runs and all states of the table.{without}"
    )


def _show_policy(settings: SiteSettings) -> None:
    """What holds whoever asks, with a policy file or without."""
    policy, limits = settings.policy or "none, so the closed one holds", settings.limits
    split = [
        f"{key} {'any' if value is None else value}"
        for key, value in (("seed", limits.seed), ("test-size", limits.test_size))
    ]
    say(f"Policy: {policy}.")
    say(
        f"Nothing is said of fewer than {settings.min_group_rows} rows, no level named of fewer "
        f"than {settings.withhold_below}; {', '.join(split)}."
    )


def _show(what: str, spent: Spent, limits: Limits, scope: str) -> None:
    table = Table(title=what, title_justify="left", box=None, pad_edge=False)
    for heading in ("", "asked", "limit", "left"):
        table.add_column(heading, justify="left" if not heading else "right")
    for part in PARTS:
        asked, most = getattr(spent, part), getattr(limits, f"{part}_per_{scope}")
        table.add_row(part, str(asked), str(most), str(max(most - asked, 0)))
    out_console.print(table)


@app.command(help_epilogue="Example:\n\n  fcfl site mend /srv/fcfl/site.toml")
def mend(path: SiteFile, /) -> None:
    """Cut off what follows the last whole line of a torn ledger; the site answers again.

    A power cut can tear the last line. Look at the file first: a line in its middle
    that does not fit was changed by somebody, and all after it would be lost.
    """
    ledger = Ledger(SiteSettings.from_file(path).ledger_folder)
    cut = ledger.mend()
    say(f"Cut {cut} bytes off {ledger.path}." if cut else "The ledger is whole.")


@app.command(help_epilogue="Example:\n\n  fcfl site key /srv/fcfl/site.toml")
def key(path: SiteFile, /) -> None:
    """Print this site's public key for masked sums, which other sites may pin in their policy."""
    from fcfl.sites.masks import site_public  # needs an extra

    say(site_public(SiteSettings.from_file(path)))
