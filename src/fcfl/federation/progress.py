"""Show the progress of training: in a terminal or a notebook, silent elsewhere."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fcfl.federation.session import OnRound
from fcfl.methods.method import RoundInfo

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 30  # characters of the bar in a notebook
_SHARE_OF_REST = 0.6  # of all that is left, the estimated share of a phase: later ones are shorter


class OverPhases:
    """Shares of one phase after another as shares of all of them, which never fall.

    A phase ends where another begins: its purpose changes, or its share falls. How many phases
    follow is not known beforehand.
    """

    def __init__(self, on_round: OnRound) -> None:
        self._on_round = on_round
        self._begun = self._done = self._last = 0.0
        self._what: str | None = None

    def __call__(self, info: RoundInfo, share: float) -> None:
        """Report the share of the whole."""
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
    """Yield what to call after each round: ``on_round``, and a bar if one is shown.

    Parameters
    ----------
    title : what is trained, such as the name of the method
    verbose : whether to show progress
        By default only if stdout is a terminal or a notebook, and there is no ``on_round``.
    """
    from rich.console import Console  # not needed where nothing is shown

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
    """Show a bar that disappears when training ends; in a file, only its last state."""
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
    """Show a line of text that is replaced in place: it needs no widgets."""
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
    """Return what the round is for."""
    return info.note if info.stage == 0 else (info.phase or "fit")


def facts_of(info: RoundInfo) -> str:
    """Return the exchanges so far and the worst client's loss, as far as they are known."""
    facts = [] if info.exchange is None else [f"{info.exchange:,} exchanges"]
    if math.isfinite(info.worst_loss):
        facts.append(f"worst loss {info.worst_loss:.4f}")
    return ", ".join(facts)
