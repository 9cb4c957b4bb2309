"""Terminal output: progress, notes, and errors as one line with an exit code."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import cyclopts
from rich.console import Console

from fcfl.errors import FCFLError, Interrupted, ManyClients

if TYPE_CHECKING:
    from fcfl.federation.session import OnRound, Session

FAILED, WRONG_USAGE, INFEASIBLE, GATE_FAILED = 1, 2, 3, 4


class WrongUsage(Exception):
    """The options of a command are invalid."""


out_console = Console()
err_console = Console(stderr=True)

_running: list[cyclopts.Argument] = []  # arguments of the running command
_OF_A_FILE = re.compile(r"^(In |The settings|The key|Unknown key) |` in schema ")
command_line: list[str] = []
"""The words of the running command, without ``fcfl``."""


def remember_arguments(
    app: Any, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection
) -> None:
    """Store the arguments of the command to run; called by cyclopts."""
    _running[:] = arguments


def flag(help: str) -> cyclopts.Parameter:
    """Return an option without a value, true if given."""
    return cyclopts.Parameter(help=help, show_default=False)


def was_given(name: str) -> bool:
    """Return whether the user gave an option of the running command."""
    return any(one.field_info.name == name and one.tokens for one in _running)


def as_typed(sentence: str) -> str:
    """Return a message with Python names of parameters replaced by options of the command.

    `max_levels` in backticks becomes `--max-levels`. A message about keys of a file is returned
    unchanged.
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
    """Print a line without wrapping, so that paths in it can be copied."""
    _print(out_console, sentence)


def note(sentence: str, before: str = "note: ") -> None:
    """Print a note on stderr."""
    _print(err_console, sentence, before)


def _print(console: Console, sentence: str, before: str = "") -> None:
    console.print(before + as_typed(sentence), markup=False, highlight=False, soft_wrap=True)


def run_folder(table: str, what: str) -> Path:
    """Return the default folder of a run, named after its table or the folder of its files."""
    place = Path(table)
    several = "," in table and not place.exists()
    name = Path(table.split(",")[0]).resolve().parent.name if several else place.resolve().name
    return Path("runs") / f"{name.rsplit('.', 1)[0]}-{what}"


def confirm(many: ManyClients) -> None:
    """Ask for confirmation on a terminal; raise without a terminal or if the user declines."""
    if not (sys.stdin.isatty() and err_console.is_terminal):
        raise many
    from rich.prompt import Confirm

    if not Confirm.ask(f"{many.what}. Continue?", console=err_console, default=False):
        raise KeyboardInterrupt


@contextmanager
def progress_bar(title: str) -> Iterator["OnRound | None"]:
    """Show a progress bar of the rounds, if stderr is a terminal."""
    if not err_console.is_terminal:
        yield None
        return
    from fcfl.federation.session import terminal_bar

    with terminal_bar(title, err_console) as on_round:
        yield on_round


@contextmanager
def running(
    title: str, folder: Path, resume: bool = False, again: Sequence[str] = ()
) -> Iterator["Session"]:
    """Yield the session of a command, with a progress bar and notes.

    If the command is interrupted, raise `Interrupted` with the command that continues it:
    ``again``, or by default the same command with ``--resume``.
    """
    from fcfl.federation.session import Session
    from fcfl.runs.run import SETTINGS

    try:
        with progress_bar(title) as on_round:
            yield Session(folder, resume, on_round, note)
    except (KeyboardInterrupt, Interrupted) as stopped:
        if not any(next(folder.glob(place), None) for place in (SETTINGS, f"*/{SETTINGS}")):
            raise  # there is no run to continue
        raise Interrupted(f"{str(stopped) or 'Stopped.'} {how_to_continue(again)}") from None


def how_to_continue(again: Sequence[str] = ()) -> str:
    """Return a message with the command that continues the running command."""
    typed = [word for word in command_line if word not in ("--resume", "--overwrite")]
    return f"Continue with: {shlex.join(['fcfl', *(again or (*typed, '--resume'))])}"


@contextmanager
def usage() -> Iterator[None]:
    """Raise `WrongUsage` (exit code 2) for invalid options; other errors have exit code 1."""
    try:
        yield
    except FCFLError:
        raise
    except (ValueError, TypeError) as error:
        raise WrongUsage(str(error)) from None


@contextmanager
def one_line_errors(words: Sequence[str], debug: bool) -> Iterator[None]:
    """Print any error as one line on stderr and exit with its code; raise it with --debug."""
    _running.clear()
    command_line[:] = words
    try:
        yield
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(FAILED) from None
    except KeyboardInterrupt:
        _fail("Stopped.", FAILED)
    except WrongUsage as error:
        _fail(str(error), WRONG_USAGE)
    except cyclopts.MissingArgumentError as error:
        given, named = error.keyword, error.keyword or (error.argument and error.argument.name)
        _fail(f"`{named}` requires a value." if given else f"`{named}` is missing.", WRONG_USAGE)
    except cyclopts.CycloptsError as error:
        is_ours = isinstance(error, cyclopts.CoercionError)  # raised when reading the value
        own = error.msg if is_ours else None
        _fail(str(own) if own else " ".join(str(error).split()), WRONG_USAGE)
    except Exception as error:
        if debug:
            raise
        _fail(_sentence(error), FAILED)


def _sentence(error: Exception) -> str:
    """Return the message of an error; for an unexpected error, add its type and a hint."""
    if isinstance(error, OSError) and error.strerror:
        where = f" {str(error.filename)!r}" if error.filename else ""
        return f"Cannot use{where}: {error.strerror}." if where else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return "Not enough memory."
    text = " ".join(str(error).split())
    if isinstance(error, (FCFLError, ValueError)) and text:
        return text
    what = f"Unexpected {type(error).__name__}: {text or 'no message'}."
    return f"{what} For the traceback, add --debug."


def _fail(sentence: str, code: int) -> NoReturn:
    _print(err_console, sentence, "error: ")
    raise SystemExit(code) from None
