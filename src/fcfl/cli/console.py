"""The screen: progress, sentences, and errors as one line with an exit code."""

import math
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer
from rich.console import Console

from fcfl.errors import FCFLError, Interrupted, ManyClients

from .commands import CommandGroup

if TYPE_CHECKING:
    from fcfl.runs.data_settings import DataSettings
    from fcfl.server.method import RoundInfo

Found = TypeVar("Found")
Settings = TypeVar("Settings", bound="DataSettings")
FAILED, WRONG_USAGE, INFEASIBLE, GATE_FAILED = 1, 2, 3, 4


class WrongUsage(Exception):
    """Options that do not fit each other or the command."""


app = typer.Typer(
    name="fcfl",
    cls=CommandGroup,
    help="Federated learning with a disparity budget for each client.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out_console = Console()
err_console = Console(stderr=True)

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def words(text: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    from fcfl.runs.option_fields import words as split

    return split("", text or "")


def say(sentence: str) -> None:
    """A line on the screen that is not wrapped, so that a path in it can be copied."""
    out_console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def note(sentence: str) -> None:
    """A line beside the result, on stderr."""
    err_console.print(f"note: {sentence}", markup=False, highlight=False, soft_wrap=True)


def run_folder(table: str, what: str) -> Path:
    """Where a run is written by default: named after its table, or the folder of several files."""
    place = Path(table)
    several = "," in table and not place.exists()
    name = Path(table.split(",")[0]).resolve().parent.name if several else place.resolve().name
    return Path("runs") / f"{name.rsplit('.', 1)[0]}-{what}"


def asking(action: Callable[[Settings], Found], settings: Settings) -> tuple[Found, Settings]:
    """Do it; where there are very many clients and somebody sits there, ask before."""
    try:
        return action(settings), settings
    except ManyClients as many:
        if not (sys.stdin.isatty() and err_console.is_terminal):
            raise
        typer.confirm(f"{many.what}. Go on?", abort=True)
        settings = replace(settings, max_clients=many.count)
        return action(settings), settings


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[["RoundInfo", float], None] | None]:
    """A bar that follows the rounds, where somebody can see it."""
    if not err_console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("round {task.fields[round]}  worst loss {task.fields[loss]}"),
        TextColumn("largest violation {task.fields[violation]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err_console, transient=True) as progress:
        task = progress.add_task(title, total=1.0, round=0, loss="–", violation="–")

        def on_round(info: "RoundInfo", share: float) -> None:
            progress.update(
                task,
                completed=share,
                description=f"{title}, {info.note if info.stage == 0 else f'stage {info.stage}'}",
                round=info.round,
                loss=_known(info.worst_loss, ".4f"),
                violation=_known(info.largest_violation, "+.4f"),
            )

        yield on_round


def _known(value: float, form: str) -> str:
    """A number, a dash where there is none yet."""
    return format(value, form) if math.isfinite(value) else "–"


@contextmanager
def saying_how_to_resume(folder: Path, overwrite: bool = False) -> Iterator[None]:
    """When stopped, end with what to add to the command to go on."""
    instead = " in place of --overwrite" if overwrite else ""
    how = f"Go on with the same command and --resume{instead} --out {shlex.quote(str(folder))}"
    try:
        yield
    except Interrupted as stopped:
        raise Interrupted(f"{stopped} {how}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped. {how}") from None


@contextmanager
def usage() -> Iterator[None]:
    """A bad option value is wrong usage: exit code 2."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise WrongUsage(str(error)) from None


@contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """Turn any error into one line on stderr and an exit code; the traceback with --debug."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _fail("Stopped.", FAILED)
    except WrongUsage as error:
        _fail(str(error), WRONG_USAGE)
    except Exception as error:
        if debug:
            raise
        _fail(_sentence(error), FAILED)


def _sentence(error: Exception) -> str:
    """What an error says; of an unexpected one also its kind, and how to see more."""
    if isinstance(error, OSError) and error.strerror:
        where = f" {str(error.filename)!r}" if error.filename else ""
        return f"Cannot use{where}: {error.strerror}." if where else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return "Not enough memory."
    text = " ".join(str(error).split())
    if isinstance(error, (FCFLError, ValueError)) and text:
        return text
    return f"Unexpected {type(error).__name__}: {text or 'no message'}. See it with --debug."


def _fail(sentence: str, code: int) -> NoReturn:
    err_console.print(f"error: {sentence}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code) from None
