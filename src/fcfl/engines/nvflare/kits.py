"""Startup kits of the server, each site and the lead, with strict policies.

NVIDIA FLARE's provisioning makes keys and certificates. Its permissive default policies are
replaced: a job may use only classes of fcfl and cannot contain code.
"""

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import CtxKey
from nvflare.lighter.entity import participant_from_dict
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.spec import Project

from fcfl.engines.nvflare.site import SITE_FILE
from fcfl.errors import FCFLError
from fcfl.policy import Limits

KITS, AUTHORITY = "kits", "authority"  # the folder authority has the CA's private key
SERVER, LEAD = "server", "lead"  # kits beside those of the sites
CONTROLLER = "fcfl.engines.nvflare.server.TrainingController"
EXECUTOR = "fcfl.engines.nvflare.site.SiteExecutor"
_FILTER = "fcfl.engines.nvflare.site.SizeLimit"

_ORG = "fcfl"
_LEAD_NAME = "lead@fcfl.invalid"
_DAYS = 730
_SITE_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_HOST = re.compile(
    r"(?=.{1,63}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]*[A-Za-z0-9])*"
)

# The lead may start, stop and follow runs, and read a run's log at the server. Other roles have no
# rights, and no role may send code, run commands at a site or read its files.
_ALLOWED = ("submit_job", "manage_job", "view")
_AT_SERVER = ("get_job_log",)
_FORBIDDEN = (
    *("byoc", "shell_commands", "operate", "clone_job", "download_job"),
    "server-predeployed-flwr",
)

# Loggers of the engine that write about a dozen lines per task.
_NOISY = (
    "nvflare.apis.impl.wf_comm_server",
    "nvflare.private.fed.server.server_runner",
    "nvflare.private.fed.server.server_commands",
    "nvflare.private.fed.client.client_runner",
    "nvflare.private.fed.client.communicator",
)


def make_kits(folder: Path, sites: Sequence[str], host: str, port: int) -> dict[str, Path]:
    """Make missing kits in ``folder``/kits and return their paths by name."""
    for site in sites:
        if not _SITE_NAME.fullmatch(site) or site.lower() in (SERVER, LEAD):
            raise FCFLError(
                f"`sites` must have names of letters, digits, - and _, other than {SERVER!r} and "
                f"{LEAD!r}, got {site!r}."
            )
    if re.search(r"\s", str(folder.absolute())):
        raise FCFLError(
            f"NVIDIA FLARE cannot run in {str(folder.absolute())!r}, because the path has a space. "
            "Choose another folder."
        )
    if not _HOST.fullmatch(host):
        raise FCFLError(f"`--host` must be the server's name or address, got {host!r}.")
    place = folder / KITS
    if (place / SERVER).exists() and server_address(place / SERVER) != (host, port):
        known = ":".join(map(str, server_address(place / SERVER)))
        raise FCFLError(
            f"The kits in {str(place)!r} are for the server {known}, not {host}:{port}. Remove "
            "this folder to make all kits again."
        )
    missing = [name for name in (SERVER, LEAD, *sites) if not (place / name).exists()]
    if not missing:
        return {}
    before = os.umask(0o077)
    try:
        made = _provision(folder / AUTHORITY, sites, host, port)
        place.mkdir(parents=True, exist_ok=True)
        for name in missing:
            original = made / {SERVER: host, LEAD: _LEAD_NAME}.get(name, name)
            if name != LEAD:
                _close(original, name)
            shutil.copytree(original, place / name)
        if SERVER in missing:
            place_stores(place / SERVER)
        shutil.rmtree(made)
    finally:
        os.umask(before)
    return {name: place / name for name in missing}


def server_address(kit: Path) -> tuple[str, int]:
    """Return the host and port in a server's kit."""
    table = _read(kit / "startup" / "fed_server.json")
    host, _, port = str(table["servers"][0]["service"]["target"]).rpartition(":")
    return host, int(port)


def place_stores(kit: Path) -> None:
    """Set the folders of a server's jobs inside its kit, because /tmp is shared and not permanent.

    NVIDIA FLARE requires absolute paths, so this must be repeated after a kit is moved.
    """
    path = kit / "local" / "resources.json"
    text = path.read_text(encoding="utf-8")
    for store in ("snapshot-storage", "jobs-storage"):
        here = json.dumps(str((kit / "stores" / store).absolute()))
        text = re.sub(rf'"/[^"]*/{store}"', here.replace("\\", r"\\"), text)
    path.write_text(text, encoding="utf-8")


def _provision(place: Path, sites: Sequence[str], host: str, port: int) -> Path:
    """Provision all participants and return the folder of new kits; keep earlier certificates."""
    project = Project(name="fcfl", description="fcfl", props={"api_version": 3})
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
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        context = Provisioner(str(place.absolute()), builders).provision(project)
    made = context.get(CtxKey.CURRENT_PROD_DIR)
    if context.get(CtxKey.BUILD_ERROR) or not made:
        lines = [line for line in output.getvalue().splitlines() if line.strip()]
        raise FCFLError(f"NVIDIA FLARE made no kits: {lines[-1] if lines else 'no output'}")
    return Path(made)


def _close(kit: Path, name: str) -> None:
    """Write strict policies, which override NVIDIA FLARE's defaults."""
    local, is_server = kit / "local", name == SERVER
    allowed = (*_ALLOWED, *_AT_SERVER) if is_server else _ALLOWED
    forbidden = _FORBIDDEN if is_server else (*_FORBIDDEN, *_AT_SERVER)
    rights = {**dict.fromkeys(allowed, "any"), **dict.fromkeys(forbidden, "none")}
    permissions = {"format_version": "1.0", "permissions": {"lead": rights}}
    _write(local / "authorization.json", permissions)
    logs = _read(local / "log_config.json.default")
    logs["loggers"] |= {logger: {"level": "WARNING"} for logger in _NOISY}
    _write(local / "log_config.json", logs)
    resources = _read(local / "resources.json.default")
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [CONTROLLER] if is_server else [EXECUTOR, _FILTER]
    if not is_server:
        resources["allow_log_streaming"] = False
        resources["components"] = [
            component for component in resources["components"] if "log" not in component["id"]
        ]
        limit = {"path": _FILTER, "args": {"most_mb": Limits().largest_answer_mb}}
        scope = {"name": "fcfl", "properties": {}, "task_result_filters": [limit]}
        _write(local / "privacy.json", {"scopes": [scope], "default_scope": "fcfl"})
        (local / "privacy.json.sample").unlink(missing_ok=True)
        site = Path(__file__).with_name(SITE_FILE).read_text(encoding="utf-8")
        (local / SITE_FILE).write_text(site.replace("{name}", name), encoding="utf-8")
    _write(local / "resources.json", resources)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
