"""Files beside the sites' keys, and the names that a site's key may have."""

import os
from collections.abc import Iterable

from fcfl.errors import FCFLError

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.pem", "server.key"


def check_key_names(sites: Iterable[str]) -> None:
    """Refuse a site whose name cannot be that of a file of its own."""
    for site in sites:
        taken = site in (CA, CA_KEY, SERVER, SERVER_KEY)
        if not site or site.startswith(".") or "/" in site or os.sep in site or taken:
            raise FCFLError(f"The site's name {site!r} cannot be the name of a key file.")
