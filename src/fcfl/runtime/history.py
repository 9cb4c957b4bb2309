"""Rounds as JSON lines: appended as they happen, cut back when a run is resumed."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from fcfl.server.method import RoundInfo


class History:
    """Appends rounds to a file; use it in a ``with`` statement."""

    def __init__(self, path: Path, *, rounds_kept: int = 0) -> None:
        kept = read_history(path)[:rounds_kept] if rounds_kept and path.exists() else []
        self._file: TextIO = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
        for line in kept:
            self._write(line)

    def append(self, info: RoundInfo) -> None:
        """Add one round."""
        self._write(asdict(info))

    def flush(self) -> None:
        """Hand what was appended to the operating system."""
        self._file.flush()

    def _write(self, line: dict[str, Any]) -> None:
        finite = {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()
        }
        self._file.write(json.dumps(finite, ensure_ascii=False) + "\n")

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_history(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a history file; a torn last line is left out."""
    rounds: list[dict[str, Any]] = []
    with open(path, encoding="utf-8", errors="replace") as file:  # torn inside a character, too
        for line in file:
            try:
                rounds.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return rounds
