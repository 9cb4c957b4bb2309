"""A site with a privacy budget: it names what is declared, and answers releases only."""

import hashlib
import hmac
import logging
import secrets
from dataclasses import replace

import numpy as np
from scipy import sparse

from fcfl.client.private_client import PrivateClient, costs_of
from fcfl.client.questions import Evaluate, Introduction
from fcfl.data.client_data import ClientData
from fcfl.data.declared import Declared, read_declared, split_by_content
from fcfl.errors import DataError
from fcfl.federation.federation import answer
from fcfl.federation.locked_file import append, locked
from fcfl.federation.messages import Agreement, Terms
from fcfl.federation.site_rows import encoded_rows, rows_checksum
from fcfl.federation.site_settings import SiteSettings
from fcfl.policy import PrivacyBudget

log = logging.getLogger("fcfl")
KEY = "checksum.key"  # in the ledger's folder; it never leaves the site


def private_checksum(settings: SiteSettings, table: str, terms: Terms) -> str:
    """Identifies the site's rows to the site alone: a hash without key would confirm a guess."""
    with locked(settings.ledger_folder / KEY) as file:
        with open(file, "rb", closefd=False) as content:
            key = content.read()
        if len(key) != 32:
            key = secrets.token_bytes(32)
            append(file, key)
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
    train, test = rows.part("train", agreement), rows.part("test", agreement)
    if settings.test_table is not None:
        return train, test
    terms = agreement.terms
    return split_by_content(_joined(train, test), terms.test_size, terms.seed)


def _joined(one: ClientData, other: ClientData) -> ClientData:
    parts = [part.X.tocsr() if hasattr(part.X, "tocsr") else part.X for part in (one, other)]
    X = np.vstack(parts) if isinstance(parts[0], np.ndarray) else sparse.vstack(parts)
    groups = {name: np.append(codes, other.groups[name]) for name, codes in one.groups.items()}
    return replace(one, X=X, y=np.append(one.y, other.y), groups=groups)


def _declared(settings: SiteSettings) -> Declared:
    policy = settings.read_policy
    if policy is None or policy.schema is None:
        raise DataError("`schema` must be in [privacy] of this site's policy: a declared file.")
    return read_declared(policy.schema)
