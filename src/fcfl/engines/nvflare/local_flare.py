"""A server and sites of NVIDIA FLARE as processes on this machine, from their kits."""

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fcfl.engines.local_processes import LocalProcesses
from fcfl.engines.nvflare.kit_names import SERVER
from fcfl.engines.nvflare.kit_policies import place_stores
from fcfl.engines.nvflare.kits import server_address
from fcfl.engines.nvflare.site_executor import SITE_FILE
from fcfl.engines.processes import listens
from fcfl.errors import FCFLError

SERVER_PROCESS = "(server)"  # sites may have any other name
_UP_SECONDS = 300.0  # a busy machine takes long to import an engine
_APPS = "nvflare.private.fed.app"  # what the kits' own start scripts run


class LocalFlare(LocalProcesses):
    """Use it in a ``with`` statement: leaving it ends every process it has started.

    Kits are copied from ``kits`` to ``folder``, so that what a run leaves behind stays there.
    """

    words = ("nvflare",)
    own_names = (SERVER_PROCESS,)

    def __init__(self, folder: Path, kits: Path) -> None:
        super().__init__(folder)
        self.kits = kits.absolute()

    def start_server(self) -> None:
        """Start the server and wait until it listens."""
        kit = self._copied(SERVER)
        place_stores(kit)
        self._run(SERVER_PROCESS, kit, "server.server_train", "fed_server.json")
        deadline = time.monotonic() + _UP_SECONDS
        while not listens(server_address(kit)[1]):
            if self.processes[SERVER_PROCESS].poll() is not None or time.monotonic() > deadline:
                raise FCFLError(f"The server did not start; see {str(self.log(SERVER_PROCESS))!r}.")
            time.sleep(0.1)

    def start_site(self, name: str, config: Mapping[str, str], *, claims: str = "") -> None:
        """Start a site with its file; one that ``claims`` another's name is to be refused."""
        place = self._copied(name)
        (place / "local" / SITE_FILE).write_text(tomli_w.dumps(config), encoding="utf-8")
        self._run(name, place, "client.client_train", "fed_client.json", f"uid={claims or name}")

    def workspace(self, name: str) -> Path:
        """The folder in which a process works."""
        return self.folder / name.strip("()")

    def _copied(self, name: str) -> Path:
        place = self.workspace(name)
        shutil.copytree(self.kits / name, place, dirs_exist_ok=True)
        (place / "transfer").mkdir(exist_ok=True)
        return place

    def _run(self, name: str, kit: Path, app: str, startup: str, *options: str) -> None:
        settings = ["secure_train=true", *options, "org=fcfl", "config_folder=config"]
        command = ["-u", "-m", f"{_APPS}.{app}", "-m", str(kit), "-s", startup, "--set", *settings]
        self._start(name, [sys.executable, *command], kit)
