"""Sites' keys at a SuperLink: each gets a node id, to which the site's name is bound."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from fcfl.engines.processes import program
from fcfl.errors import FCFLError

Flwr = Callable[..., "subprocess.CompletedProcess[str]"]


def register_key(key: Path, site: str, connection: str, flwr: Flwr | None = None) -> int:
    """Register a site's public key; returns the id that the node with this key will have."""
    if not key.exists():
        raise FCFLError(f"Site {site!r} has no public key {str(key)!r}. Put it there.")
    named = ("--name", site, "--format", "json")
    done = (flwr or run_flwr)("supernode", "register", str(key), connection, *named)
    try:
        return int(json.loads(done.stdout[done.stdout.index("{") :])["node-id"])
    except (ValueError, KeyError, TypeError):
        why = _last_line(done.stdout)
        raise FCFLError(f"The key of site {site!r} was not registered: {why}") from None


def run_flwr(*arguments: str, seconds: float = 300.0) -> "subprocess.CompletedProcess[str]":
    """Run one command of Flower's to its end, in the environment of this process."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return subprocess.run(
        [program("flwr"), *arguments],
        env=quiet | os.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
