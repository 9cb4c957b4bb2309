"""A SuperLink and SuperNodes as processes on this machine, for a rehearsal; all end with it."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import tomli_w

from fcfl.engines.flower.registration import register_key
from fcfl.engines.local_processes import LocalProcesses
from fcfl.engines.processes import HOST, free_port, listens, program
from fcfl.errors import FCFLError
from fcfl.sites.settings import Config

CONNECTION = "rehearsal"
SUPERLINK, RUN, PROXY = "(superlink)", "(run)", "(proxy)"  # sites may have any other name
_UP_SECONDS = 300.0  # a busy machine takes long to import an engine
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}


class LocalCluster(LocalProcesses):
    """Use it in a ``with`` statement: leaving it ends every process it has started.

    ``folder`` gets Flower's home, the sites' node configs and all logs. With ``certificates`` (a
    folder as `make_certificates` writes it) TLS and node keys are on.
    """

    words = ("flwr", "flower")
    own_names = (SUPERLINK, RUN, PROXY)

    def __init__(self, folder: Path, certificates: Path | None = None) -> None:
        super().__init__(folder)
        self.certificates = None if certificates is None else certificates.absolute()
        self.port = free_port()
        self._home = self.folder / "flwr"
        self._home.mkdir(parents=True, exist_ok=True)
        self._write_connection()

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    def start_superlink(self, *options: str) -> None:
        """Start the SuperLink and wait until it listens."""
        secure = ["--insecure"]
        if self.certificates is not None:
            place = self.certificates
            secure = [
                "--ssl-ca-certfile", str(place / "ca.crt"),
                "--ssl-certfile", str(place / "server.pem"),
                "--ssl-keyfile", str(place / "server.key"),
                "--enable-supernode-auth",
            ]  # fmt: skip
        listen = ["--host", HOST, "--port", str(self.port)]
        offline = ["--disable-runtime-dependency-installation"]
        self._start(SUPERLINK, ["flower-superlink", *secure, *listen, *offline, *options])
        deadline = time.monotonic() + _UP_SECONDS
        while not listens(self.port):
            if self.processes[SUPERLINK].poll() is not None or time.monotonic() > deadline:
                raise FCFLError(f"The SuperLink did not start; see {str(self.log(SUPERLINK))!r}.")
            time.sleep(0.1)

    def register(self, site: str) -> int:
        """Make a site's key known to the SuperLink; the id that its node will have."""
        assert self.certificates is not None
        return register_key(self.certificates / f"{site}.pub", site, CONNECTION, self.flwr)

    def start_proxy(self, configuration: Path) -> None:
        """Start nginx with a configuration that `proxy_configuration` wrote."""
        self._start(PROXY, ["nginx", "-e", "stderr", "-c", str(configuration), "-g", "daemon off;"])

    def start_site(
        self,
        name: str,
        config: Mapping[str, str],
        *,
        secure: Sequence[str] | None = None,
        address: str | None = None,
    ) -> None:
        """Start a SuperNode with its node config; ``secure`` replaces its TLS options.

        It dials the SuperLink, or the ``address`` of a proxy.
        """
        if secure is None:
            secure = ["--insecure"]
            if self.certificates is not None:
                ca, key = self.certificates / "ca.crt", self.certificates / name
                secure = ["--root-certificates", str(ca), "--auth-supernode-private-key", str(key)]
        if name in self.processes:
            self.stop(name)  # what a node that has ended leaves running
        path = self.folder / f"node-{len(list(self.folder.glob('node-*.toml')))}.toml"
        path.write_text(tomli_w.dumps(config), encoding="utf-8")
        link = ["--superlink", address or self.address, "--host", HOST, "--port", str(free_port())]
        self._start(name, ["flower-supernode", *secure, *link, "--node-config", str(path)])

    def run(self, app: Path, config: Config) -> Iterator[str]:
        """Start the app and yield its log, line by line, until it ends."""
        path = self.folder / "run.toml"
        path.write_text(tomli_w.dumps(config), encoding="utf-8")
        options = ["--stream", "--run-config", str(path)]
        command = ["flwr", "run", str(app.absolute()), CONNECTION, *options]
        process = self._popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.processes[RUN] = process
        assert process.stdout is not None
        with process.stdout as output, open(self.log(RUN), "wb") as log:
            for line in output:
                log.write(line)
                log.flush()
                yield line.decode(errors="replace").rstrip()
        process.wait()

    def flwr(self, *arguments: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run one command of Flower's to its end."""
        return subprocess.run(
            [program("flwr"), *arguments],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """The processes' own, with Flower's home in this folder."""
        return super().environment() | _QUIET | {"FLWR_HOME": str(self._home)}

    def _write_connection(self) -> None:
        secure: dict[str, bool | str] = {"insecure": True}
        if self.certificates is not None:
            secure = {"root-certificates": str(self.certificates / "ca.crt")}
        link = {"default": CONNECTION, CONNECTION: {"address": self.address, **secure}}
        text = tomli_w.dumps({"superlink": link})
        (self._home / "config.toml").write_text(text, encoding="utf-8")
