"""Files written in one step: a reader sees the old one or the new one, never half of either."""

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


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
    """Write JSON in one step; numbers that are not finite become null."""
    text = json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(path, (text + "\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
