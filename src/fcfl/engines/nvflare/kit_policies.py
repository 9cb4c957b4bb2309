"""The policies of a kit: what a job may name, what a person may ask, what may leave."""

import json
import re
from pathlib import Path

from fcfl.engines.nvflare.site_executor import SITE_FILE, SizeLimit
from fcfl.limits import Limits

CONTROLLER = "fcfl.engines.nvflare.training_controller.TrainingController"
EXECUTOR = "fcfl.engines.nvflare.site_executor.SiteExecutor"
_FILTER = f"{SizeLimit.__module__}.{SizeLimit.__name__}"

# The lead may start, stop and watch runs, and read a run's log at the server. No other role may do
# anything, and nobody may bring code, run commands at a site or read its files.
_MAY = ("submit_job", "manage_job", "view")
_AT_SERVER = ("get_job_log",)
_MAY_NOT = (
    *("byoc", "shell_commands", "operate", "clone_job", "download_job"),
    "server-predeployed-flwr",
)

# Each task writes a dozen lines into the logs of the engine's own; ours are among them.
_QUIET = (
    "nvflare.apis.impl.wf_comm_server",
    "nvflare.private.fed.server.server_runner",
    "nvflare.private.fed.server.server_commands",
    "nvflare.private.fed.client.client_runner",
    "nvflare.private.fed.client.communicator",
)

_SITE = """\
# What this site decides for itself; no job can change it. All paths are absolute.
name = "{name}"
table = "/srv/fcfl/{name}.csv"        # CSV, Parquet or xlsx; read here, never sent
ledger = "/srv/fcfl/ledger"          # every question it has answered: fcfl site status
# policy = "/srv/fcfl/policy.toml"   # what this site insists on, and its limits
# cache = "/srv/fcfl/cache"          # encoded rows; default ~/.cache/fcfl
# test-table = "/srv/fcfl/later.csv" # held-out rows; default: a part of the table
"""


def close_kit(kit: Path, name: str, *, is_server: bool, is_site: bool) -> None:
    """Put strict policies beside NVIDIA FLARE's defaults, which they replace."""
    local = kit / "local"
    if not (is_server or is_site):
        return
    _write(local / "authorization.json", authorization(is_server))
    logs = json.loads((local / "log_config.json.default").read_text(encoding="utf-8"))
    logs["loggers"] |= {name: {"level": "WARNING"} for name in _QUIET}
    _write(local / "log_config.json", logs)
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [CONTROLLER if is_server else EXECUTOR]
    if is_server:
        _write(local / "resources.json", resources)
        return
    resources["allow_log_streaming"] = False
    resources["class_allow_list"].append(_FILTER)
    resources["components"] = [
        component for component in resources["components"] if "log" not in component["id"]
    ]
    _write(local / "resources.json", resources)
    _write(local / "privacy.json", _privacy(Limits().largest_answer_mb))
    (local / "privacy.json.sample").unlink(missing_ok=True)
    (local / SITE_FILE).write_text(_SITE.replace("{name}", name), encoding="utf-8")


def authorization(is_server: bool) -> dict[str, object]:
    """Who may do what here."""
    allowed = (*_MAY, *_AT_SERVER) if is_server else _MAY
    refused = _MAY_NOT if is_server else (*_MAY_NOT, *_AT_SERVER)
    lead = {**dict.fromkeys(allowed, "any"), **dict.fromkeys(refused, "none")}
    return {"format_version": "1.0", "permissions": {"lead": lead}}


def place_stores(kit: Path) -> None:
    """Keep a server's jobs in its own folder: in /tmp a restart would lose them, others read them.

    NVIDIA FLARE wants absolute paths, so a kit that was moved needs this again.
    """
    path = kit / "local" / "resources.json"
    found = path.read_text(encoding="utf-8")
    for store in ("snapshot-storage", "jobs-storage"):
        here = json.dumps(str((kit / "stores" / store).absolute()))
        found = re.sub(rf'"/[^"]*/{store}"', here.replace("\\", r"\\"), found)
    path.write_text(found, encoding="utf-8")


def _privacy(most_mb: float) -> dict[str, object]:
    limit = {"path": _FILTER, "args": {"most_mb": most_mb}}
    scope = {"name": "fcfl", "properties": {}, "task_result_filters": [limit]}
    return {"scopes": [scope], "default_scope": "fcfl"}


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
