"""A site's record of what it was asked, and what its answers have cost of its privacy budget."""

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
    """One request, recorded before its answer is computed.

    ``table`` and ``question`` are SHA-256; a ``run`` is one agreement on columns and encoding.
    ``points`` is the number of models that are reported on. ``privacy`` has the squares of what
    noisy sums cost training and held-out rows, within one way to ``split`` them; an answer without
    noise has none.
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


@cache  # a process that lives on reads only what is new
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
    """Append a request; raise `DataError` if it would pass the privacy budget.

    With a budget, raise `DataError` also if exact answers were given before, which no epsilon
    covers, unless the policy allows that (``after_exact``).
    """
    with journal.locked():
        if budget is not None:
            entries = journal.read(Entry)
            exact = exact_answers(entries)
            if exact and not after_exact:
                raise DataError(
                    f"This site has given {exact} answers without noise, which no epsilon "
                    "covers. Its owner can set `after-exact-answers = true` under [privacy], or "
                    "begin with other rows and a new `ledger`."
                )
            privacy_spent([*entries, entry]).check_within(budget)
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        journal.append(replace(entry, at=at))


def entries_of(journal: Journal) -> list[Entry]:
    """Return all requests so far."""
    with journal.locked():
        return list(journal.read(Entry))


def exact_answers(entries: list[Entry]) -> int:
    """Return the number of answers without noise, over all states of the table."""
    return sum(entry.privacy is None for entry in entries)


def privacy_spent(entries: list[Entry]) -> PrivacySpent:
    """Return what noisy sums have cost, over all states of the table: rows may be in several."""
    spent = PrivacySpent()
    for entry in entries:
        if entry.privacy is not None and any(entry.privacy):
            train, test = entry.privacy
            spent = spent.plus({"train": train, "test": test}, entry.split)
    return spent
