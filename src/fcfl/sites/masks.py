"""A site's part in masked sums: its long-lived key, and its journal."""

from fcfl.federation.masks.holder import MaskHolder, MaskJournal, public_of
from fcfl.sites.journal import open_journal
from fcfl.sites.settings import SiteSettings


def site_holder(settings: SiteSettings, run: str, checksum: str) -> MaskHolder:
    """Return a site's part in the masked sums of a run.

    ``checksum`` identifies its rows; its policy may leave small groups of them out.
    """
    policy = settings.read_policy
    return MaskHolder(
        settings.name,
        _private_key(settings),
        MaskJournal(open_journal(settings.ledger_folder), run),
        policy.masks,
        rows=f"{checksum}, groups of {policy.min_group_rows}",
    )


def site_public(settings: SiteSettings) -> str:
    """Return the site's public key, which others may pin; it is made when first needed."""
    return public_of(_private_key(settings))


def _private_key(settings: SiteSettings) -> bytes:
    journal = open_journal(settings.ledger_folder)
    with journal.locked():
        return journal.secret("mask key")
