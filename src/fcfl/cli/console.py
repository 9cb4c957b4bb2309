"""What all commands share: the screen, options, progress, and errors as one line."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fcfl.data import BUILTIN
from fcfl.errors import FCFLError, Interrupted
from fcfl.report.page import write_page
from fcfl.runs import Experiment, Finished, run_experiment
from fcfl.runs.tasks import columns_missing
from fcfl.server.method import RoundInfo

FAILED, WRONG_USAGE, INFEASIBLE = 1, 2, 3


class WrongUsage(Exception):
    """Options that do not fit each other or the command."""


app = typer.Typer(
    name="fcfl",
    help="Federated learning whose model keeps each data holder's disparity budget.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out_console = Console()
err_console = Console(stderr=True)


Table = Annotated[
    str | None,
    typer.Argument(
        help="CSV or Parquet file, or a built-in set: "
        + ", ".join([*BUILTIN, "synthetic"])
        + ". Left out with --resume.",
        show_default=False,
    ),
]
Client = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that says whose row it is.")
]
Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column to predict; it has two values.")
]
Sensitive = Annotated[
    str | None,
    typer.Option(metavar="COLUMN,…", help="Columns whose groups are compared, with commas."),
]
Positive = Annotated[
    str | None,
    typer.Option(metavar="VALUE", help="Label that counts as 1. Default: the larger or last one."),
]
Drop = Annotated[
    str | None, typer.Option(metavar="COLUMN,…", help="Columns to leave out, with commas.")
]
Metric = Annotated[
    str,
    typer.Option(metavar="NAME", help="demographic_parity, equal_opportunity or equalized_odds."),
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="BUDGET",
        help="Largest difference of group rates: 0.05; by client: north=0.05,south=0.1; "
        "for all but one: 0.05,south=0.1.",
    ),
]
Ratio = Annotated[
    float | None,
    typer.Option(help="Smallest ratio of group rates; 0.8 is the four-fifths rule."),
]
Seed = Annotated[int, typer.Option(help="Seed of the split and of a random start.")]
TestSize = Annotated[float, typer.Option(help="Share of each client's rows to hold out.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def run_shown(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_message: Callable[[str], None] | None = None,
) -> Finished:
    """Run with a progress bar; stopped, say how to go on."""
    try:
        with progress_bar(experiment.method) as on_round:
            finished = run_experiment(
                experiment,
                folder,
                resume=resume,
                overwrite=overwrite,
                on_round=on_round,
                on_message=on_message or note,
            )
        write_page(folder)
        return finished
    except Interrupted as stopped:
        command = f"fcfl train --resume --out {shlex.quote(str(folder))}"
        raise Interrupted(f"{stopped} Go on with: {command}") from None


def check_columns(experiment: Experiment) -> None:
    """A table without the names of its columns is wrong usage."""
    missing = columns_missing(experiment)
    if missing and ("." in experiment.table or Path(experiment.table).exists()):
        raise WrongUsage(missing)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[RoundInfo, float], None] | None]:
    """A bar that follows the rounds, where somebody can see it."""
    if not err_console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("round {task.fields[round]}  worst loss {task.fields[loss]}"),
        TextColumn("largest violation {task.fields[violation]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err_console, transient=True) as progress:
        task = progress.add_task(title, total=1.0, round=0, loss="–", violation="–")

        def on_round(info: RoundInfo, share: float) -> None:
            progress.update(
                task,
                completed=share,
                description=f"{title}, {info.note if info.stage == 0 else f'stage {info.stage}'}",
                round=info.round,
                loss=f"{info.worst_loss:.4f}",
                violation=f"{info.largest_violation:+.4f}",
            )

        yield on_round


def say(sentence: str) -> None:
    """A line on the screen that is not wrapped, so that a path in it can be copied."""
    out_console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def note(sentence: str) -> None:
    """A line beside the result, on stderr."""
    err_console.print(f"note: {sentence}", markup=False, highlight=False, soft_wrap=True)


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
    """What an error says; of an unforeseen one also its kind, and how to see more."""
    if isinstance(error, OSError) and error.strerror:
        where = f" {str(error.filename)!r}" if error.filename else ""
        return f"Cannot use{where}: {error.strerror}." if where else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return "Not enough memory."
    text = " ".join(str(error).split())
    if isinstance(error, (FCFLError, ValueError)) and text:
        return text
    return f"Unforeseen {type(error).__name__}: {text or 'no message'}. See it with --debug."


def _fail(sentence: str, code: int) -> NoReturn:
    err_console.print(f"error: {sentence}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code) from None


def words(text: str | None) -> tuple[str, ...]:
    """A list given with commas."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def number_or_word(name: str, text: str | None, allowed: tuple[str, ...]) -> Any:
    """A number, or one of a few words."""
    if text is None or text in allowed:
        return text
    try:
        return float(text)
    except ValueError:
        options = " or ".join(repr(word) for word in allowed)
        raise ValueError(f"`{name}` must be a number or {options}, got {text!r}.") from None


def counts(text: str | None) -> tuple[int, ...] | None:
    """Whole numbers given with commas."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`rounds` must be counts such as 800,1500, got {text!r}.") from None
