"""Rounds as JSON lines: appended as they happen, cut back when a run is resumed."""

from collections.abc import Iterable
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any, TextIO

import msgspec

from fcfl._files import replace_file
from fcfl.methods.method import RoundInfo

_NUMBERS = ("worst_loss", "mean_loss", "largest_violation", "step")


class History:
    """Appends rounds to a file; use it in a ``with`` statement."""

    def __init__(self, path: Path, *, rounds_kept: int = 0, phase: str | None = None) -> None:
        """Keep the first ``rounds_kept`` rounds, of one ``phase`` where a file holds several."""
        kept = read_history(path) if rounds_kept and path.exists() else []
        kept = [info for info in kept if phase in (None, info.phase)][:rounds_kept]
        replace_file(path, "".join(map(_as_line, kept)).encode())  # in one step: none is lost
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by __exit__

    def append(self, info: RoundInfo) -> None:
        """Add one round."""
        self._file.write(_as_line(info))

    def flush(self) -> None:
        """Pass what was appended to the operating system."""
        self._file.flush()

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _as_line(info: RoundInfo) -> str:
    """Return one line of JSON, without what is None; numbers that are not finite are null."""
    given: dict[str, Any] = msgspec.to_builtins(info)
    shown = {key: value for key, value in given.items() if value is not None}
    return msgspec.json.encode(shown).decode() + "\n"


def join_histories(parts: Iterable[tuple[Path, int]], path: Path) -> None:
    """Write the first rounds of several files, each as many as are given, as those of one run."""
    rounds = [info for part, count in parts for info in read_history(part)[:count]]
    numbered = [replace(info, round=index + 1) for index, info in enumerate(rounds)]
    replace_file(path, "".join(map(_as_line, numbered)).encode())


def read_history(path: Path) -> list[RoundInfo]:
    """Return all whole lines of a history file, up to the first that is torn; null is nan."""
    rounds: list[RoundInfo] = []
    for line in path.read_bytes().splitlines():
        try:
            content = msgspec.json.decode(line, type=dict[str, Any])
            for name in _NUMBERS:
                content[name] = nan if content.get(name) is None else content[name]
            rounds.append(msgspec.convert(content, RoundInfo))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break
    return rounds
