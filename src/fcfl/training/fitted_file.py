"""What a cross-validation has fitted so far, on disk: arrays without pickle."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fcfl._files import replace_file
from fcfl._types import Vector
from fcfl.training.selection_rule import Candidate


@dataclass(frozen=True)
class Fitted:
    """Where a candidate's fit ended, and where each fold of it is near to."""

    candidate: Candidate
    params: Vector
    folds: tuple[Vector, ...]


def write_fitted(path: Path, fitted: Mapping[Candidate, Fitted]) -> None:
    """Write all of it in one step."""
    content = io.BytesIO()
    np.savez(
        content,
        candidates=np.frombuffer(json.dumps(list(fitted)).encode(), dtype=np.uint8),
        params=np.array([one.params for one in fitted.values()]),
        folds=np.array([one.folds for one in fitted.values()]),
    )
    replace_file(path, content.getvalue())


def read_fitted(path: Path) -> dict[Candidate, Fitted]:
    """What an earlier process had fitted; nothing where the file is not whole."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            candidates = json.loads(found["candidates"].tobytes())
            parts = zip(candidates, found["params"], found["folds"], strict=True)
            return {
                (l2, objective): Fitted((l2, objective), params, tuple(folds))
                for (l2, objective), params, folds in parts
            }
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return {}
