"""A site's ledger: every question it has answered, and what is left of its limits.

One line of JSON per question, appended and synced before the answer is computed, so that a kill
counts it. Each line has the SHA-256 of the one before and of itself: a ledger that was torn or
changed answers nothing more until somebody has looked at it.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from fcfl.client.private_client import PrivacySpent
from fcfl.errors import DataError
from fcfl.federation.locked_file import append, locked
from fcfl.limits import Limits
from fcfl.policy import PrivacyBudget

FILE = "ledger.jsonl"
PARTS = ("questions", "points", "counts", "ballots")  # of which there are limits
BALLOT = "vote"  # the purpose of a question for a ballot
_FIRST = "0" * 64


class LedgerError(DataError):
    """A ledger that cannot be read: its site answers nothing."""


@dataclass(frozen=True)
class Entry:
    """One question that was answered.

    ``table`` and ``question`` are SHA-256; a ``run`` is one agreement on columns and encoding.
    ``points`` is how many models were reported on, ``counted`` which models' decisions were
    counted or leave-one-out losses summed, by the beginning of the SHA-256 of their parameters.
    ``splits`` says how rows were held out. ``privacy`` has the squares of
    what noisy sums cost training rows and held-out rows; asked again, they cost again. What has
    none was answered exactly.
    """

    table: str
    run: str
    question: str
    purpose: str
    size: int
    points: int = 0
    counted: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    at: str = ""
    privacy: tuple[float, ...] = ()


@dataclass
class Spent:
    """What was asked in one run, or of one table in all."""

    questions: int = 0
    points: int = 0
    ballots: int = 0
    models: set[str] = field(default_factory=set)

    @property
    def counts(self) -> int:
        """Models whose decisions were counted, each once."""
        return len(self.models)

    def add(self, entry: Entry) -> None:
        """One more question."""
        self.questions += 1
        self.points += entry.points
        self.ballots += entry.purpose == BALLOT
        self.models.update(entry.counted)

    def wanted(self, part: str, entry: Entry) -> int:
        """How many of a part there would be with one more question; 0 where it asks for none."""
        if part == "questions":
            return self.questions + 1
        if part == "points":
            return self.points + entry.points if entry.points else 0
        if part == "ballots":
            return self.ballots + 1 if entry.purpose == BALLOT else 0
        return len(self.models.union(entry.counted)) if entry.counted else 0


@dataclass
class Usage:
    """All that was asked of one table; a question that is asked again tells nothing new."""

    in_all: Spent = field(default_factory=Spent)
    runs: dict[str, Spent] = field(default_factory=dict)
    splits: dict[str, None] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    last: str = ""

    def add(self, entry: Entry) -> None:
        """One more line of the ledger."""
        self.last = entry.at
        if entry.question in self.known:
            return
        self.known.add(entry.question)
        self.in_all.add(entry)
        if entry.run:
            self.runs.setdefault(entry.run, Spent()).add(entry)
        self.splits |= dict.fromkeys(entry.splits)


@dataclass
class _Read:
    """How far a ledger was read, and what it said up to there."""

    offset: int = 0
    lines: int = 0
    chain: str = _FIRST
    exact: int = 0
    privacy: PrivacySpent = field(default_factory=PrivacySpent)
    usages: dict[str, Usage] = field(default_factory=dict)


class Ledger:
    """The ledger in a folder. Several processes of one site may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._read = _Read()

    def record(
        self,
        entry: Entry,
        limits: Limits,
        privacy: PrivacyBudget | None = None,
        *,
        after_exact: bool = False,
    ) -> None:
        """Append the question, or refuse it because a limit or the privacy budget is reached.

        With a budget it is refused, too, where exact answers were given: no epsilon covers them,
        unless the policy says that they were meant (``after_exact``).
        """
        with locked(self.path) as file:
            usage = self._usages(file).get(entry.table, Usage())
            if entry.question not in usage.known:
                check_limits(entry, usage, limits)
            if privacy is not None:
                self._check_no_exact(after_exact)
                _plus(self._read.privacy, entry).check_within(privacy)
            entry = _stamped(entry)
            text, chain = _line(entry, self._read.chain)
            append(file, text)
            self._take(entry, chain, len(text))

    def usages(self) -> Mapping[str, Usage]:
        """What was asked of each table so far."""
        if not self.path.exists():
            return {}
        with locked(self.path) as file:
            return self._usages(file)

    def privacy_spent(self) -> PrivacySpent:
        """What noisy sums have cost, of all states of the table: rows may be in several."""
        self.usages()
        return self._read.privacy

    def exact_answers(self) -> int:
        """How many answers were given without noise, of all states of the table."""
        self.usages()
        return self._read.exact

    def _check_no_exact(self, after_exact: bool) -> None:
        if self._read.exact and not after_exact:
            raise DataError(
                f"This site has given {self._read.exact} answers without noise, which no epsilon "
                "covers. Its owner can say `after-exact-answers = true` under [privacy], or begin "
                "with other rows and a new `ledger`."
            )

    def mend(self) -> int:
        """Cut off what follows the last whole line; returns how many bytes were cut."""
        with locked(self.path) as file:
            try:
                self._usages(file)
            except LedgerError:
                kept = self._read.offset
                cut = os.fstat(file).st_size - kept
                os.ftruncate(file, kept)
                os.fsync(file)
                return cut
        return 0

    def _usages(self, file: int) -> dict[str, Usage]:
        """Read the lines that are new since the last time."""
        if os.fstat(file).st_size < self._read.offset:
            self._read = _Read()
        os.lseek(file, self._read.offset, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as lines:
            for line in lines:
                entry, chain = _parse(line)
                if entry is None or _line(entry, self._read.chain) != (line, chain):
                    raise LedgerError(
                        f"The ledger {str(self.path)!r} is torn or was changed at line "
                        f"{self._read.lines + 1}. This site answers nothing until somebody has "
                        "looked at it; `fcfl site mend` cuts off what follows the last whole line."
                    )
                self._take(entry, chain, len(line))
        return self._read.usages

    def _take(self, entry: Entry, chain: str, size: int) -> None:
        self._read.usages.setdefault(entry.table, Usage()).add(entry)
        self._read.privacy = _plus(self._read.privacy, entry)
        self._read.exact += not entry.privacy
        self._read.offset += size
        self._read.lines += 1
        self._read.chain = chain


def _plus(spent: PrivacySpent, entry: Entry) -> PrivacySpent:
    if not any(entry.privacy):
        return spent
    train, test = entry.privacy
    return spent.plus({"train": train, "test": test}, " ".join(entry.splits))


def check_limits(entry: Entry, usage: Usage, limits: Limits) -> None:
    """Refuse a question that would exceed a limit of the run or of the table."""
    run = usage.runs.get(entry.run, Spent())
    if entry.run:
        runs = len(usage.runs) + (entry.run not in usage.runs)
        _refuse_beyond("runs_per_table", runs, limits)
    for part in PARTS:
        _refuse_beyond(f"{part}_per_table", usage.in_all.wanted(part, entry), limits)
        if entry.run:
            _refuse_beyond(f"{part}_per_run", run.wanted(part, entry), limits)
    for kind in {split.partition(":")[0] for split in entry.splits}:
        every = {split for split in (*usage.splits, *entry.splits) if split.startswith(f"{kind}:")}
        _refuse_beyond("splits_per_table", len(every), limits)


def _refuse_beyond(name: str, wanted: int, limits: Limits) -> None:
    most = getattr(limits, name)
    if wanted > most:
        key = name.replace("_", "-")
        raise DataError(
            f"This site's limit `{key}` of {most} is reached; it answers no more of this. Its "
            "owner can raise it in the policy file, under [limits]."
        )


def _stamped(entry: Entry) -> Entry:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(entry, at=now)


def _line(entry: Entry, before: str) -> tuple[bytes, str]:
    """An entry as a line, and the checksum that chains it to the line before."""
    content = asdict(entry)
    if not entry.privacy:  # as ledgers were written before there was any
        del content["privacy"]
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    chain = hashlib.sha256(f"{before}{text}".encode()).hexdigest()
    return f'{{"entry":{text},"chain":"{chain}"}}\n'.encode(), chain


def _parse(line: bytes) -> tuple[Entry | None, str]:
    try:
        table = json.loads(line)
        given = table["entry"]
        if set(given) | {"privacy"} != {known.name for known in fields(Entry)}:
            return None, ""
        lists = {key: tuple(given.get(key, ())) for key in ("counted", "splits", "privacy")}
        return Entry(**{**given, **lists}), str(table["chain"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, ""
