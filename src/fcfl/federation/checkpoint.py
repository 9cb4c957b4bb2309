"""A run's progress on disk: written atomically, with a checksum, the previous one kept.

A checkpoint is one file: a line with a magic word and the SHA-256 of what follows, then the value
as `wire` packs it, without pickle.

The classes that may be written and built again are those of `Progress` and whatever the type hints
of the method's state class mention. So a method brings all that its checkpoint needs, and a file
can make nothing else.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcfl._files import replace_file
from fcfl.errors import CheckpointError
from fcfl.federation.codec import decode, reachable_classes
from fcfl.federation.loop import Progress
from fcfl.federation.wire import WireError, pack, unpack_tree

_MAGIC = b"fcfl-checkpoint-2"
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class OtherMethodError(CheckpointError):
    """A whole checkpoint that another method wrote."""


@dataclass(frozen=True)
class Loaded:
    """A progress read back, and a sentence when the newest file could not be used."""

    progress: Progress[Any]
    warning: str | None = None


def checkpoint_path(folder: Path) -> Path:
    """Where a run's newest checkpoint lies."""
    return folder / "checkpoint.fcfl"


def previous_path(folder: Path) -> Path:
    """Where the one before it lies."""
    return folder / "checkpoint.previous.fcfl"


def save_checkpoint(folder: Path, progress: Progress[Any]) -> None:
    """Write ``progress`` so that at every moment at least one whole checkpoint exists.

    The newest one becomes the previous one, unless it is torn: then the previous one stays.
    """
    newest = checkpoint_path(folder)
    keep = previous_path(folder) if _is_whole(newest, type(progress.state)) else None
    replace_file(newest, _pack(progress), keep=keep)


def load_checkpoint(folder: Path, state_class: type) -> Loaded:
    """Read the newest whole checkpoint of a method with the given ``state_class``.

    When the newest file is torn, the previous one is used and a warning says so. A checkpoint of
    another method is refused with `OtherMethodError`.
    """
    newest, previous = checkpoint_path(folder), previous_path(folder)
    if not newest.exists() and not previous.exists():
        raise CheckpointError(f"There is no checkpoint in {str(folder)!r}; start without resuming.")
    try:
        return Loaded(_unpack(newest, state_class))
    except OtherMethodError:
        raise
    except CheckpointError as error:
        if not previous.exists():
            raise
        warning = f"{error} The previous checkpoint is used."
        return Loaded(_unpack(previous, state_class), warning)


def _pack(progress: Progress[Any]) -> bytes:
    content = pack(progress, _classes(type(progress.state)))
    return b"%s %s\n%s" % (_MAGIC, hashlib.sha256(content).hexdigest().encode(), content)


def _classes(state_class: type) -> dict[str, type]:
    """The classes that a checkpoint of a method with this state may hold, by name."""
    return reachable_classes(Progress, state_class)


def _is_whole(path: Path, state_class: type) -> bool:
    """Whether a checkpoint could be read back."""
    try:
        _unpack(path, state_class)
    except (CheckpointError, OSError):
        return False
    return True


def _unpack(path: Path, state_class: type) -> Progress[Any]:
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        raise CheckpointError(f"The checkpoint {str(path)!r} {what}.")
    head, _, content = path.read_bytes().partition(b"\n")
    magic, _, checksum = head.partition(b" ")
    if magic != _MAGIC or hashlib.sha256(content).hexdigest().encode() != checksum:
        raise CheckpointError(f"The checkpoint {str(path)!r} is torn: its checksum does not match.")
    try:
        tree, arrays = unpack_tree(content)
        _check_state(path, tree, state_class)
        progress = decode(tree, arrays, _classes(state_class))
    except OtherMethodError:
        raise
    except (WireError, *_UNREADABLE) as error:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} was written by another version of fcfl, or of the "
            f"method's own {state_class.__name__} ({error})."
        ) from error
    if not isinstance(progress, Progress):
        raise CheckpointError(f"The checkpoint {str(path)!r} holds no run.")
    return progress


def _check_state(path: Path, tree: Any, state_class: type) -> None:
    """Refuse a run of another method before anything of it is built."""
    if not isinstance(tree, dict) or tree.get("type") != Progress.__name__:
        return
    state = tree["fields"].get("state")
    written, wanted = state.get("type") if isinstance(state, dict) else None, state_class.__name__
    if isinstance(written, str) and written != wanted:
        raise OtherMethodError(
            f"The checkpoint {str(path)!r} was written by method "
            f"{written.removesuffix('State')!r} (its state is a {written}); this run's method has "
            f"a {wanted}. Resume with the method it began with."
        )
