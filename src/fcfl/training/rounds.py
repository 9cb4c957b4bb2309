"""The loop with a folder: history and checkpoints are written as it goes."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fcfl.errors import FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path, save_checkpoint
from fcfl.federation.exchange_count import ExchangeCount
from fcfl.federation.history import History
from fcfl.federation.loop import Progress, Runtime, run
from fcfl.methods.method import RoundInfo
from fcfl.training.progress_share import OnRound, part_of
from fcfl.training.resuming import resumed

HISTORY = "history.jsonl"
CHECKPOINT_SECONDS = 0.5  # the first is written after the first round


@dataclass(frozen=True)
class Session:
    """Where a run writes, whether it goes on from a checkpoint, and who is told.

    Without a ``folder`` nothing is written. ``on_round`` is called after every round with its info
    and the share done; ``on_message`` gets sentences a person should read. The last report of an
    absent client stays in force for ``max_age`` rounds. ``on_met`` is called once, with the `Run`,
    when all clients have reported their counts and nothing has been written yet.
    """

    folder: Path | None = None
    resume: bool = False
    on_round: OnRound | None = None
    on_message: Callable[[str], None] = lambda sentence: None
    max_age: int = 0
    on_met: Callable[[Any], None] = lambda run: None

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))

    @property
    def required_folder(self) -> Path:
        """The folder, for a run that writes one."""
        if self.folder is None:
            raise ValueError("`folder` must be given: this run writes one.")
        return self.folder

    def part(self, low: float, high: float) -> "Session":
        """The same for a part of the work, from one share of it to another."""
        if self.on_round is None:
            return self
        return replace(self, on_round=part_of(self.on_round, low, high))

    def quiet(self) -> "Session":
        """The same without sentences, for one of many runs that would all say them."""
        return replace(self, on_message=lambda sentence: None)

    def also(self, on_round: OnRound) -> "Session":
        """Return the session with ``on_round`` called after every round, besides its own."""
        own = self.on_round

        def both(info: RoundInfo, share: float) -> None:
            on_round(info, share)
            if own is not None:
                own(info, share)

        return replace(self, on_round=both)

    def inside(self, name: str) -> "Session":
        """The same for a folder in this one, which is made if absent."""
        if self.folder is None:
            return self
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return replace(self, folder=place, resume=self.resume and checkpoint_path(place).exists())


def run_rounds(
    method: Any,
    fresh: Progress[Any],
    clients: Runtime,
    session: Session,
    count: ExchangeCount | None = None,
) -> tuple[Progress[Any], tuple[RoundInfo, ...]]:
    """Rounds until the method is done; stopped, they leave a checkpoint and can go on."""
    progress, folder = fresh, session.folder
    if session.resume and folder is not None:
        progress = resumed(folder, method, fresh, session.on_message)
    keeper = _Keeper(folder, session.on_message, count)
    path = None if folder is None else folder / HISTORY
    infos: list[RoundInfo] = []
    done = 0.0
    try:
        kept = sum(progress.state.rounds)
        with nullcontext() if path is None else History(path, rounds_kept=kept) as history:
            for reached, info in run(method, progress, clients, max_age=session.max_age):
                if count is not None:
                    info = replace(info, exchange=count.total, phase=count.phase)
                infos.append(info)
                if history is not None:  # first: a line too many is cut on resuming, one less lost
                    history.append(info)
                progress = reached
                if history is not None and keeper.is_due():
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
        if path is not None:
            _cut_torn_line(path)
        keeper.save(progress)
        raise
    keeper.save(progress)
    return progress, tuple(infos)


def _cut_torn_line(path: Path) -> None:
    """Leave only whole lines of a file whose disk ran full; this needs no room."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


class _Keeper:
    """Saves a checkpoint now and then; a full disk is told once and does not stop training."""

    def __init__(
        self, folder: Path | None, on_message: Callable[[str], None], count: ExchangeCount | None
    ) -> None:
        self._folder = folder
        self._count = count
        self._on_message = on_message
        self._last = -CHECKPOINT_SECONDS
        self._failed = False

    def is_due(self) -> bool:
        due = time.monotonic() - self._last >= CHECKPOINT_SECONDS
        return self._folder is not None and due

    def save(self, progress: Progress[Any]) -> None:
        if self._folder is None:
            return
        self._last = time.monotonic()
        if self._count is not None:  # first: what is asked again on resuming counts again
            self._count.save()
        try:
            save_checkpoint(self._folder, progress)
        except OSError as error:
            if not self._failed:
                self._on_message(f"Cannot write a checkpoint ({error.strerror}); training goes on.")
            self._failed = True
