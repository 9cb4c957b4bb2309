"""A progress bar for training from Python: in a terminal or a notebook, silent elsewhere."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fcfl.methods.method import RoundInfo
from fcfl.training.progress_share import OnRound, OverPhases

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 30  # characters of the bar in a notebook


@contextmanager
def progress_bar(title: str, verbose: bool | None) -> Iterator[OnRound | None]:
    """Yield what shows each round, or None to show nothing.

    Parameters
    ----------
    title : what is trained, such as the name of the method
    verbose : whether to show progress; by default only if stdout is a terminal or a notebook
    """
    from rich.console import Console  # not needed where nothing is shown

    console = Console()
    if verbose is False or (verbose is None and not (console.is_terminal or console.is_jupyter)):
        yield None
    elif console.is_jupyter:
        with _in_notebook(title) as show:
            yield OverPhases(show)
    else:
        with _in_terminal(title, console) as show:
            yield OverPhases(show)


@contextmanager
def _in_terminal(title: str, console: "Console") -> Iterator[OnRound]:
    """Show a bar that disappears when training ends; in a file, only its last state."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(title, total=1.0, facts="")

        def show(info: RoundInfo, share: float) -> None:
            what = f"{title}, {phase_of(info)}"
            progress.update(task, completed=share, description=what, facts=facts_of(info))

        yield show


@contextmanager
def _in_notebook(title: str) -> Iterator[OnRound]:
    """Show a line of text that is replaced in place: it needs no widgets."""
    from IPython.display import display  # type: ignore[import-not-found]

    def line(text: str) -> dict[str, str]:
        return {"text/plain": text}

    handle: Callable[..., None] = display(line(title), raw=True, display_id=True).update

    def show(info: RoundInfo, share: float) -> None:
        done = round(_WIDTH * share)
        bar = "█" * done + "░" * (_WIDTH - done)
        handle(line(f"{title} {bar} {phase_of(info)}, {facts_of(info)}"), raw=True)

    yield show
    handle(line(""), raw=True)


def phase_of(info: RoundInfo) -> str:
    """Return what the round is for."""
    return info.note if info.stage == 0 else (info.phase or "fit")


def facts_of(info: RoundInfo) -> str:
    """Return the exchanges so far and the worst client's loss, as far as they are known."""
    facts = [] if info.exchange is None else [f"{info.exchange:,} exchanges"]
    if math.isfinite(info.worst_loss):
        facts.append(f"worst loss {info.worst_loss:.4f}")
    return ", ".join(facts)
