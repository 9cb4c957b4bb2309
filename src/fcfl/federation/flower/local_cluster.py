"""A SuperLink and SuperNodes as processes on this machine, for a rehearsal; all end with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from fcfl.errors import FCFLError
from fcfl.federation.flower.processes import (
    HOST,
    descendants,
    free_port,
    is_of_flower,
    listens,
    program,
    signal_group,
    undisturbed,
)
from fcfl.federation.flower.registration import register_key
from fcfl.federation.site_settings import Config

CONNECTION = "rehearsal"
SUPERLINK, RUN, PROXY = "(superlink)", "(run)", "(proxy)"  # sites may have any other name
_UP_SECONDS = 60.0
_GRACE = 5.0  # seconds between asking a process to end and ending it
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class LocalCluster:
    """Use it in a ``with`` statement: leaving it ends every process it has started.

    ``folder`` gets Flower's home, the sites' node configs and all logs. With ``certificates`` (a
    folder as `make_certificates` writes it) TLS and node keys are on.
    """

    def __init__(self, folder: Path, certificates: Path | None = None) -> None:
        self.folder = folder.absolute()
        self.certificates = None if certificates is None else certificates.absolute()
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._offspring: set[int] = set()  # a SuperLink starts some in sessions of their own
        self._home = self.folder / "flwr"
        self._home.mkdir(parents=True, exist_ok=True)
        self._write_connection()

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            for name in reversed(list(self.processes)):
                self.stop(name)
            for pid in filter(is_of_flower, self._offspring):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

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

    def flwr(self, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one command of Flower's to its end."""
        return subprocess.run(
            [program("flwr"), *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )

    def kill(self, name: str) -> None:
        """End a process as a power cut would."""
        self._offspring.update(descendants(self.processes[name].pid))
        signal_group(self.processes[name], signal.SIGKILL)
        self.processes.pop(name).wait()

    def stop(self, name: str) -> None:
        """Ask a process to end, then end it, with all it has started."""
        process = self.processes.pop(name)
        self._offspring.update(descendants(process.pid))
        signal_group(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        signal_group(process, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def log(self, name: str) -> Path:
        """Where a process writes: a site's log cannot have the name of another's."""
        ours = name in (SUPERLINK, RUN, PROXY)
        return self.folder / (f"{name.strip('()')}.log" if ours else f"site-{name}.log")

    def _start(self, name: str, command: Sequence[str]) -> None:
        with open(self.log(name), "ab") as log:
            self.processes[name] = self._popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _popen(self, command: Sequence[str], **output: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [program(command[0]), *command[1:]],
            env=self._environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **output,
        )

    def _environment(self) -> dict[str, str]:
        tools = str(Path(sys.executable).parent)
        path = os.pathsep.join([tools, os.environ.get("PATH", os.defpath)])
        return os.environ | _QUIET | {"PATH": path, "FLWR_HOME": str(self._home)}

    def _write_connection(self) -> None:
        secure: dict[str, bool | str] = {"insecure": True}
        if self.certificates is not None:
            secure = {"root-certificates": str(self.certificates / "ca.crt")}
        link = {"default": CONNECTION, CONNECTION: {"address": self.address, **secure}}
        text = tomli_w.dumps({"superlink": link})
        (self._home / "config.toml").write_text(text, encoding="utf-8")
