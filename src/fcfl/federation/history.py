"""Rounds as JSON lines: appended as they happen, cut back when a run is resumed."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from fcfl._files import replace_file
from fcfl.server.method import RoundInfo


class History:
    """Appends rounds to a file; use it in a ``with`` statement."""

    def __init__(self, path: Path, *, rounds_kept: int = 0) -> None:
        kept = read_history(path)[:rounds_kept] if rounds_kept and path.exists() else []
        replace_file(path, "".join(map(_as_line, kept)).encode())  # in one step: none is lost
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by __exit__

    def append(self, info: RoundInfo) -> None:
        """Add one round."""
        self._file.write(_as_line(asdict(info)))

    def flush(self) -> None:
        """Hand what was appended to the operating system."""
        self._file.flush()

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _as_line(values: dict[str, Any]) -> str:
    """One line of JSON, in which a number that is not finite is null."""
    finite = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()
    }
    return json.dumps(finite, ensure_ascii=False) + "\n"


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
