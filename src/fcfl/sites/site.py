"""Replies of a site: a response computed from its rows, or the reason for rejecting a request."""

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fcfl.client.client import Evaluate, Introduction, LocalClient, Question
from fcfl.client.private import PrivateClient
from fcfl.errors import DataError, FCFLError
from fcfl.federation.federation import answer
from fcfl.federation.serialise import digest
from fcfl.policy import Preference
from fcfl.sites import messages
from fcfl.sites import rows as site_rows
from fcfl.sites.guards import check_policy, check_private_question
from fcfl.sites.journal import Entry, open_journal, record
from fcfl.sites.settings import Config, SiteSettings

log = logging.getLogger("fcfl")
_QUOTED = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_EXPECTED = (FCFLError, ValueError, TypeError, OSError, MemoryError)
_KEPT: dict[tuple[object, ...], LocalClient] = {}  # encoded rows, for the process's next requests
_MAX_KEPT = 4


def reply_to(message: bytes, config: Config) -> bytes:
    """Return the reply to a request. Errors are logged in full and sent without cell values."""
    name = str(config.get("name", "?"))
    terms: messages.Terms | None = None
    content: Any
    try:
        settings = SiteSettings.from_node_config(config)
        request = messages.decode_question(message)
        terms = (
            request.terms if isinstance(request, messages.Introduce) else request.agreement.terms
        )
        content = _answer(_Received(request, terms, settings, message))
    except _EXPECTED as error:
        sentence = _sentence(error)
        log.error("Site %r: %s", name, sentence)
        content = messages.Refusal(without_cells(sentence, _public_names(terms, config)))
    except Exception as error:  # not sent: its text may contain cell values
        log.exception("Site %r: unexpected", name)
        content = messages.Refusal(
            f"Unexpected {type(error).__name__}; see the site's log for details."
        )
    return messages.encode_message(messages.Answer(name, content))


@dataclass(frozen=True)
class _Received:
    """A request, its terms and the settings of the site that received it."""

    request: messages.ToSite
    terms: messages.Terms
    settings: SiteSettings
    message: bytes

    @cached_property
    def table(self) -> str:
        """SHA-256 of the site's files."""
        return site_rows.table_checksum(self.settings)

    @cached_property
    def checksum(self) -> str:
        """A checksum of the rows and their split.

        With a privacy budget it is keyed (HMAC); a plain hash would let the server test a guess of
        the whole table.
        """
        checksum = digest((self.terms, self.table))
        if self.settings.privacy is None:
            return checksum
        journal = open_journal(self.settings.ledger_folder)
        with journal.locked():
            key = journal.secret("checksum")
        return hmac.new(key, checksum.encode(), hashlib.sha256).hexdigest()


def _answer(received: _Received) -> Any:
    """Check the request, record it in the journal, then compute the response."""
    request, settings = received.request, received.settings
    is_private = settings.privacy is not None
    if isinstance(request, messages.Introduce):
        _record(received, (0.0, 0.0) if is_private else None)  # declared columns cost no privacy
        return _introduce_privately(received) if is_private else _introduce(received)
    question, agreement = request.question, request.agreement
    if agreement.checksums.get(settings.name) != received.checksum:
        raise DataError(
            "This site's table has changed since the run began. Restore the original table and "
            "resume, or start a new run."
        )
    check_policy(question, agreement, settings)
    if is_private:
        costs = check_private_question(question, agreement, site_rows.declared_columns(settings))
        _record(received, costs, agreement)
        return _answer_privately(received, question, agreement)
    _record(received, None, agreement)
    return answer(_client(received, question, agreement), question)


def _record(
    received: _Received,
    costs: tuple[float, float] | None,
    agreement: messages.Agreement | None = None,
) -> None:
    """Append the request to the journal, with the privacy cost of its response."""
    settings, request = received.settings, received.request
    question = None if isinstance(request, messages.Introduce) else request.question
    split = ""
    if agreement is not None and costs is not None:  # whatever assigns a row to a part
        # with two files, rows can move between them: then the split includes their checksum
        files = received.table if settings.test_table is not None else ""
        columns = agreement.schema.columns
        split = digest((received.terms, files, agreement.labels, agreement.levels, columns))
    entry = Entry(
        table=received.table,
        run="" if agreement is None else digest(agreement),
        question=hashlib.sha256(received.message).hexdigest(),
        purpose=type(request if question is None else question).__name__.lower(),
        size=len(received.message),
        points=len(question.request.points) if isinstance(question, Evaluate) else 0,
        split=split,
        privacy=costs,
    )
    after_exact = settings.read_policy.after_exact
    record(open_journal(settings.ledger_folder), entry, settings.privacy, after_exact=after_exact)


def _client(received: _Received, question: Question, agreement: messages.Agreement) -> LocalClient:
    """Return the site's rows as a client, cached while rows, agreement and policy are the same."""
    settings, policy = received.settings, received.settings.read_policy
    setup = getattr(question, "setup", None)
    min_rows = max(policy.min_group_rows, 1 if setup is None else int(setup.min_group_rows))
    key = (settings, policy.sha256, digest(agreement), min_rows)
    if key not in _KEPT:
        while len(_KEPT) >= _MAX_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = LocalClient(
            settings.name,
            *site_rows.encoded_rows(settings, agreement, received.checksum),
            rules=settings.rules,
            min_group_rows=min_rows,
            sends_scores=False,
            preference=policy.preference or Preference(),
        )
    return _KEPT[key]


def _answer_privately(
    received: _Received, question: Question, agreement: messages.Agreement
) -> Any:
    """Return noisy sums over the rows. Log errors at the site only, as they may contain cells."""
    settings = received.settings
    assert settings.privacy is not None
    try:
        train, test = site_rows.encoded_rows(settings, agreement, received.checksum)
        client = PrivateClient(
            settings.name, train, test, privacy=settings.privacy, rules=settings.rules
        )
        return answer(client, question)
    except (DataError, ValueError, TypeError, MemoryError) as error:
        log.error("Site %r: %s", settings.name, error)
        raise DataError(
            "This site could not process its rows; see the site's log for details."
        ) from error


# --- introductions --------------------------------------------------------------------------------


def _introduce(received: _Received) -> Introduction:
    """Return the site's columns and groups, without levels and groups that have few rows."""
    settings, policy = received.settings, received.settings.read_policy
    table = site_rows.open_rows(settings, received.terms)
    groups = site_rows.named_groups(table, settings)
    introduction = Introduction(
        name=settings.name,
        levels=groups,
        present=groups,
        rules=settings.rules,
        min_group_rows=policy.min_group_rows,
        checksum=received.checksum,
        labels=table.labels,
        statistics=site_rows.withhold(table.statistics(), policy.withhold_below),
        withhold_below=policy.withhold_below,
        policy_sha256=policy.sha256 or None,
        sends_spread=policy.limits.curvature,
    )
    for sentence in table.unsuitable():
        log.warning("Site %r: %s", settings.name, sentence)  # not sent: it describes cell values
    return introduction


def _introduce_privately(received: _Received) -> Introduction:
    """Return the columns and groups that the site's schema declares, without reading rows."""
    settings, declared = received.settings, site_rows.declared_columns(received.settings)
    for name in received.terms.sensitive:
        if name not in declared.levels:
            raise DataError(f"This site's schema declares no groups of column {name!r}.")
    levels = {name: declared.levels[name] for name in received.terms.sensitive}
    return Introduction(
        name=settings.name,
        levels=levels,
        present=levels,
        rules=settings.rules,
        checksum=received.checksum,
        labels=declared.labels,
        policy_sha256=settings.read_policy.sha256,
        privacy=settings.privacy,
        schema=declared.schema,
    )


# --- sentences ------------------------------------------------------------------------------------


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"Cannot use {str(error.filename or 'a file')!r}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__


def _public_names(terms: messages.Terms | None, config: Config) -> set[str]:
    """Return names that need no redaction: those in the request, the site's name, its options."""
    known = {str(config.get("name", "")), *config}
    if terms is not None:
        known |= {terms.label, *terms.sensitive, *terms.drop, terms.positive or ""}
    return known


def without_cells(sentence: str, known: Iterable[str]) -> str:
    """Return the sentence without quoted text, which may be a cell or a path.

    Names in ``known`` are kept, and names that follow the word "column" or "columns".
    """
    kept = set(known)

    def shown(found: re.Match[str]) -> str:
        before = sentence[: found.start()].lower()
        is_column = re.search(r"columns? (?:'[^']*', )*$", before) is not None
        return found.group() if found.group()[1:-1] in kept or is_column else "'…'"

    return _QUOTED.sub(shown, sentence)
