"""The command line: it reads options, calls the package, and turns errors into one line."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid
from typer.core import TyperArgument, TyperCommand

from fcfl import __version__
from fcfl.data import BUILTIN, describe
from fcfl.errors import FCFLError, Interrupted
from fcfl.experiment import Experiment, Finished, run_experiment
from fcfl.experiment.model_file import predict_file, write_predictions
from fcfl.experiment.running import SETTINGS
from fcfl.experiment.settings import METHODS, parse_budget
from fcfl.experiment.tasks import columns_missing, open_federation
from fcfl.report.terminal import (
    MOST_CLIENTS,
    comparison_table,
    federation_table,
    print_result,
)
from fcfl.server.method import RoundInfo

FAILED, WRONG_USAGE, INFEASIBLE = 1, 2, 3


class _Command(TyperCommand):
    """A command whose arguments keep their help, which typer below 0.21 loses under click 8.5."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hints = get_type_hints(self.callback, include_extras=True)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and not parameter.help:
                parameter.help = hints[str(parameter.name)].__metadata__[0].help


class _WrongUsage(Exception):
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


def _methods_help() -> str:
    return "; ".join(f"{name}: {what}" for name, what in METHODS.items())


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
Seed = Annotated[int, typer.Option(help="Seed of the split and of a random start.")]
TestSize = Annotated[float, typer.Option(help="Share of each client's rows to hold out.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command(
    cls=_Command,
    epilog="Examples:\n\n"
    "  fcfl train a.csv --client site --label died --sensitive race --budget 0.05\n\n"
    "  fcfl train adult --sensitive sex --budget 0.05,phd=0.1 --out runs/mine\n\n"
    "  fcfl train --resume --out runs/mine",
)
def train(
    context: typer.Context,
    table: Table = None,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="demographic_parity, equal_opportunity or equalized_odds."
        ),
    ] = "demographic_parity",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET",
            help="Largest difference of group rates: 0.05; by client: north=0.05,south=0.1; "
            "for all but one: 0.05,south=0.1.",
        ),
    ] = None,
    relative_budget: Annotated[
        float | None,
        typer.Option(help="Budgets as a share of the disparity each client has without budgets."),
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option(help="Smallest ratio of group rates; 0.8 is the four-fifths rule."),
    ] = None,
    scope: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="client: budgets hold on each client's rows; global: on all rows together; both.",
        ),
    ] = "client",
    method: Annotated[str, typer.Option(metavar="NAME", help=_methods_help())] = "two-stage",
    published: Annotated[
        bool, typer.Option("--published", help="two-stage as the authors' code has it.")
    ] = False,
    step_size: Annotated[float | None, typer.Option(help="Longest gradient step.")] = None,
    rounds: Annotated[
        str | None,
        typer.Option(metavar="N[,N]", help="Most steps; for two-stage two counts: 800,1500."),
    ] = None,
    l2: Annotated[float, typer.Option("--l2", help="Weight of |params|²/2 in every loss.")] = 0.0,
    start: Annotated[
        str, typer.Option(metavar="NAME", help="First parameters: zero, or uniform (random).")
    ] = "zero",
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/TABLE-METHOD.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run with other settings in --out.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Train one model for all clients of a table, each within its disparity budget.

    Writes result.json, model.json, history.jsonl and the settings to a folder.

    Exit codes: 0 budgets met on the training rows, 1 an error, 2 wrong usage,
    3 done, but a budget is exceeded on the training rows.
    """
    with _one_line_errors(debug):
        if resume and overwrite:
            raise _WrongUsage("Give --resume or --overwrite, not both.")
        if table is None:
            experiment = _experiment_to_resume(context, out, resume)
        else:
            with _usage():
                experiment = Experiment(
                    table=table,
                    client=client,
                    label=label,
                    sensitive=_words(sensitive),
                    positive=positive,
                    drop=_words(drop),
                    metric=metric,
                    budget=None if budget is None else parse_budget(budget),
                    relative_budget=relative_budget,
                    ratio=ratio,
                    scope=scope,  # type: ignore[arg-type]
                    method=method,
                    published=published,
                    step_size=step_size,
                    rounds=_counts(rounds),
                    l2=l2,
                    start=start,  # type: ignore[arg-type]
                    seed=seed,
                    test_size=test_size,
                )
            _check_columns(experiment)
        folder = out or Path("runs") / f"{Path(experiment.table).stem}-{experiment.method}"
        finished = _run(experiment, folder, resume=resume, overwrite=overwrite)
        print_result(out_console, finished.result)
        _say(f"Written to {folder}")
        if not finished.budgets_met:
            raise typer.Exit(INFEASIBLE)


@app.command(
    cls=_Command, epilog="Example:\n\n  fcfl predict runs/mine new.csv --out predictions.csv"
)
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a training run, or its model.json.")],
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file to write. Default: the screen.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Predict new rows: the table with two more columns, score and prediction.

    The score is the model's probability of the positive label. A level the model
    has not seen counts as none of the known ones, an empty number as the mean.
    """
    with _one_line_errors(debug):
        predictions = predict_file(model, table)
        if out is None:
            predictions.to_csv(sys.stdout, index=False)
            return
        write_predictions(predictions, out)
        count = len(predictions)
        _note(f"{count} {'row' if count == 1 else 'rows'} written to {out}")


@app.command(cls=_Command)
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Train on Adult with a budget of .05 per client for race, beside plain FedAvg.

    Two clients: people with a doctorate (413 training rows), and everybody else
    (32,148).
    """
    with _one_line_errors(debug):
        common: dict[str, Any] = {"table": "adult", "sensitive": ("race",), "seed": seed}
        budgeted = Experiment(**common, budget=0.05)
        plain = Experiment(**common, method="fedavg")
        finished = _run(budgeted, out, overwrite=True)
        compared = _run(plain, out / "fedavg", overwrite=True, tell=lambda note: None)
        results = {"fcfl": finished.result, "FedAvg": compared.result}
        print_result(out_console, finished.result)
        out_console.print("", comparison_table(results), "")
        groups = finished.result["clients"]["phd"]["test"]["disparities"][0]["groups"]
        smallest = min(groups, key=lambda group: group["rows"])
        out_console.print(
            f"Client phd has {smallest['rows']} test rows of group {smallest['group']}: a "
            f"decision about one of them moves its disparity by {1 / smallest['rows']:.2f}.",
            highlight=False,
        )
        _say(f"Written to {out}")


@app.command(
    cls=_Command,
    epilog="Examples:\n\n  fcfl data\n\n  fcfl data adult --sensitive sex\n\n"
    "  fcfl data a.csv --client site --label died --sensitive race",
)
def data(
    table: Annotated[
        str | None,
        typer.Argument(help="A built-in set or a CSV or Parquet file; left out: list the sets."),
    ] = None,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    debug: Debug = False,
) -> None:
    """List the built-in data sets, or describe one: rows, groups, label rates."""
    with _one_line_errors(debug):
        if table is None:
            sets = Grid.grid(padding=(0, 2))
            for name, what in {**BUILTIN, "synthetic": _SYNTHETIC}.items():
                sets.add_row(f"[bold]{name}[/]", what)
            out_console.print(sets, "\nDescribe one with: fcfl data NAME", highlight=False)
            return
        if table == "synthetic":
            out_console.print(_SYNTHETIC, highlight=False)
            return
        with _usage():
            experiment = Experiment(
                table=table,
                client=client,
                label=label,
                sensitive=_words(sensitive),
                positive=positive,
                drop=_words(drop),
                seed=seed,
                test_size=test_size,
            )
        _check_columns(experiment)
        federation = open_federation(experiment)
        for note in federation.notes:
            _note(note)
        clients = describe(federation)
        out_console.print(federation_table(table, clients), "")
        features, label = federation.schema.n_features, federation.columns.label
        more = f"{len(clients)} clients, " if len(clients) > MOST_CLIENTS else ""
        _say(f"{more}{features} features, label {label}: {federation.labels[1]} counts as 1")


_SYNTHETIC = "Two non-convex objectives in 20 dimensions (the paper, section 5.2), no rows"


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        out_console.print(f"fcfl {__version__}", highlight=False)
        raise typer.Exit


def main() -> None:
    """Entry point; a termination signal leaves a checkpoint, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


def _run(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Finished:
    """Run with a progress bar; stopped, say how to go on."""
    try:
        with _progress(experiment.method) as watch:
            return run_experiment(
                experiment,
                folder,
                resume=resume,
                overwrite=overwrite,
                watch=watch,
                tell=tell or _note,
            )
    except Interrupted as stopped:
        command = f"fcfl train --resume --out {shlex.quote(str(folder))}"
        raise Interrupted(f"{stopped} Go on with: {command}") from None


def _experiment_to_resume(context: typer.Context, out: Path | None, resume: bool) -> Experiment:
    """The settings in the folder; options beside them would be ignored and are refused."""
    if not resume:
        raise _WrongUsage("Name a table: a CSV or Parquet file, or a built-in set.")
    if out is None:
        raise _WrongUsage("--resume without a table needs --out.")
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and name not in ("resume", "out", "debug"):
            raise _WrongUsage(
                f"--resume takes the settings from {str(out)!r}; leave {parameter.opts[0]} out."
            )
    path = out / SETTINGS
    if not path.exists():
        raise FCFLError(f"There is no run to resume in {str(out)!r}.")
    return Experiment.from_toml(path)


def _check_columns(experiment: Experiment) -> None:
    missing = columns_missing(experiment)
    if missing and ("." in experiment.table or Path(experiment.table).exists()):
        raise _WrongUsage(missing)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[RoundInfo, float], None] | None]:
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

        def watch(info: RoundInfo, share: float) -> None:
            progress.update(
                task,
                completed=share,
                description=f"{title}, stage {info.stage}",
                round=info.round,
                loss=f"{info.worst_loss:.4f}",
                violation=f"{info.largest_violation:+.4f}",
            )

        yield watch


def _say(sentence: str) -> None:
    """A line on the screen that is not wrapped, so that a path in it can be copied."""
    out_console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _note(sentence: str) -> None:
    err_console.print(f"note: {sentence}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _usage() -> Iterator[None]:
    """A bad option value is wrong usage: exit code 2."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise _WrongUsage(str(error)) from None


@contextmanager
def _one_line_errors(debug: bool) -> Iterator[None]:
    """Turn any error into one line on stderr and an exit code; the traceback with --debug."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _fail("Stopped.", FAILED)
    except _WrongUsage as error:
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


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _counts(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`rounds` must be counts such as 800,1500, got {text!r}.") from None
