"""A site: it answers a request from its own rows, or returns why not."""

import hashlib
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fcfl.client.client import Count, Evaluate, Introduction, LocalClient, OnRows, Question, Vote
from fcfl.errors import DataError, FCFLError
from fcfl.federation.federation import answer
from fcfl.federation.serialise import digest
from fcfl.policy import check_rules_kept
from fcfl.preference import Preference
from fcfl.sites.guards import check_question, check_vote
from fcfl.sites.journal import Entry, open_journal, record
from fcfl.sites.messages import (
    Answer,
    Ask,
    Introduce,
    Refusal,
    Terms,
    decode_question,
    encode_message,
)
from fcfl.sites.private import (
    answer_privately,
    check_private_question,
    introduce_privately,
    private_checksum,
    split_of,
)
from fcfl.sites.rows import (
    encoded_rows,
    named_groups,
    open_rows,
    rows_checksum,
    table_checksum,
    withheld_statistics,
)
from fcfl.sites.settings import Config, SiteSettings

log = logging.getLogger("fcfl")
_QUOTED = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_EXPECTED = (FCFLError, ValueError, TypeError, OSError, MemoryError)
_KEPT: dict[tuple[object, ...], LocalClient] = {}  # encoded rows of a process that lives on
_MAX_KEPT = 4


def reply_to(message: bytes, config: Config) -> bytes:
    """Answer a request. Errors are logged in full, and sent with cell values redacted."""
    name = str(config.get("name", "?"))
    terms: Terms | None = None
    content: Any
    try:
        settings = SiteSettings.from_node_config(config)
        question = decode_question(message)
        terms = question.terms if isinstance(question, Introduce) else question.agreement.terms
        if isinstance(question, Introduce):
            content = _introduce(question, settings, message)
        else:
            content = _answer(_Received(question, settings, message))
    except _EXPECTED as error:
        sentence = _sentence(error)
        log.error("Site %r: %s", name, sentence)
        content = Refusal(without_cells(sentence, _public_names(terms, config)))
    except Exception as error:  # its text, which may hold cells, must not leave
        log.exception("Site %r: unexpected", name)
        content = Refusal(f"Unexpected {type(error).__name__}; the site's log has the rest.")
    return encode_message(Answer(name, content))


# --- requests about rows --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Received:
    """A request about rows, and what its guards and its answer need."""

    ask: Ask
    settings: SiteSettings
    message: bytes

    @property
    def question(self) -> Question:
        """The request itself."""
        return self.ask.question

    @property
    def on_rows(self) -> OnRows | None:
        """The request if it is about rows under a model."""
        return self.question if isinstance(self.question, (Evaluate, Count)) else None

    @cached_property
    def table(self) -> str:
        """SHA-256 of the site's files."""
        return table_checksum(self.settings)

    @cached_property
    def run(self) -> str:
        """Identifies the agreement, and with it the run and the site's rows."""
        return digest(self.ask.agreement)

    @cached_property
    def checksum(self) -> str:
        """Identifies the rows and their split, as in the introduction."""
        return _checksum(self.settings, self.table, self.ask.agreement.terms)


def _answer(received: _Received) -> Any:
    """Check the request, record it, and answer: the record is on the disk before the answer."""
    _check_rows_are_same(received)
    _check_policy(received)
    _record(received)
    question, settings = received.question, received.settings
    if settings.privacy is not None:
        assert isinstance(question, Evaluate)  # checked
        return answer_privately(question, received.ask.agreement, settings, received.checksum)
    return answer(_client(received), question)


def _check_rows_are_same(received: _Received) -> None:
    if received.ask.agreement.checksums.get(received.settings.name) != received.checksum:
        raise DataError(
            "This site's table is not the one the run began with. Put that one back and resume, or "
            "start a new run."
        )


def _check_policy(received: _Received) -> None:
    """Raise `DataError` for what the site's policy does not answer."""
    settings, agreement = received.settings, received.ask.agreement
    question, on_rows = received.question, received.on_rows
    if isinstance(question, Vote):
        check_vote(question, settings.name)
    if on_rows is not None:
        check_rules_kept(settings.name, settings.rules, on_rows.setup.rules)
        check_question(on_rows, agreement, settings.read_policy.limits)


def _record(received: _Received) -> None:
    """Write the request into the journal, with what its answer costs of the privacy budget."""
    settings, agreement, on_rows = received.settings, received.ask.agreement, received.on_rows
    privacy = settings.privacy
    entry = Entry(
        table=received.table,
        run=received.run,
        question=_digest(received.message),
        purpose=type(received.question).__name__.lower(),
        size=len(received.message),
        points=len(on_rows.request.points) if isinstance(on_rows, Evaluate) else 0,
        split="" if privacy is None else split_of(agreement, settings, received.table),
        privacy=None
        if privacy is None
        else check_private_question(received.question, agreement, settings),
    )
    _write(settings, entry)


def _write(settings: SiteSettings, entry: Entry) -> None:
    journal, after_exact = open_journal(settings.ledger_folder), settings.read_policy.after_exact
    record(journal, entry, settings.privacy, after_exact=after_exact)


def _client(received: _Received) -> LocalClient:
    """Return the site's rows as a client, cached while rows, agreement and policy are the same."""
    settings, agreement, on_rows = received.settings, received.ask.agreement, received.on_rows
    policy = settings.read_policy
    least = max(policy.min_group_rows, 1 if on_rows is None else int(on_rows.setup.min_group_rows))
    key = (settings, policy.sha256, received.run, least)
    if key not in _KEPT:
        while len(_KEPT) >= _MAX_KEPT:
            del _KEPT[next(iter(_KEPT))]
        rows = encoded_rows(settings, agreement, received.checksum)
        _KEPT[key] = LocalClient(
            settings.name,
            rows.part("train", agreement),
            rows.part("test", agreement),
            rules=settings.rules,
            min_group_rows=least,
            tells_scores=False,
            preference=policy.preference or Preference(),
        )
    return _KEPT[key]


def _checksum(settings: SiteSettings, table: str, terms: Terms) -> str:
    checksum = rows_checksum(table, terms)
    return checksum if settings.privacy is None else private_checksum(settings, checksum)


def _digest(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()


# --- introductions --------------------------------------------------------------------------------


def _introduce(question: Introduce, settings: SiteSettings, message: bytes) -> Introduction:
    """Return the site's columns and groups, without levels and groups of few rows."""
    table_sha256, terms = table_checksum(settings), question.terms
    costs = None if settings.privacy is None else (0.0, 0.0)  # what is declared costs nothing
    entry = Entry(table_sha256, "", _digest(message), "introduce", len(message), privacy=costs)
    _write(settings, entry)
    checksum = _checksum(settings, table_sha256, terms)
    if settings.privacy is not None:
        return introduce_privately(terms, settings, checksum)
    table, policy = open_rows(settings, terms), settings.read_policy
    groups = named_groups(table, settings)
    said = Introduction(
        name=settings.name,
        levels=groups,
        present=groups,
        rules=settings.rules,
        min_group_rows=policy.min_group_rows,
        checksum=checksum,
        labels=table.labels,
        statistics=withheld_statistics(table.statistics(), policy.withhold_below),
        withhold_below=policy.withhold_below,
        policy_sha256=policy.sha256 or None,
        sends_spread=policy.limits.curvature,
    )
    for sentence in table.unsuitable():
        log.warning("Site %r: %s", settings.name, sentence)  # not sent: it is about the rows
    return said


# --- sentences ------------------------------------------------------------------------------------


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"Cannot use {str(error.filename or 'a file')!r}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__


def _public_names(terms: Terms | None, config: Config) -> set[str]:
    """Return the names in the request and the site's own, which need no redaction."""
    known = {str(config.get("name", "")), *config}
    if terms is not None:
        known |= {terms.label, *terms.sensitive, *terms.drop, terms.positive or ""}
    return known


def without_cells(sentence: str, known: Iterable[str]) -> str:
    """Return the sentence without quoted text, which may be a cell or a path.

    Names in ``known``, and names of columns, which follow the word, are kept.
    """
    kept = set(known)

    def shown(found: re.Match[str]) -> str:
        before = sentence[: found.start()].lower()
        is_column = re.search(r"columns? (?:'[^']*', )*$", before) is not None
        return found.group() if found.group()[1:-1] in kept or is_column else "'…'"

    return _QUOTED.sub(shown, sentence)
