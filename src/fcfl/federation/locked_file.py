"""A small file that several processes of one site read and append to, one at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: there a site answers one message at a time
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """The file, made if absent, readable by this account only, and nobody else's for now."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def append(file: int, content: bytes) -> None:
    """Write to the end of a file, and do not go on before it is on the disk."""
    os.lseek(file, 0, os.SEEK_END)
    os.write(file, content)
    os.fsync(file)
