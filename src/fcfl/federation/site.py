"""A site: it answers a question about its own rows, or says why not."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from fcfl._types import Point
from fcfl.client.local_client import LocalClient
from fcfl.client.questions import Count, Evaluate, HoldOut, Introduction, Question
from fcfl.errors import DataError, FCFLError
from fcfl.federation.federation import answer
from fcfl.federation.messages import (
    Agreement,
    Answer,
    Ask,
    Introduce,
    Refusal,
    Terms,
    decode_question,
    encode_message,
)
from fcfl.federation.site_rows import encoded_rows, open_rows, rows_checksum
from fcfl.federation.site_settings import SiteSettings
from fcfl.models.linear import Linear
from fcfl.policy import check_rules_kept

log = logging.getLogger("fcfl")
_QUOTED = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_ANSWERED = ("params", "want", "curvature_weights")  # what docs/deployment.md says of a point
_EXPECTED = (FCFLError, ValueError, TypeError, OSError, MemoryError)


def reply_to(message: bytes, config: Mapping[str, Any]) -> bytes:
    """Answer a question; what goes wrong is told in full here, and without cells there."""
    name = str(config.get("name", "?"))
    terms: Terms | None = None
    content: Any
    try:
        settings = SiteSettings.from_node_config(config)
        question = decode_question(message)
        if isinstance(question, Introduce):
            terms = question.terms
            content = _introduce(terms, settings)
        else:
            terms = question.agreement.terms
            content = answer_question(question, settings)
    except _EXPECTED as error:
        sentence = _sentence(error)
        log.error("Site %r: %s", name, sentence)
        content = Refusal(without_cells(sentence, _names(terms, config)))
    except Exception as error:  # its text, which may hold cells, must not leave
        log.exception("Site %r: unexpected", name)
        content = Refusal(f"Unexpected {type(error).__name__}; the site's log has the rest.")
    return encode_message(Answer(name, content))


def answer_question(asked: Ask, settings: SiteSettings) -> Any:
    """The answer, from the site's own rows."""
    agreement, question = asked.agreement, asked.question
    setup = question.setup
    checksum = rows_checksum(settings, agreement.terms)
    if agreement.checksums.get(settings.name) != checksum:
        raise DataError("This site's table is not the one the run began with. Start a new run.")
    check_rules_kept(settings.name, settings.rules, setup.rules)
    check_modest(question, agreement)
    rows = encoded_rows(settings, agreement, checksum)
    counting = isinstance(question, Count)
    client = LocalClient(
        settings.name,
        rows.part("train", agreement),
        rows.part("test", agreement) if counting else None,
        rules=settings.rules,
        min_group_rows=int(max(settings.min_group_rows, setup.min_group_rows)),
    )
    return answer(client, question)


def check_modest(question: Question, agreement: Agreement) -> None:
    """Refuse what could tell more of single rows than docs/deployment.md says."""
    model = question.setup.model
    if not isinstance(model, Linear) or model.n_features != agreement.schema.n_features:
        raise DataError("A site reports on linear models of the columns agreed on.")
    if isinstance(question, HoldOut):
        raise DataError("A site does not answer `hold_out`.")
    if isinstance(question, Evaluate):
        for point in question.request.points:
            for part in fields(Point):
                if part.name not in _ANSWERED and getattr(point, part.name) != part.default:
                    raise DataError(f"A site does not answer `{part.name}`.")


def _introduce(terms: Terms, settings: SiteSettings) -> Introduction:
    least = settings.withhold_below
    table = open_rows(settings, terms)
    policy = settings.read_policy
    groups = table.groups(least)
    return Introduction(
        name=settings.name,
        levels=groups,
        present=groups,
        rules=settings.rules,
        min_group_rows=settings.min_group_rows,
        checksum=rows_checksum(settings, terms),
        labels=table.labels,
        statistics=table.statistics(least),
        withhold_below=least,
        policy_sha256=None if policy is None else policy.sha256,
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
