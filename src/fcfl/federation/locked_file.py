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
    """Write to the end of a file, and do not go on before all of it is on the disk."""
    end = os.lseek(file, 0, os.SEEK_END)
    left = memoryview(content)
    try:
        while left:  # a full disk takes a part, and refuses the rest
            left = left[os.write(file, left) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise


def write_anew(file: int, content: bytes) -> None:
    """Replace what a file holds; in place, because the lock is on the file and not on its name."""
    os.ftruncate(file, 0)
    append(file, content)
