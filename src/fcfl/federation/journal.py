"""Append-only journal in an SQLite file, which several processes may use at the same time.

A record is a dataclass as JSON. When the lock is released, all new records are on the disk, or none
in case of an error. Each record has a SHA-256 over itself and the previous record, to detect
changes. Read the journal with ``sqlite3 journal.sqlite 'SELECT * FROM records'``.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fcfl.errors import DataError

T = TypeVar("T")

LOCK_SECONDS = 60.0  # maximum time to wait for other processes
_COLUMNS = "(id INTEGER PRIMARY KEY, kind TEXT, body TEXT, chain TEXT)"


class JournalError(DataError):
    """The journal is damaged or cannot be written."""


@dataclass(frozen=True)
class Secret:
    """A random secret, which stays on the machine."""

    name: str
    content: str


class Journal:
    """Journal in a file, or in memory without a ``path``.

    Use it inside ``with journal.locked():``. Only new records are read from the file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._forget()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes, and write appended records to the disk at the end.

        Raise `JournalError` if the file is damaged, was changed or cannot be written.
        """
        if self.path is None:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            with closing(
                sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    connection.execute(f"CREATE TABLE IF NOT EXISTS records {_COLUMNS}")
                    self._connection = connection
                    self._catch_up(connection)
                    yield
                except BaseException:
                    self._forget()  # appended records are rolled back
                    raise
                finally:
                    self._connection = None
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise JournalError(
                f"The journal {str(self.path)!r} cannot be used ({error}). Nothing is answered "
                "until somebody has looked at it."
            ) from error

    def read(self, kind: type[T]) -> list[T]:
        """Return all records of a class in order."""
        name = kind.__name__
        bodies, found = self._bodies.get(name, []), self._found.setdefault(name, [])
        try:
            found += [msgspec.convert(json.loads(body), kind) for body in bodies[len(found) :]]
        except (ValueError, RecursionError) as error:
            raise JournalError(
                f"The journal {str(self.path)!r} has a {name} that cannot be read ({error})."
            ) from None
        return found

    def append(self, value: Any) -> None:
        """Append a record."""
        kind, body = type(value).__name__, json.dumps(msgspec.to_builtins(value))
        record = (self._last + 1, kind, body, _chain(self._head, kind, body))
        if self._connection is not None:
            self._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?)", record)
        self._take(*record)

    def secret(self, name: str) -> bytes:
        """Return the 32 random bytes with a name; create them on the first call."""
        for known in self.read(Secret):
            if known.name == name:
                return bytes.fromhex(known.content)
        self.append(Secret(name, secrets.token_hex(32)))
        return self.secret(name)

    def _forget(self) -> None:
        self._last, self._head = 0, ""
        self._bodies: dict[str, list[str]] = {}  # by the name of their class
        self._found: dict[str, list[Any]] = {}  # decoded

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read records that other processes have appended."""
        last = "SELECT chain FROM records WHERE id = ?"
        if self._last and connection.execute(last, (self._last,)).fetchone() != (self._head,):
            self._forget()
        if not self._last and connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it is torn")
        rows = "SELECT id, kind, body, chain FROM records WHERE id > ? ORDER BY id"
        for number, kind, body, chain in connection.execute(rows, (self._last,)):
            if number != self._last + 1 or chain != _chain(self._head, kind, body):
                raise JournalError(
                    f"The journal {str(self.path)!r} was changed at record {number}. Nothing is "
                    "answered until somebody has looked at it."
                )
            self._take(number, kind, body, chain)

    def _take(self, number: int, kind: str, body: str, chain: str) -> None:
        self._last, self._head = number, chain
        self._bodies.setdefault(kind, []).append(body)


def _chain(before: str, kind: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{kind}\n{body}".encode()).hexdigest()
