"""A run's progress on disk: written atomically, with a checksum, the previous one kept.

A checkpoint is one file: a line with a magic word and the SHA-256 of what follows, then an .npz
of the arrays (read without pickle) and the rest as JSON inside it.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._files import replace_file
from fcfl._types import (
    CurvatureWeights,
    KernelQuestion,
    LocalTraining,
    Point,
    RateId,
    Report,
    Request,
)
from fcfl.errors import CheckpointError
from fcfl.federation.codec import decode, encode
from fcfl.federation.loop import Progress, Remembered, Tally
from fcfl.server.baselines.afl import AFLState
from fcfl.server.baselines.agnostic_fair import AgnosticFairState
from fcfl.server.baselines.fair_reg import FairRegState
from fcfl.server.baselines.fairfed import FairFedState
from fcfl.server.baselines.fedavg import FedAvgState
from fcfl.server.baselines.fedfb import FedFBState
from fcfl.server.baselines.fedmgda import FedMGDAState
from fcfl.server.baselines.mmpf import MMPFState
from fcfl.server.baselines.q_ffl import QFFLState
from fcfl.server.constraints import Constraints, Row
from fcfl.server.problem import Problem
from fcfl.server.sqp.merit import Search
from fcfl.server.sqp.quasi_newton import LimitedMemory
from fcfl.server.sqp.sqp import SQPState
from fcfl.server.two_stage.two_stage import TwoStageState

_MAGIC = b"fcfl-checkpoint-1"
_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Progress, Remembered, Tally,
        Request, Point, CurvatureWeights, LocalTraining, KernelQuestion, Report, RateId,
        Problem, Constraints, Row,
        TwoStageState, SQPState, Search, LimitedMemory,
        FedAvgState, FairRegState, QFFLState, AFLState, MMPFState, AgnosticFairState,
        FedMGDAState, FairFedState, FedFBState,
    )
}  # fmt: skip


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
    keep = previous_path(folder) if _is_whole(newest) else None
    replace_file(newest, _pack(progress), keep=keep)


def load_checkpoint(folder: Path) -> Loaded:
    """Read the newest whole checkpoint; a torn one is told and the previous one used."""
    newest, previous = checkpoint_path(folder), previous_path(folder)
    if not newest.exists() and not previous.exists():
        raise CheckpointError(f"There is no checkpoint in {str(folder)!r}; start without resuming.")
    try:
        return Loaded(_unpack(newest))
    except CheckpointError as error:
        if not previous.exists():
            raise
        told = f"{error} The previous checkpoint is used."
        return Loaded(_unpack(previous), told)


def _pack(progress: Progress[Any]) -> bytes:
    tree, arrays = encode(progress, _CLASSES)
    text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **dict[str, Any](arrays, json=text))
    content = buffer.getvalue()
    return b"%s %s\n%s" % (_MAGIC, hashlib.sha256(content).hexdigest().encode(), content)


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint could be read back."""
    try:
        _unpack(path)
    except (CheckpointError, OSError):
        return False
    return True


def _unpack(path: Path) -> Progress[Any]:
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        raise CheckpointError(f"The checkpoint {str(path)!r} {what}.")
    head, _, content = path.read_bytes().partition(b"\n")
    magic, _, checksum = head.partition(b" ")
    if magic != _MAGIC or hashlib.sha256(content).hexdigest().encode() != checksum:
        raise CheckpointError(f"The checkpoint {str(path)!r} is torn: its checksum does not match.")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        progress = decode(json.loads(arrays.pop("json").tobytes()), arrays, _CLASSES)
    except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} was written by another version of fcfl ({error})."
        ) from error
    if not isinstance(progress, Progress):
        raise CheckpointError(f"The checkpoint {str(path)!r} holds no run.")
    return progress
