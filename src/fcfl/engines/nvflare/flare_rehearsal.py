"""A rehearsal over NVIDIA FLARE on this machine: real kits, real processes, your own files."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from fcfl.engines.nvflare.flare_session import Flare, OnMessage
from fcfl.engines.nvflare.kit_names import KITS, LEAD, check_path
from fcfl.engines.nvflare.kits import make_kits
from fcfl.engines.nvflare.local_flare import LocalFlare
from fcfl.engines.nvflare.recovery import Patience, run_through_faults
from fcfl.engines.processes import free_port
from fcfl.engines.rehearsal_files import REHEARSAL
from fcfl.sites.settings import Config

_LOCAL = "localhost"  # a server of this name listens on 127.0.0.1 only
_CACHE = "cache"


def rehearse_flare(
    folder: Path, nodes: Mapping[str, Mapping[str, str]], config: Config, on_message: OnMessage
) -> None:
    """Start a server and the sites, pass on what the run says, stop everything."""
    place = folder / REHEARSAL
    check_path(place)
    if place.exists():
        for old in place.iterdir():
            if old.name != _CACHE and old.is_dir():
                shutil.rmtree(old)
    make_kits(place, list(nodes), _LOCAL, free_port())
    on_message(f"Starting a server and {len(nodes)} sites on 127.0.0.1, with TLS; logs in {place}")
    with LocalFlare(place, place / KITS) as local:
        local.start_server()
        for name, node in nodes.items():
            local.start_site(name, node)
        with Flare(place / KITS / LEAD) as flare:
            run_through_faults(flare, list(nodes), config, Patience(1, 120.0), on_message)
