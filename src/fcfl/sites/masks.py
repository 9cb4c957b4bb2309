"""A site's part in masked sums: its long-lived key and its journal, both on its disk."""

import os
import secrets
from pathlib import Path

from fcfl.errors import DataError
from fcfl.federation.masks.mask_holder import MaskHolder
from fcfl.federation.masks.mask_journal import MaskJournal
from fcfl.federation.masks.mask_keys import public_of
from fcfl.sites.settings import SiteSettings

KEY_FILE = "mask.key"


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
