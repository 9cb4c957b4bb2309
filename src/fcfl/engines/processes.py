"""Processes of this machine: ports, signals, and what a process has started."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fcfl.errors import FCFLError

HOST = "127.0.0.1"


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without Ctrl-C and SIGTERM, the second of which would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def program(name: str) -> str:
    """A command: beside this Python, or on the path, or where a system keeps its servers."""
    beside = Path(sys.executable).parent / name
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = str(beside) if beside.exists() else shutil.which(name, path=path)
    if found is None and name == "nginx":
        raise FCFLError("There is no nginx. Install it, on Debian: apt-get install nginx")
    if found is None:
        raise FCFLError(f"There is no command {name!r}. Install it: pip install 'fcfl[flower]'")
    return found


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process that leads a session, and to all in it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def descendants(pid: int) -> list[int]:
    """Processes that ``pid`` has started, and those they have; known on Linux only.

    Elsewhere they end by themselves a little after their parent.
    """
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            after_name = (entry / "stat").read_text().rpartition(")")[2]
            parents[int(entry.name)] = int(after_name.split()[1])
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


def runs_one_of(pid: int, words: Collection[str]) -> bool:
    """Whether a process is still one of ours: its number may be another's by now."""
    try:
        command = (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace")
    except OSError:
        return False
    return any(word in command for word in words)
