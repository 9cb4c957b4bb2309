"""A site: it answers a question about its own rows, or says why not."""

import hashlib
import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._types import Request, Vector
from fcfl.client.local_client import Client
from fcfl.client.questions import Evaluate, Introduction, Question, Setup, Vote
from fcfl.errors import DataError, FCFLError
from fcfl.federation.federation import answer
from fcfl.federation.masks.mask_messages import MaskedAsk, MaskQuestion
from fcfl.policy import check_rules_kept
from fcfl.sites.agreement import run_id
from fcfl.sites.guarded_client import GuardedClient
from fcfl.sites.guards import (
    check_question,
    check_split,
    check_vote,
    leave_one_out_of,
    params_of,
)
from fcfl.sites.ledger import Entry, Ledger
from fcfl.sites.messages import (
    Agreement,
    Answer,
    Ask,
    Introduce,
    Refusal,
    Terms,
    ToSite,
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
    open_rows,
    rows_checksum,
    table_checksum,
)
from fcfl.sites.settings import Config, SiteSettings
from fcfl.sites.withholding import withheld_statistics

log = logging.getLogger("fcfl")
_QUOTED = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_EXPECTED = (FCFLError, ValueError, TypeError, OSError, MemoryError)


def reply_to(message: bytes, config: Config) -> bytes:
    """Answer a question; what goes wrong is told in full here, and without cells there."""
    name = str(config.get("name", "?"))
    terms: Terms | None = None
    content: Any
    try:
        settings = SiteSettings.from_node_config(config)
        question = decode_question(message)
        terms = question.terms if isinstance(question, Introduce) else question.agreement.terms
        content = _answer(question, settings, message)
    except _EXPECTED as error:
        sentence = _sentence(error)
        log.error("Site %r: %s", name, sentence)
        content = Refusal(without_cells(sentence, _names(terms, config)))
    except Exception as error:  # its text, which may hold cells, must not leave
        log.exception("Site %r: unexpected", name)
        content = Refusal(f"Unexpected {type(error).__name__}; the site's log has the rest.")
    return encode_message(Answer(name, content))


def _answer(question: ToSite, settings: SiteSettings, message: bytes) -> Any:
    """The answer from the site's own rows; the ledger has the question before it is computed."""
    table, privacy = table_checksum(settings), settings.privacy
    terms = question.terms if isinstance(question, Introduce) else question.agreement.terms
    checksum = rows_checksum(table, terms)
    if privacy is not None:
        checksum = private_checksum(settings, table, terms)
    if isinstance(question, Introduce):
        check_split(terms, settings.limits)
        entry = Entry(table, "", _digest(message), "introduce", len(message))
        costs = () if privacy is None else (0.0, 0.0)  # what is declared costs nothing
        _record(settings, replace(entry, privacy=costs), question)
        if privacy is not None:
            return introduce_privately(terms, settings, privacy, checksum)
        return _introduce(terms, settings, table)
    agreement, asked = question.agreement, question.question
    if agreement.checksums.get(settings.name) != checksum:
        raise DataError(
            "This site's table is not the one the run began with. Put that one back and resume, or "
            "start a new run."
        )
    check_split(agreement.terms, settings.limits)
    about_rows = _about_rows(asked)
    if isinstance(about_rows, Vote):
        check_vote(about_rows, settings.name)
    elif about_rows is not None:
        check_rules_kept(settings.name, settings.rules, about_rows.setup.rules)
        masked = about_rows is not asked
        check_question(about_rows, agreement, settings.limits, masked=masked)
    costs = () if privacy is None else check_private_question(asked, agreement, settings)
    purpose = type(asked).__name__.lower()
    run = _digest(encode_message(Ask(agreement, _NO_QUESTION)))
    entry = Entry(table, run, _digest(message), purpose, len(message), *_spent(about_rows))
    _record(settings, replace(entry, privacy=costs), question)
    if privacy is not None:
        assert isinstance(asked, Evaluate)  # else it was refused
        return answer_privately(asked, agreement, settings, privacy, checksum)
    client = None
    if about_rows is not None:
        client = _client(about_rows, agreement, settings, (run, table, checksum))
    if isinstance(asked, MaskQuestion):
        return _answer_masked(asked, agreement, settings, client, checksum)
    assert client is not None
    return answer(client, asked)


def _about_rows(asked: Question | MaskQuestion) -> Question | None:
    """What is asked about rows; None where it is about keys only."""
    if isinstance(asked, MaskedAsk):
        return asked.question
    return None if isinstance(asked, MaskQuestion) else asked


def _answer_masked(
    asked: MaskQuestion,
    agreement: Agreement,
    settings: SiteSettings,
    client: Client | None,
    checksum: str,
) -> Any:
    from fcfl.federation.masks.masked_clients import answer_masked
    from fcfl.sites.masks import site_holder  # needs an extra

    run = run_id(agreement)
    if asked.terms.run != run:
        raise DataError("The masked sum is of another run than the question.")
    return answer_masked(client, site_holder(settings, run, checksum), asked)


def _client(
    asked: Question, agreement: Agreement, settings: SiteSettings, sums: tuple[str, str, str]
) -> GuardedClient:
    """The site's rows; ``sums`` identify the run, the table, and the rows as they are split."""
    _, table, checksum = sums
    compared = 1.0 if isinstance(asked, Vote) else asked.setup.min_group_rows
    key = (settings, settings.read_policy.sha256, *sums, compared)
    if key in _KEPT:
        return _KEPT[key]
    while len(_KEPT) >= _MOST_KEPT:
        del _KEPT[next(iter(_KEPT))]
    rows = encoded_rows(settings, agreement, checksum)
    _KEPT[key] = GuardedClient(
        settings.name,
        rows.part("train", agreement),
        rows.part("test", agreement),
        settings.ledger_folder,
        rows=f"{table} {_held_out(agreement.terms)}",
        least=settings.min_group_rows,
        rules=settings.rules,
        min_group_rows=int(max(settings.min_group_rows, compared)),
        preference=settings.preference,
    )
    return _KEPT[key]


_LEDGERS: dict[Path, Ledger] = {}  # a process that lives on reads only what is new
_KEPT: dict[tuple[object, ...], GuardedClient] = {}  # nor does it encode and merge rows again
_MOST_KEPT = 4
_NO_QUESTION = Evaluate(Setup(None, ()), Request(()))


def _record(settings: SiteSettings, entry: Entry, question: ToSite) -> None:
    folder = settings.ledger_folder
    if isinstance(question, Introduce):
        splits = [_held_out(question.terms)]
    else:
        splits = [_held_out(question.agreement.terms)]
        if settings.privacy is not None:
            splits.append(split_of(question.agreement, settings, entry.table))
    ledger = _LEDGERS.setdefault(folder, Ledger(folder))
    ledger.record(
        replace(entry, splits=tuple(splits)),
        settings.limits,
        settings.privacy,
        after_exact=settings.read_policy.after_exact,
    )


def _digest(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()


def _held_out(terms: Terms) -> str:
    """Which rows are held out, and in which order the others are: by label, groups and seed."""
    parts = (terms.label, terms.sensitive, terms.positive, terms.test_size, terms.seed)
    return f"rows:{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"


def _spent(question: Question | None) -> tuple[int, tuple[str, ...]]:
    """How many models are reported on, and which are counted or have leave-one-out losses."""
    if question is None or isinstance(question, Vote):
        return 0, ()
    counted = params = params_of(question)
    if isinstance(question, Evaluate):
        points = question.request.points
        counted = [point.params for point in points if point.want == "decisions"]
        counted += [
            np.append(model, factor)  # the same model tells more with another factor
            for one in leave_one_out_of(question)
            for model, factor in zip(one.models, one.factors, strict=True)
        ]
    return len(params), _models(counted, question.setup.model)


def _models(params: Iterable[Vector], model: Any) -> tuple[str, ...]:
    """Identify decisions by parameters and threshold: at another one they are others."""
    return tuple(
        sorted({_digest(one.tobytes() + repr(model.threshold).encode())[:16] for one in params})
    )


def _introduce(terms: Terms, settings: SiteSettings, table_sha256: str) -> Introduction:
    least = settings.withhold_below
    table = open_rows(settings, terms)
    groups = table.groups(least)
    said = Introduction(
        name=settings.name,
        levels=groups,
        present=groups,
        rules=settings.rules,
        min_group_rows=settings.min_group_rows,
        checksum=rows_checksum(table_sha256, terms),
        labels=table.labels,
        statistics=withheld_statistics(table.statistics(), least),
        withhold_below=least,
        policy_sha256=settings.read_policy.sha256 or None,
        mask_key=_mask_key(settings) if terms.masked else "",
        sends_spread=settings.limits.curvature is True,
    )
    for sentence in table.unsuitable():
        log.warning("Site %r: %s", settings.name, sentence)  # not sent: it speaks of the rows
    return said


def _mask_key(settings: SiteSettings) -> str:
    from fcfl.sites.masks import site_public  # needs an extra

    return site_public(settings)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"Cannot use {str(error.filename or 'a file')!r}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__


def _names(terms: Terms | None, config: Config) -> set[str]:
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
