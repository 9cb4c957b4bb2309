"""A run on disk while it trains: its progress, to resume from, and its rounds.

A checkpoint is written atomically, with a checksum, and the previous one is kept. It is the value
as `serialise` writes it behind its SHA-256. It can build the classes of `Progress`, and those that
the type hints of the method's state class mention. Rounds are JSON lines: appended as they happen,
cut back when a run is resumed.
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
    """A whole checkpoint that another method wrote."""


@dataclass(frozen=True)
class Loaded:
    """A progress read back, and a sentence when the newest file could not be used."""

    progress: Progress[Any]
    warning: str | None = None


def checkpoint_path(folder: Path) -> Path:
    """Return the path of a run's newest checkpoint."""
    return folder / "checkpoint.fcfl"


def previous_path(folder: Path) -> Path:
    """Return the path of the checkpoint before it."""
    return folder / "checkpoint.previous.fcfl"


def save_checkpoint(folder: Path, progress: Progress[Any]) -> None:
    """Write ``progress`` so that at every moment at least one whole checkpoint exists.

    The newest one becomes the previous one, unless it is torn: then the previous one stays.
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
    """Read the newest whole checkpoint of a method with the given ``state_class``.

    When the newest file is torn, the previous one is used and a warning says so. A checkpoint of
    another method is refused with `OtherMethodError`.
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
