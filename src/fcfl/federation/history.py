"""Rounds as JSON lines: appended as they happen, cut back when a run is resumed."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TextIO

from fcfl._files import replace_file
from fcfl.methods.method import RoundInfo

_NUMBERS = ("worst_loss", "mean_loss", "largest_violation", "step")


class History:
    """Appends rounds to a file; use it in a ``with`` statement."""

    def __init__(self, path: Path, *, rounds_kept: int = 0) -> None:
        kept = read_history(path)[:rounds_kept] if rounds_kept and path.exists() else []
        replace_file(path, "".join(map(_as_line, kept)).encode())  # in one step: none is lost
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by __exit__

    def append(self, info: RoundInfo) -> None:
        """Add one round."""
        self._file.write(_as_line(info))

    def flush(self) -> None:
        """Hand what was appended to the operating system."""
        self._file.flush()

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _as_line(info: RoundInfo) -> str:
    """One line of JSON, in which a number that is not finite is null; what is not there is not."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(info).items()
        if value is not None
    }
    return json.dumps(finite, ensure_ascii=False) + "\n"


def join_histories(parts: Iterable[tuple[Path, int]], path: Path) -> None:
    """Write the first rounds of several files, each as many as are given, as those of one run."""
    rounds: list[RoundInfo] = []
    for part, count in parts:
        rounds += read_history(part)[:count]
    numbered = [replace(info, round=index + 1) for index, info in enumerate(rounds)]
    replace_file(path, "".join(map(_as_line, numbered)).encode())


def read_history(path: Path) -> list[RoundInfo]:
    """All whole lines of a history file, null read as nan; a torn last line is left out."""
    rounds: list[RoundInfo] = []
    with open(path, encoding="utf-8", errors="replace") as file:  # torn inside a character, too
        for line in file:
            try:
                rounds.append(_from_line(line))
            except (ValueError, TypeError):  # torn, or not a round: what follows cannot be trusted
                break
    return rounds


def _from_line(line: str) -> RoundInfo:
    content = json.loads(line)
    values = {
        field.name: content[field.name] for field in fields(RoundInfo) if field.name in content
    }
    for name in _NUMBERS:
        values[name] = math.nan if values.get(name) is None else float(values[name])
    return RoundInfo(**values)
