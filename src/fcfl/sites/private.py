"""A site with a privacy budget: it names what is declared, and answers releases only."""

import hashlib
import hmac
import logging

from fcfl.client.client import Evaluate, Introduction, Question
from fcfl.client.private import PrivateClient, costs_of
from fcfl.data.client_data import ClientData
from fcfl.data.declared_rows import Declared, read_declared, split_by_content
from fcfl.errors import DataError
from fcfl.federation.federation import answer
from fcfl.federation.serialise import digest
from fcfl.sites.journal import open_journal
from fcfl.sites.messages import Agreement, Terms
from fcfl.sites.rows import encoded_rows
from fcfl.sites.settings import SiteSettings

log = logging.getLogger("fcfl")


def private_checksum(settings: SiteSettings, checksum: str) -> str:
    """Identify the site's rows to the site alone: a hash without key would confirm a guess."""
    journal = open_journal(settings.ledger_folder)
    with journal.locked():
        key = journal.secret("checksum")
    return hmac.new(key, checksum.encode(), hashlib.sha256).hexdigest()


def introduce_privately(terms: Terms, settings: SiteSettings, checksum: str) -> Introduction:
    """Return what the site's file declares; no row is read."""
    declared = _declared(settings)
    for name in terms.sensitive:
        if name not in declared.levels:
            raise DataError(f"This site's schema declares no groups of column {name!r}.")
    levels = {name: declared.levels[name] for name in terms.sensitive}
    return Introduction(
        name=settings.name,
        levels=levels,
        present=levels,
        rules=settings.rules,
        checksum=checksum,
        labels=declared.labels,
        policy_sha256=settings.read_policy.sha256,
        privacy=settings.privacy,
        schema=declared.schema,
    )


def check_private_question(
    question: object, agreement: Agreement, settings: SiteSettings
) -> tuple[float, float]:
    """Reject all but releases about declared columns; return what they cost both parts."""
    declared = _declared(settings)
    levels = {name: declared.levels.get(name) for name in agreement.terms.sensitive}
    if agreement.schema != declared.schema or agreement.labels != declared.labels:
        raise DataError("This site answers about the columns and labels that its schema declares.")
    if dict(agreement.levels) != levels:
        raise DataError("This site answers about the groups that its schema declares.")
    if not isinstance(question, Evaluate):
        raise DataError(
            "A site with a privacy budget says no exact counts and no losses of held-out rows, "
            "only noisy sums: train with `privacy`."
        )
    costs = costs_of(question.request.points)
    return costs.get("train", 0.0), costs.get("test", 0.0)


def split_of(agreement: Agreement, settings: SiteSettings, table: str) -> str:
    """Identify the split: all that decides which part a row is in, beside the row."""
    terms = agreement.terms
    moved = table if settings.test_table is not None else ""  # rows may move between two files
    return digest((terms, moved, agreement.labels, agreement.levels, agreement.schema.columns))


def answer_privately(
    question: Question, agreement: Agreement, settings: SiteSettings, checksum: str
) -> object:
    """Return noisy sums over the rows. Errors with rows are only in the site's log."""
    assert settings.privacy is not None
    try:
        train, test = _parts(settings, agreement, checksum)
        client = PrivateClient(
            settings.name, train, test, privacy=settings.privacy, rules=settings.rules
        )
        return answer(client, question)
    except (DataError, ValueError, TypeError, MemoryError) as error:
        log.error("Site %r: %s", settings.name, error)
        raise DataError(
            "This site could not answer from its rows; its own log says why."
        ) from error


def _parts(
    settings: SiteSettings, agreement: Agreement, checksum: str
) -> tuple[ClientData, ClientData]:
    """Return training and held-out rows: of two files, or split by each row's content."""
    rows = encoded_rows(settings, agreement, checksum)
    if settings.test_table is not None:
        return rows.part("train", agreement), rows.part("test", agreement)
    terms = agreement.terms
    return split_by_content(rows.part("train", agreement), terms.test_size, terms.seed)


def _declared(settings: SiteSettings) -> Declared:
    schema = settings.read_policy.schema
    assert schema is not None  # a policy with [privacy] has one
    return read_declared(schema)
