"""The screen: progress, sentences, and errors as one line with an exit code."""

import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from cyclopts import (
    Argument,
    ArgumentCollection,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnusedCliTokensError,
)
from rich.console import Console

from fcfl.errors import FCFLError, Interrupted, ManyClients

if TYPE_CHECKING:
    from fcfl.methods.method import RoundInfo
    from fcfl.runs.settings import DataSettings

Found = TypeVar("Found")
Settings = TypeVar("Settings", bound="DataSettings")
FAILED, WRONG_USAGE, INFEASIBLE, GATE_FAILED = 1, 2, 3, 4


class WrongUsage(Exception):
    """Options that do not fit each other or the command."""


out_console = Console()
err_console = Console(stderr=True)

_running: list[Argument] = []  # arguments of the running command
_OF_A_FILE = re.compile(r"^(Policy|The settings|The key|Unknown key) |` in schema ")
command_line: list[str] = []
"""The words of the running command, without ``fcfl``."""


def remember_arguments(app: Any, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Keep the arguments of the command that is about to run; the library calls this."""
    _running[:] = arguments


def flag(help: str) -> Parameter:
    """Return an option that is true where it is given."""
    return Parameter(help=help, show_default=False)


def was_given(name: str) -> bool:
    """Whether an option of the running command was given, not left at its default."""
    return any(one.field_info.name == name and one.tokens for one in _running)


def as_typed(sentence: str) -> str:
    """Write options of the running command as the user types them: `--max-levels`.

    In a message a parameter's Python name is in backticks: `max_levels`. Keys of a file stay.
    """
    if _OF_A_FILE.search(sentence):
        return sentence
    names = {one.field_info.name: one.name for one in _running}
    names |= {name.lstrip("-"): name for name in names.values()}

    def option(found: re.Match[str]) -> str:
        name, key = found.groups()
        if name not in names:
            return found[0]
        return f"`{names[name]} {key}=…`" if key else f"`{names[name]}`"

    return re.sub(r"`([\w-]+)(?:\['([^`]*)'\])?`", option, sentence)


def say(sentence: str) -> None:
    """A line on the screen that is not wrapped, so that a path in it can be copied."""
    out_console.print(as_typed(sentence), markup=False, highlight=False, soft_wrap=True)


def note(sentence: str) -> None:
    """A line beside the result, on stderr."""
    _complain("note", sentence)


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
        from rich.prompt import Confirm

        if not Confirm.ask(f"{many.what}. Continue?", console=err_console, default=False):
            raise KeyboardInterrupt from None
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
    how = f"Continue with the same command and --resume{instead} --out {shlex.quote(str(folder))}"
    try:
        yield
    except Interrupted as stopped:
        raise Interrupted(f"{stopped} {how}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped. {how}") from None


@contextmanager
def usage() -> Iterator[None]:
    """Turn a bad option value into wrong usage, exit code 2; a bad table is exit code 1."""
    try:
        yield
    except FCFLError:
        raise
    except (ValueError, TypeError) as error:
        raise WrongUsage(str(error)) from None


@contextmanager
def one_line_errors(words: Sequence[str], debug: bool) -> Iterator[None]:
    """Turn any error into one line on stderr and an exit code; the traceback with --debug."""
    _running.clear()
    command_line[:] = words
    try:
        yield
    except BrokenPipeError:  # whoever read the output has left, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(FAILED) from None
    except KeyboardInterrupt:
        _fail("Stopped.", FAILED)
    except WrongUsage as error:
        _fail(str(error), WRONG_USAGE)
    except CycloptsError as error:
        _fail(_usage_sentence(error), WRONG_USAGE)
    except Exception as error:
        if debug:
            raise
        _fail(_sentence(error), FAILED)


def _usage_sentence(error: CycloptsError) -> str:
    """What is wrong with the words of a command line."""
    if isinstance(error, CoercionError) and error.msg is not None:  # by the option's own reader
        return str(error.msg)
    if isinstance(error, UnknownCommandError) and error.unused_tokens and error.app:
        name = error.unused_tokens[0]
        close = get_close_matches(name, list(error.app))
        meant = f" Did you mean {close[0]!r}?" if close else ""
        return f"No such command {name!r}.{meant}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"Unexpected argument {error.unused_tokens[0]!r}."
    if isinstance(error, MissingArgumentError) and error.argument:
        name = error.keyword or error.argument.name
        return f"`{name}` needs a value." if error.keyword else f"`{name}` is missing."
    return " ".join(str(error).split())


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


def _complain(kind: str, sentence: str) -> None:
    err_console.print(
        f"{kind}: {as_typed(sentence)}", markup=False, highlight=False, soft_wrap=True
    )


def _fail(sentence: str, code: int) -> NoReturn:
    _complain("error", sentence)
    raise SystemExit(code) from None
