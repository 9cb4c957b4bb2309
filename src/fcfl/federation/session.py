"""Training loop with a folder: history, checkpoints, resuming, reporting and progress bars."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcfl.errors import CheckpointError, FCFLError, Interrupted
from fcfl.federation import checkpoint, loop
from fcfl.federation.loop import EXCHANGES, ExchangeCount, Progress
from fcfl.federation.serialise import same
from fcfl.methods.method import RoundInfo, traits_of

OnRound = Callable[[RoundInfo, float], None]

HISTORY = "history.jsonl"
FREE = "without-budgets"  # folder of the initial fit without budgets
CHECKPOINT_SECONDS = 0.5  # minimum time between checkpoints; the first follows the first round


@dataclass(frozen=True)
class Session:
    """Folder of a run, whether the run resumes, and functions that report its progress.

    Without a ``folder`` nothing is written. ``on_round`` is called after each round with its info
    and the completed share, and ``on_message`` with messages for users. The last report of an
    absent client is used for at most ``max_age`` rounds. ``on_met`` is called with the `Run` after
    all clients have reported their counts and before anything is written.
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
        """Return the folder; raise `ValueError` if there is none."""
        if self.folder is None:
            raise ValueError("`folder` must be given for this run.")
        return self.folder

    def part(self, low: float, high: float) -> "Session":
        """Return a session for the part of the work between the shares ``low`` and ``high``."""
        on_round = self.on_round
        if on_round is None:
            return self
        return replace(
            self, on_round=lambda info, share: on_round(info, low + (high - low) * share)
        )

    def quiet(self) -> "Session":
        """Return the session without messages, for runs that would repeat them."""
        return replace(self, on_message=lambda sentence: None)

    def inside(self, name: str) -> "Session":
        """Return the session of a subfolder, which is created if it is missing."""
        if self.folder is None:
            return self
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return replace(self, folder=place, resume=self.resume and _has_checkpoint(place))


def forget(folder: Path) -> None:
    """Delete checkpoints, histories and exchange counts of an earlier run."""
    for place in (folder, folder / FREE, *sorted(folder.glob("fit-*"))):
        for path in (
            place / HISTORY,
            place / EXCHANGES,
            checkpoint.checkpoint_path(place),
            checkpoint.previous_path(place),
        ):
            path.unlink(missing_ok=True)


def run_rounds(
    method: Any, fresh: Progress[Any], clients: Any, session: Session, count: ExchangeCount
) -> tuple[Progress[Any], tuple[RoundInfo, ...]]:
    """Run rounds until the method has finished; write a checkpoint if the run is interrupted."""
    folder, on_message = session.folder, session.on_message
    progress, infos, done = fresh, [], 0.0
    if session.resume and folder is not None:
        progress = resumed(folder, method, fresh, on_message)
    path = None if folder is None else folder / HISTORY
    saved, is_warned = -CHECKPOINT_SECONDS, False

    def save() -> None:
        """Write a checkpoint; a full disk is reported once and does not stop training."""
        nonlocal saved, is_warned
        if folder is None:
            return
        saved = time.monotonic()
        count.save()  # first, since requests that are repeated on resume count again
        try:
            checkpoint.save_checkpoint(folder, progress)
        except OSError as error:
            if not is_warned:
                on_message(f"Cannot write a checkpoint ({error.strerror}); training continues.")
            is_warned = True

    try:
        kept = sum(progress.state.rounds)
        with (
            nullcontext()
            if path is None
            else checkpoint.History(path, rounds_kept=kept, phase=count.phase) as history
        ):
            rounds = loop.run(method, progress, clients, max_age=session.max_age)
            for reached, info in rounds:
                info = replace(info, exchange=count.total, phase=count.phase)
                infos.append(info)
                if history is not None:  # first, since additional lines are removed on resume
                    history.append(info)
                progress = reached
                if history is not None and time.monotonic() - saved >= CHECKPOINT_SECONDS:
                    history.flush()
                    save()
                done = max(done, method.fraction_done(progress.state))  # residuals may increase
                if session.on_round is not None:
                    session.on_round(info, done)
    except BaseException as error:
        if isinstance(error, OSError) and path is not None and path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # whole lines; needs no space
        if isinstance(error, (KeyboardInterrupt, FCFLError, OSError)):
            save()
        if isinstance(error, KeyboardInterrupt):
            done_rounds = sum(progress.state.rounds)
            raise Interrupted(f"Stopped after round {done_rounds}.") from None
        raise
    save()
    return progress, tuple(infos)


def may_change(method: Any) -> tuple[str, ...]:
    """Return the options that may change on resume because they only limit the number of rounds.

    A private method has none, because epsilon is divided among the rounds.
    """
    return () if traits_of(method).is_private else ("rounds",)


def _has_checkpoint(folder: Path) -> bool:
    paths = checkpoint.checkpoint_path(folder), checkpoint.previous_path(folder)
    return any(path.exists() for path in paths)


def resumed(
    folder: Path, method: Any, fresh: Progress[Any], on_message: Callable[[str], None]
) -> Progress[Any]:
    """Return the progress in the checkpoint, or ``fresh`` without one; raise for another run."""
    if not _has_checkpoint(folder):
        on_message(
            "Starting from the beginning, because the run stopped before its first checkpoint."
        )
        return fresh
    try:
        loaded = checkpoint.load_checkpoint(folder, method.state_class)
    except checkpoint.OtherMethodError:
        raise
    except CheckpointError as error:
        on_message(f"{error} Starting from the beginning.")
        return fresh
    if loaded.warning:
        on_message(loaded.warning)
    before, after = loaded.progress.options, fresh.options
    differs = [
        f"`{name}` was {before.get(name, 'not there')} and is {after.get(name, 'not there')}"
        for name in sorted({*before, *after} - {*may_change(method)})
        if before.get(name) != after.get(name)
    ]
    was, now = loaded.progress.state.problem, fresh.state.problem
    differs = (
        differs
        or [
            f"its {what} differ"
            for part, what in (
                ("clients", "clients"),
                ("n_rows", "numbers of rows"),
                ("l2", "L2 weights"),
                ("rates", "groups, attributes or metrics"),
                ("comparisons", "metrics"),
                ("constraints", "budgets, margins or rows behind them"),
                ("references", "reference rows"),
            )
            if not same(getattr(was, part), getattr(now, part))
        ][:1]
    )
    if differs:
        raise CheckpointError(
            f"The checkpoint in {str(folder)!r} is of another run: {', and '.join(differs)}. "
            "Resume with the same settings and data, use another folder, or start again without "
            "`resume`."
        )
    return replace(loaded.progress, options=fresh.options)


if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 30  # characters of the bar in a notebook
_SHARE_OF_REST = 0.6  # estimated share of a phase in the remaining work


class OverPhases:
    """Convert completed shares of successive phases to a non-decreasing share of all phases.

    A new phase begins if the purpose changes or the share decreases. The number of phases is not
    known in advance.
    """

    def __init__(self, on_round: OnRound) -> None:
        self._on_round = on_round
        self._begun = self._done = self._last = 0.0
        self._what: str | None = None

    def __call__(self, info: RoundInfo, share: float) -> None:
        """Report a round with the completed share of all phases."""
        what = info.note if info.stage == 0 else "training"
        if self._what is not None and (what != self._what or share < self._last):
            self._begun = self._done
        self._what, self._last = what, share
        reached = self._begun + (1.0 - self._begun) * _SHARE_OF_REST * share
        self._done = max(self._done, reached)
        self._on_round(info, self._done)


@contextmanager
def progress_bar(
    title: str, verbose: bool | None, on_round: OnRound | None = None
) -> Iterator[OnRound | None]:
    """Yield a function to call after each round, which calls ``on_round`` and updates a bar.

    Parameters
    ----------
    title : text before the bar, such as the name of the method
    verbose : whether to show progress
        By default only if stdout is a terminal or a notebook, and there is no ``on_round``.
    """
    from rich.console import Console

    console = Console()
    is_shown = verbose
    if verbose is None:
        is_shown = on_round is None and (console.is_terminal or console.is_jupyter)
    if not is_shown:
        yield on_round
        return
    with (_in_notebook if console.is_jupyter else terminal_bar)(title, console) as show:
        over_phases = OverPhases(show)

        def both(info: RoundInfo, share: float) -> None:
            over_phases(info, share)
            if on_round is not None:
                on_round(info, share)

        yield both


@contextmanager
def terminal_bar(title: str, console: "Console") -> Iterator[OnRound]:
    """Show a progress bar, removed at the end; without a terminal print its last state."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}"), TextColumn("{task.fields[facts]}")
    columns = text[0], BarColumn(), text[1], TimeElapsedColumn()
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(title, total=1.0, facts="")

        def show(info: RoundInfo, share: float) -> None:
            what = f"{title}, {phase_of(info)}"
            progress.update(task, completed=share, description=what, facts=facts_of(info))

        yield show


@contextmanager
def _in_notebook(title: str, console: "Console") -> Iterator[OnRound]:
    """Show a progress bar in a notebook as a line of text, without widgets."""
    from IPython.display import display  # type: ignore[import-not-found]

    first = {"text/plain": title}
    handle: Callable[..., None] = display(first, raw=True, display_id=True).update

    def show(info: RoundInfo, share: float) -> None:
        done = round(_WIDTH * share)
        bar = "█" * done + "░" * (_WIDTH - done)
        line = f"{title} {bar} {phase_of(info)}, {facts_of(info)}"
        handle({"text/plain": line}, raw=True)

    yield show
    handle({"text/plain": ""}, raw=True)


def phase_of(info: RoundInfo) -> str:
    """Return a description of the round's purpose."""
    return info.note if info.stage == 0 else (info.phase or "fit")


def facts_of(info: RoundInfo) -> str:
    """Return the number of exchanges and the worst client's loss, if known."""
    facts = [] if info.exchange is None else [f"{info.exchange:,} exchanges"]
    if math.isfinite(info.worst_loss):
        facts.append(f"worst loss {info.worst_loss:.4f}")
    return ", ".join(facts)
