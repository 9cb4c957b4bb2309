"""A job: which of our classes run where, and the run's settings. It brings no code."""

import json
from collections.abc import Sequence
from pathlib import Path

import tomli_w

from fcfl.engines.nvflare.kit_policies import CONTROLLER, EXECUTOR
from fcfl.engines.nvflare.server_controller import SETTINGS
from fcfl.engines.nvflare.task_transport import TASK
from fcfl.sites.settings import Config

JOB = "fcfl"
_REQUEST_SECONDS = 0.05  # how often a site asks for its next task; the engine's own is 2
_SYNC_SECONDS = 600.0  # until a site gives up on the server; a busy machine needs more than 60


def write_job(folder: Path, sites: Sequence[str], config: Config) -> Path:
    """Write a job for these sites; the run's settings go to the server only."""
    job = folder / JOB
    server = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": _REQUEST_SECONDS},
        "workflows": [{"id": JOB, "path": CONTROLLER, "args": {}}],
        "components": [],
    }
    site = {
        "format_version": 2,
        "max_runner_sync_timeout": _SYNC_SECONDS,
        "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": [],
    }
    meta = {
        "name": JOB,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"at-server": ["server"], "at-sites": list(sites)},
    }
    _write(job / "meta.json", meta)
    _write(job / "at-server" / "config" / "config_fed_server.json", server)
    _write(job / "at-sites" / "config" / "config_fed_client.json", site)
    settings = job / "at-server" / "config" / SETTINGS
    settings.write_text(tomli_w.dumps(config), encoding="utf-8")
    return job


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
