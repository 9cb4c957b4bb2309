"""A site's record of the requests it received and of the privacy budget that is spent."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from fcfl.client.private import PrivacySpent
from fcfl.errors import DataError
from fcfl.federation.journal import Journal
from fcfl.policy import PrivacyBudget

FILE = "journal.sqlite"


@dataclass(frozen=True)
class Entry:
    """One request, recorded before its response is computed.

    ``table`` and ``question`` are SHA-256 of the files and of the message. ``run`` identifies the
    agreement on columns and encoding. ``points`` is the number of models evaluated. ``privacy`` has
    the squared ``mu`` spent on training and on held-out rows; it is None for a response without
    noise. ``split`` identifies the assignment of rows to these two parts.
    """

    table: str
    run: str
    question: str
    purpose: str
    size: int
    points: int = 0
    split: str = ""
    privacy: tuple[float, float] | None = None
    at: str = ""


@cache  # a long-running process reads new entries only
def open_journal(folder: Path) -> Journal:
    """Return the journal in a folder."""
    return Journal(folder / FILE)


def record(
    journal: Journal,
    entry: Entry,
    budget: PrivacyBudget | None = None,
    *,
    after_exact: bool = False,
) -> None:
    """Append a request; raise `DataError` if it would exceed the privacy budget.

    With a budget, also raise `DataError` if earlier responses were exact, because no epsilon bounds
    their disclosure. ``after_exact`` (set in the policy) skips this check.
    """
    with journal.locked():
        if budget is not None:
            entries = journal.read(Entry)
            exact = exact_answers(entries)
            if exact and not after_exact:
                raise DataError(
                    f"This site has sent {exact} responses without noise; no epsilon bounds what "
                    "they disclosed. Its owner can set `after-exact-answers = true` under "
                    "[privacy], or begin with other rows and a new `ledger`."
                )
            privacy_spent([*entries, entry]).check_within(budget)
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        journal.append(replace(entry, at=at))


def entries_of(journal: Journal) -> list[Entry]:
    """Return all requests so far."""
    with journal.locked():
        return list(journal.read(Entry))


def exact_answers(entries: list[Entry]) -> int:
    """Return the number of responses without noise, over all versions of the table."""
    return sum(entry.privacy is None for entry in entries)


def privacy_spent(entries: list[Entry]) -> PrivacySpent:
    """Return the privacy budget spent, summed over all versions of the table.

    Versions are summed because a row may be in several of them.
    """
    spent = PrivacySpent()
    for entry in entries:
        if entry.privacy is not None and any(entry.privacy):
            spent = spent.plus(entry.privacy, entry.split)
    return spent
