"""Run the loop with a folder: write history and checkpoints, and resume from them."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fcfl.errors import CheckpointError, FCFLError, Interrupted
from fcfl.federation.checkpoint import (
    OtherMethodError,
    checkpoint_path,
    load_checkpoint,
    previous_path,
    save_checkpoint,
)
from fcfl.federation.exchange_count import ExchangeCount
from fcfl.federation.history import History
from fcfl.federation.loop import Progress, Runtime, run
from fcfl.federation.serialise import same
from fcfl.methods.method import RoundInfo, traits_of
from fcfl.problem.constraints import Constraints
from fcfl.problem.evaluation import Problem

OnRound = Callable[[RoundInfo, float], None]

HISTORY = "history.jsonl"
CHECKPOINT_SECONDS = 0.5  # the first is written after the first round


def part_of(on_round: OnRound | None, low: float, high: float) -> OnRound:
    """Report shares of a part to ``on_round`` as shares of the whole."""

    def part(info: RoundInfo, share: float) -> None:
        if on_round is not None:
            on_round(info, low + (high - low) * share)

    return part


@dataclass(frozen=True)
class Session:
    """Where a run is stored, whether it resumes, and where it reports to.

    Without a ``folder`` nothing is written. ``on_round`` is called after every round with its info
    and the share done, ``on_message`` with sentences for a person. The last report of an absent
    client stays in force for ``max_age`` rounds. ``on_met`` is called once, with the `Run`, when
    all clients have reported their counts and nothing has been written yet.
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
        """Return the session of a part of the work, from one share of it to another."""
        return (
            self
            if self.on_round is None
            else replace(self, on_round=part_of(self.on_round, low, high))
        )

    def quiet(self) -> "Session":
        """Return the session without sentences, for one of many runs that would repeat them."""
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
        """Return the session of a folder in this one, which is made if it is missing."""
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
    """Run rounds until the method ends; a stopped run leaves a checkpoint and can be resumed."""
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
                if history is not None:  # first: on resuming, a line too many is cut
                    history.append(info)
                progress = reached
                if history is not None and keeper.is_due():
                    history.flush()
                    keeper.save(progress)
                done = max(done, method.fraction_done(progress.state))  # residuals rise at times
                if session.on_round is not None:
                    session.on_round(info, done)
    except BaseException as error:
        if isinstance(error, OSError) and path is not None:
            _cut_torn_line(path)
        if isinstance(error, (KeyboardInterrupt, FCFLError, OSError)):
            keeper.save(progress)
        if isinstance(error, KeyboardInterrupt):
            done_rounds = sum(progress.state.rounds)
            raise Interrupted(f"Stopped after round {done_rounds}.") from None
        raise
    keeper.save(progress)
    return progress, tuple(infos)


def _cut_torn_line(path: Path) -> None:
    """Leave only whole lines in a file whose disk ran full; this needs no space."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


class _Keeper:
    """Saves checkpoints; a full disk is reported once and does not stop training."""

    def __init__(
        self, folder: Path | None, on_message: Callable[[str], None], count: ExchangeCount | None
    ) -> None:
        self._folder, self._on_message, self._count = folder, on_message, count
        self._last, self._failed = -CHECKPOINT_SECONDS, False

    def is_due(self) -> bool:
        return self._folder is not None and time.monotonic() - self._last >= CHECKPOINT_SECONDS

    def save(self, progress: Progress[Any]) -> None:
        if self._folder is None:
            return
        self._last = time.monotonic()
        if self._count is not None:  # first: what is requested again on resuming counts again
            self._count.save()
        try:
            save_checkpoint(self._folder, progress)
        except OSError as error:
            if not self._failed:
                self._on_message(f"Cannot write a checkpoint ({error.strerror}); training goes on.")
            self._failed = True


def may_change(method: Any) -> tuple[str, ...]:
    """Return the options that may change on resume: those that only limit the number of rounds.

    With noise there are none: epsilon is shared out over the rounds.
    """
    return () if traits_of(method).is_private else ("rounds",)


def resumed(
    folder: Path, method: Any, fresh: Progress[Any], on_message: Callable[[str], None]
) -> Progress[Any]:
    """Return the checkpoint's progress if it is of the same run; without one, the beginning."""
    if not checkpoint_path(folder).exists() and not previous_path(folder).exists():
        on_message(
            "No checkpoint was written before the run stopped; it starts from the beginning."
        )
        return fresh
    try:
        loaded = load_checkpoint(folder, method.state_class)
    except OtherMethodError:
        raise
    except CheckpointError as error:
        on_message(f"{error} Starting from the beginning.")
        return fresh
    if loaded.warning:
        on_message(loaded.warning)
    progress = loaded.progress
    names = {*progress.options, *fresh.options} - {*may_change(method)}
    changed = sorted(n for n in names if progress.options.get(n) != fresh.options.get(n))
    differs = [
        f"{'its method' if name == 'name' else f'the option `{name}`'} was "
        f"{progress.options.get(name, 'not there')} and is {fresh.options.get(name, 'not there')}"
        for name in changed
    ] or _other_problem(progress.state.problem, fresh.state.problem)
    if differs:
        raise CheckpointError(
            f"The checkpoint in {str(folder)!r} is of another run: {', and '.join(differs)}. "
            "Continue with what it was, or start again: in another folder, or in this one without "
            "`resume`."
        )
    return replace(progress, options=fresh.options)


def _other_problem(before: Problem, now: Problem) -> list[str]:
    """Describe the first difference between two problems, if there is one."""
    if same(before, now):
        return []
    if before.clients != now.clients:
        was, has = (", ".join(map(repr, problem.clients[:6])) for problem in (before, now))
        return [f"its clients were {was} and are {has}"]
    for client, n_before, n_now in zip(before.clients, before.n_rows, now.n_rows, strict=True):
        if n_before != n_now:
            return [f"client {client!r} had {n_before:g} rows and has {n_now:g}"]
    if before.l2 != now.l2:
        return [f"`l2` was {before.l2!r} and is {now.l2!r}"]
    if (before.rates, before.comparisons) != (now.rates, now.comparisons):
        return ["other groups, attributes or metrics are compared"]
    if not same(before.constraints, now.constraints):
        return [_other_constraints(before.constraints, now.constraints)]
    names = (f.name for f in fields(Problem))
    differ = [n for n in names if not same(getattr(before, n), getattr(now, n))]
    return [f"its problem has other {' and '.join(differ)}"]


def _other_constraints(before: Constraints, now: Constraints) -> str:
    """Describe which budget differs, or that other rates are compared."""
    for was, is_now in zip(before.rows, now.rows, strict=False):
        if was != is_now and replace(was, budget=is_now.budget) == is_now:
            whose = "all clients together" if was.client is None else f"client {was.client!r}"
            return (
                f"the budget of {whose} ({was.metric}, {was.attribute}) was {was.budget!r} and is "
                f"{is_now.budget!r}"
            )
    if before.rows != now.rows:
        return "the budgets bind other clients, groups or metrics"
    return "groups have other row counts, or `confidence` sets other bounds"
