"""Rehearse a run on this machine, with real kits and processes that end with the rehearsal."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil
import tomli_w

from fcfl.engines.nvflare.kits import KITS, SERVER, make_kits, place_stores, server_address
from fcfl.engines.nvflare.lead import Flare, OnMessage
from fcfl.engines.nvflare.site import SITE_FILE
from fcfl.errors import FCFLError
from fcfl.sites.settings import Config

SERVER_PROCESS = "(server)"  # a site may have any name without parentheses
_HOST = "127.0.0.1"
_LOCAL = "localhost"  # a server of this name listens on 127.0.0.1 only
_CACHE = "cache"
_START_SECONDS = 300.0  # a busy machine takes long to import the engine
_STOP_SECONDS = 5.0  # between SIGTERM and SIGKILL
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def rehearse(
    folder: Path, nodes: Mapping[str, Mapping[str, str]], config: Config, on_message: OnMessage
) -> None:
    """Start a server and the sites, train, and stop them; ``nodes`` has each site's settings."""
    if folder.exists():
        for old in folder.iterdir():
            if old.name != _CACHE and old.is_dir():
                shutil.rmtree(old)
    make_kits(folder, list(nodes), _LOCAL, free_port())
    on_message(f"Starting a server and {len(nodes)} sites on {_HOST}, with TLS; logs in {folder}")
    with LocalFlare(folder, folder / KITS) as local:
        local.start_server()
        for name, node in nodes.items():
            cache = str((folder / _CACHE / name).absolute())
            local.start_site(name, {"cache": cache, **node})
        with Flare(folder) as flare:
            flare.train(list(nodes), config, tries=1, seconds=120.0, on_message=on_message)


def free_port() -> int:
    """Return a port of the loopback interface that is not in use."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


class LocalFlare:
    """A server and sites as processes, which end when the ``with`` block is left.

    Kits are copied from ``kits`` to ``folder``, which also has all logs.
    """

    def __init__(self, folder: Path, kits: Path) -> None:
        self.folder, self.kits = folder.absolute(), kits.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, psutil.Popen] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _signals_ignored():
            for name in reversed(list(self.processes)):
                self.stop(name)

    def start_server(self) -> None:
        """Start the server and wait until it accepts connections."""
        kit = self._copy(SERVER)
        place_stores(kit)
        self._start(SERVER_PROCESS, kit, "server.server_train", "fed_server.json")
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(server_address(kit)[1]):
            if self.processes[SERVER_PROCESS].poll() is not None or time.monotonic() > deadline:
                raise FCFLError(f"The server did not start; see {str(self.log(SERVER_PROCESS))!r}.")
            time.sleep(0.1)

    def start_site(self, name: str, config: Mapping[str, str], *, claims: str = "") -> None:
        """Start a site with its settings; ``claims`` replaces the name in the kit."""
        kit = self._copy(name)
        (kit / "local" / SITE_FILE).write_text(tomli_w.dumps(config), encoding="utf-8")
        self._start(name, kit, "client.client_train", "fed_client.json", f"uid={claims or name}")

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a process and its children, first by SIGTERM unless ``kill``."""
        process = self.processes.pop(name)
        family = [process]
        with suppress(psutil.NoSuchProcess):  # job processes have their own sessions
            family += process.children(recursive=True)
        if not kill:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
            psutil.wait_procs([process], timeout=_STOP_SECONDS)
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=_STOP_SECONDS)

    def log(self, name: str) -> Path:
        """Return the path of a process's log."""
        is_server = name == SERVER_PROCESS
        return self.folder / ("server.log" if is_server else f"site-{name}.log")

    def _copy(self, name: str) -> Path:
        place = self.folder / name
        shutil.copytree(self.kits / name, place, dirs_exist_ok=True)
        (place / "transfer").mkdir(exist_ok=True)
        return place

    def _start(self, name: str, kit: Path, app: str, startup: str, *options: str) -> None:
        """Run the same command as the kit's start script."""
        module = ["-u", "-m", f"nvflare.private.fed.app.{app}", "-m", str(kit), "-s", startup]
        settings = ["--set", "secure_train=true", *options, "org=fcfl", "config_folder=config"]
        self._start_command(name, [sys.executable, *module, *settings], kit)

    def _start_command(self, name: str, command: Sequence[str], place: Path) -> None:
        with open(self.log(name), "ab") as log:
            self.processes[name] = psutil.Popen(
                command,
                env=os.environ | _ONE_THREAD,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((_HOST, port)) == 0


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM, so that no child process is left running."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
