"""Folders of a project, and the names that sites and servers may have in certificates."""

import re
from collections.abc import Sequence
from pathlib import Path

from fcfl.errors import FCFLError

SERVER, LEAD = "server", "lead"  # kits beside those of the sites
KITS, AUTHORITY = "kits", "authority"  # the second has the CA's key and stays where it is
_SITE = re.compile(r"[A-Za-z0-9_-]{1,60}")
_HOST = re.compile(
    r"(?=.{1,63}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]*[A-Za-z0-9])*"
)


def check_sites(sites: Sequence[str]) -> None:
    """Refuse names that cannot be those of certificates and folders."""
    for site in sites:
        if not _SITE.fullmatch(site) or site.lower() in (SERVER, LEAD):
            raise FCFLError(
                f"The site's name {site!r} cannot be that of a kit: use letters, digits, - and _, "
                f"and neither {SERVER!r} nor {LEAD!r}."
            )


def check_host(host: str) -> None:
    """Refuse what is no name of a machine."""
    if not _HOST.fullmatch(host):
        raise FCFLError(f"`--host` must be the server's name or address, got {host!r}.")


def check_path(folder: Path) -> None:
    """Refuse a folder whose path NVIDIA FLARE would cut in two."""
    if re.search(r"\s", str(folder.absolute())):
        raise FCFLError(
            f"NVIDIA FLARE cannot run in {str(folder.absolute())!r}: the path has a space in it. "
            "Choose another folder."
        )
