"""Processes of a rehearsal on this machine, by name; all end with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from fcfl.engines.processes import descendants, program, runs_one_of, signal_group, undisturbed

_GRACE = 5.0  # seconds between asking a process to end and ending it
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class LocalProcesses:
    """Use it in a ``with`` statement: leaving it ends every process it has started.

    ``folder`` gets all logs. ``words`` are in the commands of what an engine's processes start.
    """

    words: ClassVar[tuple[str, ...]]
    own_names: ClassVar[tuple[str, ...]]  # in parentheses, so that sites may have any other name

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._offspring: set[int] = set()  # some are started in sessions of their own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            for name in reversed(list(self.processes)):
                self.stop(name)
            for pid in self._offspring:
                if runs_one_of(pid, self.words):
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)

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
        ours = name in self.own_names
        return self.folder / (f"{name.strip('()')}.log" if ours else f"site-{name}.log")

    def environment(self) -> dict[str, str]:
        """This process's own, with the commands beside this Python, and one thread each."""
        tools = str(Path(sys.executable).parent)
        path = os.pathsep.join([tools, os.environ.get("PATH", os.defpath)])
        return os.environ | _ONE_THREAD | {"PATH": path}

    def _start(self, name: str, command: Sequence[str], place: Path | None = None) -> None:
        with open(self.log(name), "ab") as log:
            process = self._popen(command, place, stdout=log, stderr=subprocess.STDOUT)
        self.processes[name] = process

    def _popen(
        self, command: Sequence[str], place: Path | None = None, **output: Any
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [program(command[0]), *command[1:]],
            env=self.environment(),
            cwd=place or self.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **output,
        )
