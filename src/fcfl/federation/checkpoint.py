"""Checkpoints of a run's progress, from which it can resume, and the history of its rounds.

A checkpoint is written atomically and the previous one is kept. It has the SHA-256 of its content,
followed by the content in the format of `serialise`. Reading it creates only instances of
`Progress` and of classes in the type hints of the method's state. The history has one line of JSON
per round. It is truncated to the checkpoint's rounds on resume.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import nan
from pathlib import Path
from typing import Any, TextIO

import msgspec

from fcfl._files import replace_file
from fcfl.errors import CheckpointError
from fcfl.federation.loop import Progress
from fcfl.federation.serialise import TAG, Serialiser, WireError, peek, seal, unseal
from fcfl.methods.method import RoundInfo


class OtherMethodError(CheckpointError):
    """A valid checkpoint of another method."""


@dataclass(frozen=True)
class Loaded:
    """The progress in a checkpoint, and a warning if the newest file is damaged."""

    progress: Progress[Any]
    warning: str | None = None


def checkpoint_path(folder: Path) -> Path:
    """Return the path of a run's newest checkpoint."""
    return folder / "checkpoint.fcfl"


def previous_path(folder: Path) -> Path:
    """Return the path of a run's previous checkpoint."""
    return folder / "checkpoint.previous.fcfl"


def save_checkpoint(folder: Path, progress: Progress[Any]) -> None:
    """Write ``progress`` so that at least one valid checkpoint exists at any time.

    The newest checkpoint becomes the previous one, unless it is damaged.
    """
    newest = checkpoint_path(folder)
    state_class: Any = type(progress.state)
    serialiser = _serialiser(state_class)
    content = serialiser.dump(progress)
    try:
        serialiser.load(content)
    except WireError as error:
        raise TypeError(f"Cannot write a checkpoint that could be read back: {error}") from error
    try:
        _read(newest, state_class)
        keep = previous_path(folder)
    except (CheckpointError, OSError):
        keep = None
    replace_file(newest, seal(content), keep=keep)


def load_checkpoint(folder: Path, state_class: type) -> Loaded:
    """Return the newest valid checkpoint of a method with the given ``state_class``.

    If the newest file is damaged, return the previous checkpoint with a warning. Raise
    `OtherMethodError` for a checkpoint of another method.
    """
    newest, previous = checkpoint_path(folder), previous_path(folder)
    if not newest.exists() and not previous.exists():
        raise CheckpointError(f"There is no checkpoint in {str(folder)!r}; start without resuming.")
    try:
        return Loaded(_read(newest, state_class))
    except OtherMethodError:
        raise
    except CheckpointError as error:
        if not previous.exists():
            raise
        warning = f"{error} The previous checkpoint is used."
        return Loaded(_read(previous, state_class), warning)


@cache
def _serialiser(state_class: Any) -> Serialiser:
    return Serialiser(Progress[state_class])


def _read(path: Path, state_class: Any) -> Progress[Any]:
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        raise CheckpointError(f"The checkpoint {str(path)!r} {what}.")
    content = unseal(path.read_bytes())
    if content is None:
        raise CheckpointError(f"The checkpoint {str(path)!r} is torn: its checksum does not match.")
    written, expected = peek(content, "state", TAG), state_class.__name__
    if written not in (None, expected):
        raise OtherMethodError(
            f"The checkpoint {str(path)!r} was written by method "
            f"{str(written).removesuffix('State')!r} (its state is a {written}); this run's method "
            f"has a {expected}. Resume with the method it began with."
        )
    try:
        progress: Progress[Any] = _serialiser(state_class).load(content)
    except WireError as error:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} was written by another version of fcfl, or of the "
            f"method's own {expected} ({error})."
        ) from error
    return progress


_NUMBERS = ("worst_loss", "mean_loss", "largest_violation", "step")


class History:
    """History of rounds in a file, for use in a ``with`` statement."""

    def __init__(self, path: Path, *, rounds_kept: int = 0, phase: str | None = None) -> None:
        """Open a file and keep its first ``rounds_kept`` rounds, of one ``phase`` if given."""
        kept = read_history(path) if rounds_kept and path.exists() else []
        kept = [info for info in kept if phase in (None, info.phase)][:rounds_kept]
        replace_file(path, "".join(map(_as_line, kept)).encode())
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by __exit__

    def append(self, info: RoundInfo) -> None:
        """Append a round."""
        self._file.write(_as_line(info))

    def flush(self) -> None:
        """Flush appended rounds to the operating system."""
        self._file.flush()

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _as_line(info: RoundInfo) -> str:
    """Return a round as a line of JSON, without None values; non-finite numbers are null."""
    given: dict[str, Any] = msgspec.to_builtins(info)
    shown = {key: value for key, value in given.items() if value is not None}
    return msgspec.json.encode(shown).decode() + "\n"


def join_histories(parts: Iterable[tuple[Path, int]], path: Path) -> None:
    """Write one history with the given numbers of rounds from several histories."""
    rounds = [info for part, count in parts for info in read_history(part)[:count]]
    numbered = [replace(info, round=index + 1) for index, info in enumerate(rounds)]
    replace_file(path, "".join(map(_as_line, numbered)).encode())


def read_history(path: Path) -> list[RoundInfo]:
    """Return the rounds of a history up to the first damaged line; null becomes nan."""
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
