"""Files written in one step: a reader sees the old one or the new one, never half of either."""

import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fcfl.errors import DataError

T = TypeVar("T")


def replace_file(path: Path, content: bytes, *, keep: Path | None = None) -> None:
    """Write ``content`` to ``path`` in one step: a reader sees the old file or the new one.

    The old one is renamed to ``keep``, if that is given.
    """
    draft = path.with_name(path.name + ".draft")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        error.filename = str(path)  # the name that the user gave
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make renames outlast a power cut, where the system lets a folder be synced."""
    with suppress(OSError):  # Windows and some network drives refuse; the files themselves are safe
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """Write dataclasses or plain data as JSON in one step; nan and infinity become null."""
    text = msgspec.json.format(to_json(content), indent=1)
    replace_file(path, text + b"\n")


def to_json(content: Any) -> bytes:
    """Return dataclasses or plain data as JSON in one line; nan and infinity become null."""
    return msgspec.json.encode(content, enc_hook=_plain_number)


def read_json(path: Path, kind: type[T]) -> T:
    """Read a file into a dataclass, with every type checked.

    Keys that the dataclass does not have are skipped. A `DataError` names the file and the key that
    is wrong.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}.") from None
    except msgspec.DecodeError:
        raise DataError(f"{str(path)!r} cannot be read: it is cut off or not JSON.") from None


def parse_toml(content: bytes, where: str) -> dict[str, Any]:
    """Return the table in a TOML file; raise `DataError` that names the file as ``where``."""
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"In {where}: not TOML, {error}.") from None


def _plain_number(value: Any) -> Any:
    """Return a numpy number as one of Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON.")
