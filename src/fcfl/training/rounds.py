"""The loop with a folder: history and checkpoints are written as it goes."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fcfl._types import Vector
from fcfl.errors import CheckpointError, FCFLError, Interrupted
from fcfl.federation.checkpoint import (
    OtherMethodError,
    checkpoint_path,
    load_checkpoint,
    previous_path,
    save_checkpoint,
)
from fcfl.federation.codec import same
from fcfl.federation.history import History
from fcfl.federation.in_process import InProcess
from fcfl.federation.loop import Progress, run
from fcfl.runs.settings import Experiment
from fcfl.runs.tasks import Task
from fcfl.server.method import RoundInfo
from fcfl.training.own_best import with_own_best

Watch = Callable[[RoundInfo, float], None]
CHECKPOINT_SECONDS = 0.5  # the first is written after the first round


@dataclass(frozen=True)
class Session:
    """Where a run writes, whether it goes on from a checkpoint, and who is told.

    ``on_round`` is called after every round with its info and the share done; ``on_message`` gets
    sentences a person should read. The last report of an absent client stays in force for
    ``max_age`` rounds.
    """

    folder: Path
    resume: bool = False
    on_round: Watch | None = None
    on_message: Callable[[str], None] = lambda sentence: None
    max_age: int = 0

    def inside(self, name: str) -> "Session":
        """The same for a folder in this one, which is made if absent."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return replace(self, folder=place, resume=self.resume and checkpoint_path(place).exists())


def train(
    experiment: Experiment,
    task: Task,
    session: Session,
    first_params: Vector | None = None,
    method: Any = None,
) -> tuple[Progress[Any], tuple[str, ...]]:
    """The loop; stopped, it says so and can go on. Also a sentence per group left out."""
    method = experiment.make_method() if method is None else method
    problem, notes = task.state(experiment.l2_weight)
    for note in notes:
        session.on_message(note)
    start = task.first_params(experiment) if first_params is None else first_params
    if experiment.excess_loss:
        if not isinstance(task.runtime, InProcess):
            raise FCFLError("`excess_loss` needs all clients in one process.")
        problem = with_own_best(problem, task.runtime, start)
    progress = Progress(method.init(start, problem))
    if session.resume:
        progress = _resumed(session.folder, progress, session.on_message)
    keeper = _Keeper(session.folder, session.on_message)
    path = session.folder / "history.jsonl"
    done = 0.0
    try:
        with History(path, rounds_kept=sum(progress.state.rounds)) as history:
            for reached, info in run(method, progress, task.runtime, max_age=session.max_age):
                history.append(info)  # first: a line too many is cut on resuming, one less is lost
                progress = reached
                if keeper.is_due():
                    history.flush()
                    keeper.save(progress)
                done = max(done, method.fraction_done(progress.state))  # residuals rise at times
                if session.on_round is not None:
                    session.on_round(info, done)
    except KeyboardInterrupt:
        keeper.save(progress)
        raise Interrupted(f"Stopped after round {sum(progress.state.rounds)}.") from None
    except FCFLError:
        keeper.save(progress)
        raise
    except OSError:
        _cut_torn_line(path)
        keeper.save(progress)
        raise
    keeper.save(progress)
    return progress, notes


def _cut_torn_line(path: Path) -> None:
    """Leave only whole lines of a file whose disk ran full; this needs no room."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


class _Keeper:
    """Saves a checkpoint now and then; a full disk is told once and does not stop training."""

    def __init__(self, folder: Path, on_message: Callable[[str], None]) -> None:
        self._folder = folder
        self._tell = on_message
        self._last = -CHECKPOINT_SECONDS
        self._failed = False

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= CHECKPOINT_SECONDS

    def save(self, progress: Progress[Any]) -> None:
        self._last = time.monotonic()
        try:
            save_checkpoint(self._folder, progress)
        except OSError as error:
            if not self._failed:
                self._tell(f"Cannot write a checkpoint ({error.strerror}); training goes on.")
            self._failed = True


def _resumed(
    folder: Path, fresh: Progress[Any], on_message: Callable[[str], None]
) -> Progress[Any]:
    """The checkpoint's progress, if it is of the same problem; without one, the beginning."""
    if not checkpoint_path(folder).exists() and not previous_path(folder).exists():
        on_message(
            "No checkpoint was written before the run stopped; it starts from the beginning."
        )
        return fresh
    try:
        loaded = load_checkpoint(folder, type(fresh.state))
    except OtherMethodError:
        raise
    except CheckpointError as error:
        on_message(f"{error} Starting from the beginning.")
        return fresh
    if loaded.warning:
        on_message(loaded.warning)
    if not same(loaded.progress.state.problem, fresh.state.problem):
        raise CheckpointError(
            f"The checkpoint in {str(folder)!r} is of other rows or budgets than these; "
            "it cannot be resumed with them."
        )
    return loaded.progress
