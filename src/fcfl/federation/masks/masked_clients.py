"""Clients that answer the questions of masked sums: in one process, and at a site."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fcfl._types import ClientId
from fcfl.client.local_client import Client
from fcfl.federation.federation import answer
from fcfl.federation.masks.hidden_parts import with_own_rows
from fcfl.federation.masks.mask_holder import MaskHolder
from fcfl.federation.masks.mask_journal import MaskJournal
from fcfl.federation.masks.mask_messages import (
    MaskedAsk,
    MaskQuestion,
    PrepareMasks,
    SumTerms,
)
from fcfl.federation.masks.mask_sums import Check, MaskedSums, usual_threshold
from fcfl.mask_policy import MaskPolicy


def answer_masked(client: Client | None, holder: MaskHolder, question: MaskQuestion) -> Any:
    """What a client says to any question of a masked sum; only reports need its rows."""
    if isinstance(question, PrepareMasks):
        return holder.prepare(question.terms)
    if not isinstance(question, MaskedAsk):
        return holder.unmask(question)
    assert client is not None
    own = replace(question, question=with_own_rows(client, holder.name, question.question))
    holder.check(own)
    return holder.mask(own, answer(client, own.question))


def mask_in_process(
    clients: Mapping[ClientId, Client],
    threshold: int | None,
    on_exchange: Callable[[], None] = lambda: None,
) -> MaskedSums:
    """Masked sums over clients of this process, with keys that it forgets.

    ``on_exchange`` is called before each request.
    """
    holders = {
        name: MaskHolder(name, secrets.token_bytes(32), MaskJournal(), MaskPolicy())
        for name in clients
    }
    keys = {name: holder.public for name, holder in holders.items()}
    terms = SumTerms(secrets.token_hex(16), threshold or usual_threshold(len(keys)), keys)

    def ask(question: MaskQuestion, check: Check) -> dict[ClientId, Any]:
        return ask_some(question, check, tuple(clients), len(clients))

    def ask_some(
        question: MaskQuestion, check: Check, names: Sequence[ClientId], enough: int
    ) -> dict[ClientId, Any]:
        on_exchange()
        answers = {}
        for name in names[:enough]:
            own = question.for_client(name)
            if isinstance(own, MaskedAsk) and isinstance(question, MaskedAsk):
                own = replace(own, question=question.question)  # one setup: rows are kept for it
            answers[name] = answer_masked(clients[name], holders[name], own)
            check(name, answers[name])
        return answers

    return MaskedSums(terms, ask, ask_some)
