"""A site: it answers a question about its own rows, or says why not."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fcfl import __version__
from fcfl._types import Point, Vector
from fcfl.client.counts import Counts, count_rows
from fcfl.errors import DataError, FCFLError
from fcfl.federation.messages import (
    Agreement,
    Answer,
    Count,
    Counted,
    Introduce,
    Introduction,
    Question,
    Refusal,
    Reported,
    Terms,
    open_question,
    seal,
)
from fcfl.federation.site_rows import EncodedRows, encoded_rows, open_rows, rows_checksum
from fcfl.federation.site_settings import SiteSettings, check_rules_kept
from fcfl.models.linear import LinearClient, linear_client, linear_logits

log = logging.getLogger("fcfl")
_QUOTED = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_ANSWERED = ("params", "want", "curvature_weights")  # what docs/deployment.md says of a point
_FORESEEN = (FCFLError, ValueError, TypeError, OSError, MemoryError)


def reply_to(message: bytes, config: Mapping[str, Any]) -> bytes:
    """Answer a sealed question; what goes wrong is told in full here, and without cells there."""
    name = str(config.get("name", "?"))
    terms: Terms | None = None
    try:
        settings = SiteSettings.from_node_config(config)
        question = open_question(message)
        terms = question.terms if isinstance(question, Introduce) else question.agreement.terms
        answer: Answer = answer_question(question, settings)
    except _FORESEEN as error:
        sentence = _sentence(error)
        log.error("Site %r: %s", name, sentence)
        answer = Refusal(name, without_cells(sentence, _names(terms, config)))
    except Exception as error:  # its text, which may hold cells, must not leave
        log.exception("Site %r: unforeseen", name)
        answer = Refusal(name, f"Unforeseen {type(error).__name__}; the site's log has the rest.")
    return seal(answer)


def answer_question(question: Question, settings: SiteSettings) -> Answer:
    """The answer, from the site's own rows."""
    if isinstance(question, Introduce):
        return _introduce(question.terms, settings)
    agreement = question.agreement
    checksum = rows_checksum(settings, agreement.terms)
    if agreement.checksums.get(settings.name) != checksum:
        raise DataError("This site's table is not the one the run began with. Start a new run.")
    check_rules_kept(settings.name, settings.rules, agreement.rules)
    rows = encoded_rows(settings, agreement, checksum)
    client = _without_small_groups(
        linear_client(settings.name, rows.part("train", agreement), agreement.rates),
        _least(settings, agreement),
    )
    if isinstance(question, Count):
        return _count(question.params, agreement, settings, client, rows)
    points = question.request.points
    for point in points:
        check_modest(point)
    return Reported(settings.name, tuple(map(client.report, points)))


def check_modest(point: Point) -> None:
    """Refuse what only baselines ask for: it could tell more of single rows than is documented."""
    for part in fields(Point):
        if part.name not in _ANSWERED and getattr(point, part.name) != part.default:
            raise DataError(f"A site does not answer `{part.name}`; it was asked for it.")


def _introduce(terms: Terms, settings: SiteSettings) -> Introduction:
    least = settings.withhold_below
    table = open_rows(settings, terms)
    policy = settings.read_policy
    return Introduction(
        name=settings.name,
        version=__version__,
        checksum=rows_checksum(settings, terms),
        labels=table.labels,
        levels=table.groups(least),
        statistics=table.statistics(least),
        rules=settings.rules,
        min_group_rows=settings.min_group_rows,
        withhold_below=least,
        policy_sha256=None if policy is None else policy.sha256,
    )


def _count(
    params: Vector,
    agreement: Agreement,
    settings: SiteSettings,
    client: LinearClient,
    rows: EncodedRows,
) -> Counted:
    counts = {}
    for name in ("train", "test"):
        data = rows.part(name, agreement)
        found = count_rows(linear_logits(data.X, params), data, agreement.rates)
        counts[name] = _without_small_counts(found, _least(settings, agreement))
    return Counted(settings.name, client.report(Point(params)), counts["train"], counts["test"])


def _least(settings: SiteSettings, agreement: Agreement) -> int:
    """The larger threshold: the server's, or the site's own."""
    return max(settings.min_group_rows, agreement.min_group_rows)


def _without_small_groups(client: LinearClient, least: int) -> LinearClient:
    """The same client, in which a group of fewer rows has none."""
    kept = client.group_counts >= least
    return replace(
        client,
        member_counts=client.member_counts * kept,
        group_counts=np.where(kept, client.group_counts, 0.0),
    )


def _without_small_counts(counts: Counts, least: int) -> Counts:
    kept = counts.group_counts >= least
    return replace(
        counts,
        group_counts=np.where(kept, counts.group_counts, 0.0),
        group_selected=np.where(kept, counts.group_selected, 0.0),
    )


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"Cannot use {str(error.filename or 'a file')!r}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__


def _names(terms: Terms | None, config: Mapping[str, Any]) -> set[str]:
    """Names that are no secret: those in the question, and the site's own."""
    known = {str(config.get("name", "")), *config}
    if terms is not None:
        known |= {terms.label, *terms.sensitive, *terms.drop, terms.positive or ""}
    return known


def without_cells(sentence: str, known: Iterable[str]) -> str:
    """The sentence with quoted text, which may be a cell or a path, left out unless known.

    Names of columns, which follow the word, are kept.
    """
    kept = set(known)

    def shown(found: re.Match[str]) -> str:
        before = sentence[: found.start()].lower()
        is_column = re.search(r"columns? (?:'[^']*', )*$", before) is not None
        return found.group() if found.group()[1:-1] in kept or is_column else "'…'"

    return _QUOTED.sub(shown, sentence)
