"""Startup kits: what the server, each site and the person who starts runs need, closed by default.

NVIDIA FLARE's own provisioning makes keys and certificates. What it leaves open is closed here: a
kit's policies let a job name our classes, and bring no code of its own.
"""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from nvflare.lighter.constants import CtxKey
from nvflare.lighter.entity import participant_from_dict
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.spec import Project

from fcfl.engines.nvflare.kit_names import (
    AUTHORITY,
    KITS,
    LEAD,
    SERVER,
    check_host,
    check_sites,
)
from fcfl.engines.nvflare.kit_policies import close_kit, place_stores
from fcfl.errors import FCFLError

PROJECT = "fcfl"
_LEAD_NAME = "lead@fcfl.invalid"
_ORG = "fcfl"
_DAYS = 730


def make_kits(folder: Path, sites: Sequence[str], host: str, port: int) -> dict[str, Path]:
    """Make the kits that are missing in ``folder``/kits; one that is there is kept."""
    check_sites(sites)
    check_host(host)
    place = folder / KITS
    _check_same_server(place, host, port)
    missing = [name for name in (SERVER, LEAD, *sites) if not (place / name).exists()]
    if not missing:
        return {}
    before = os.umask(0o077)
    try:
        made = _provision(folder / AUTHORITY, sites, host, port)
        place.mkdir(parents=True, exist_ok=True)
        for name in missing:
            original = made / {SERVER: host, LEAD: _LEAD_NAME}.get(name, name)
            close_kit(original, name, is_server=name == SERVER, is_site=name in sites)
            shutil.copytree(original, place / name)
        if SERVER in missing:
            place_stores(place / SERVER)
        shutil.rmtree(made)
    finally:
        os.umask(before)
    return {name: place / name for name in missing}


def lead_name(kit: Path) -> str:
    """The user in the kit of the person who starts runs."""
    admin = json.loads((kit / "startup" / "fed_admin.json").read_text(encoding="utf-8"))
    return str(admin["admin"]["username"])


def server_address(kit: Path) -> tuple[str, int]:
    """Host and port in a server's kit."""
    table = json.loads((kit / "startup" / "fed_server.json").read_text(encoding="utf-8"))
    host, _, port = str(table["servers"][0]["service"]["target"]).rpartition(":")
    return host, int(port)


def _check_same_server(place: Path, host: str, port: int) -> None:
    if not (place / SERVER).exists():
        return
    known = server_address(place / SERVER)
    if known != (host, port):
        raise FCFLError(
            f"The kits in {str(place)!r} are for the server {known[0]}:{known[1]}, not "
            f"{host}:{port}. Remove that folder to make all of them again."
        )


def _provision(place: Path, sites: Sequence[str], host: str, port: int) -> Path:
    """The folder of fresh kits as NVIDIA FLARE makes them; certificates made before are kept."""
    project = Project(name=PROJECT, description="fcfl", props={"api_version": 3})
    server = {"name": host, "type": "server", "org": _ORG, "fed_learn_port": port}
    lead = {"name": _LEAD_NAME, "type": "admin", "org": _ORG, "role": "lead"}
    clients = [{"name": site, "type": "client", "org": _ORG} for site in sites]
    for participant in (server, lead, *clients):
        project.add_participant(participant_from_dict(participant))
    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config", require_signed_jobs=True),
        CertBuilder(root_valid_days=_DAYS),
    ]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        context = Provisioner(str(place.absolute()), builders).provision(project)
    made = context.get(CtxKey.CURRENT_PROD_DIR)
    if context.get(CtxKey.BUILD_ERROR) or not made:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise FCFLError(f"NVIDIA FLARE made no kits: {lines[-1] if lines else 'it said nothing'}")
    return Path(made)
