"""Clients that answer the questions of masked sums: in one process, and at a site."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcfl._types import ClientId
from fcfl.client.local_client import Client
from fcfl.errors import DataError
from fcfl.federation.federation import answer
from fcfl.federation.masks.hidden_parts import with_own_rows
from fcfl.federation.masks.mask_holder import MaskHolder
from fcfl.federation.masks.mask_journal import MaskJournal
from fcfl.federation.masks.mask_keys import public_of
from fcfl.federation.masks.mask_messages import (
    MaskedAsk,
    MaskQuestion,
    PrepareMasks,
    SumTerms,
)
from fcfl.federation.masks.mask_sums import Check, MaskedSums, usual_threshold
from fcfl.federation.site_settings import SiteSettings
from fcfl.mask_policy import MaskPolicy

KEY_FILE = "mask.key"


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


def site_holder(settings: SiteSettings, run: str, checksum: str) -> MaskHolder:
    """A site's part in the masked sums of a run: its key and its journal are on its disk.

    ``checksum`` is that of its rows; its policy may withhold small groups of them.
    """
    journal = MaskJournal(settings.ledger_folder / f"masks-{run[:16]}.jsonl")
    private = site_private(settings.ledger_folder)
    rows = f"{checksum}, groups of {settings.min_group_rows}"
    return MaskHolder(settings.name, private, journal, settings.masks, rows=rows)


def site_public(settings: SiteSettings) -> str:
    """The site's public key, which others may pin; it is made when it is first asked for."""
    return public_of(site_private(settings.ledger_folder))


def site_private(folder: Path) -> bytes:
    """The site's long-lived key, readable by this account only."""
    path = folder / KEY_FILE
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = folder / f"{KEY_FILE}.{os.getpid()}"
    if not path.exists():
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # whoever is second keeps the first one's
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    try:
        private = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        private = b""
    if len(private) != 32:
        raise DataError(
            f"The key {str(path)!r} of masked sums is torn. Remove it: a new one is made, and "
            "peers that pin the old one must be told."
        )
    return private
