"""A site with a privacy budget: it names what is declared, and answers releases only."""

import hashlib
import hmac
import logging
import secrets

from fcfl.client.private_client import PrivateClient, costs_of
from fcfl.client.questions import Evaluate, Introduction
from fcfl.data.client_data import ClientData
from fcfl.data.declared_rows import Declared, read_declared, split_by_content
from fcfl.errors import DataError
from fcfl.federation.federation import answer
from fcfl.federation.locked_file import locked, write_anew
from fcfl.policy import PrivacyBudget
from fcfl.sites.messages import Agreement, Terms
from fcfl.sites.rows import encoded_rows, rows_checksum
from fcfl.sites.settings import SiteSettings

log = logging.getLogger("fcfl")
KEY = "checksum.key"  # in the ledger's folder; it never leaves the site


def private_checksum(settings: SiteSettings, table: str, terms: Terms) -> str:
    """Identifies the site's rows to the site alone: a hash without key would confirm a guess."""
    with locked(settings.ledger_folder / KEY) as file:
        with open(file, "rb", closefd=False) as content:
            key = content.read()
        if len(key) != 32:  # there is none yet, or one that was torn
            key = secrets.token_bytes(32)
            write_anew(file, key)
    return hmac.new(key, rows_checksum(table, terms).encode(), hashlib.sha256).hexdigest()


def introduce_privately(
    terms: Terms, settings: SiteSettings, budget: PrivacyBudget, checksum: str
) -> Introduction:
    """What the site's file declares; no row is read."""
    declared = _declared(settings)
    for name in terms.sensitive:
        if name not in declared.levels:
            raise DataError(f"This site's schema declares no groups of column {name!r}.")
    levels = {name: declared.levels[name] for name in terms.sensitive}
    policy = settings.read_policy
    return Introduction(
        name=settings.name,
        levels=levels,
        present=levels,
        rules=settings.rules,
        checksum=checksum,
        labels=declared.labels,
        policy_sha256=None if policy is None else policy.sha256,
        privacy=budget,
        schema=declared.schema,
    )


def check_private_question(
    question: object, agreement: Agreement, settings: SiteSettings
) -> tuple[float, float]:
    """Refuse all but releases about declared columns; what they cost training and other rows."""
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
    """Names the split: all that decides which part a row is in, beside the row."""
    terms = agreement.terms
    how: tuple[object, ...] = (terms.test_size, terms.seed)
    if settings.test_table is not None:
        how = (table,)  # its owner may move rows from one file to the other
    parts = (how, terms.label, terms.sensitive, agreement.labels, agreement.levels)
    content = repr((*parts, agreement.schema.columns))
    return f"content:{hashlib.sha256(content.encode()).hexdigest()[:32]}"


def answer_privately(
    question: Evaluate,
    agreement: Agreement,
    settings: SiteSettings,
    budget: PrivacyBudget,
    checksum: str,
) -> object:
    """Noisy sums over the rows. What goes wrong with them is told in the site's log only."""
    try:
        train, test = _parts(settings, agreement, checksum)
        client = PrivateClient(settings.name, train, test, privacy=budget, rules=settings.rules)
        return answer(client, question)
    except (DataError, ValueError, TypeError, MemoryError) as error:
        log.error("Site %r: %s", settings.name, error)
        raise DataError(
            "This site could not answer from its rows; its own log says why."
        ) from error


def _parts(
    settings: SiteSettings, agreement: Agreement, checksum: str
) -> tuple[ClientData, ClientData]:
    """Training and held-out rows: of two files, or split by what each row holds."""
    rows = encoded_rows(settings, agreement, checksum)
    if settings.test_table is not None:
        return rows.part("train", agreement), rows.part("test", agreement)
    terms = agreement.terms
    return split_by_content(rows.part("train", agreement), terms.test_size, terms.seed)


def _declared(settings: SiteSettings) -> Declared:
    policy = settings.read_policy
    if policy is None or policy.schema is None:
        raise DataError("`schema` must be in [privacy] of this site's policy: a declared file.")
    return read_declared(policy.schema)
