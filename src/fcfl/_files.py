"""Write files atomically, and read JSON and TOML files."""

import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fcfl.errors import DataError

T = TypeVar("T")


def replace_file(path: Path, content: bytes, *, keep: Path | None = None) -> None:
    """Write ``content`` to ``path`` atomically: a reader sees the old file or the new file.

    If ``keep`` is given, rename the old file to it.
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
        error.filename = str(path)  # as the user named it
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that renames survive a power failure."""
    with suppress(OSError):  # not supported on Windows and some network drives
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """Write dataclasses or plain data as JSON atomically; nan and infinity become null."""
    text = msgspec.json.format(to_json(content), indent=1)
    replace_file(path, text + b"\n")


def to_json(content: Any) -> bytes:
    """Return dataclasses or plain data as JSON in one line; nan and infinity become null."""
    return msgspec.json.encode(content, enc_hook=_plain_number)


def read_json(path: Path, kind: type[T]) -> T:
    """Read a JSON file into a dataclass and check all types.

    Ignore keys that the dataclass does not have. Raise `DataError` with the file and the key if a
    value is invalid.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}.") from None
    except msgspec.DecodeError:
        raise DataError(f"{str(path)!r} cannot be read: it is incomplete or not JSON.") from None


def parse_toml(content: bytes, where: str) -> dict[str, Any]:
    """Return the table in a TOML file; raise `DataError` with the file's name ``where``."""
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"In {where}: not TOML, {error}.") from None


def _plain_number(value: Any) -> Any:
    """Return a numpy number as a Python number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON.")
