"""A run's progress on disk: written atomically, with a checksum, the previous one kept.

A checkpoint is the value as `serialise` writes it behind its SHA-256. It can build the classes of
`Progress`, and those that the type hints of the method's state class mention.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fcfl._files import replace_file
from fcfl.errors import CheckpointError
from fcfl.federation.loop import Progress
from fcfl.federation.serialise import TAG, Serialiser, WireError, peek, seal, unseal


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
