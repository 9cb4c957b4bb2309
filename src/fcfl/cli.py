"""The command line: it reads options, calls the package, and turns errors into one line."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fcfl import __version__
from fcfl.data import BUILTIN, describe
from fcfl.errors import FCFLError
from fcfl.experiment import Experiment, Finished, run_experiment
from fcfl.experiment.model_file import predict_file
from fcfl.experiment.settings import METHODS, parse_budget
from fcfl.experiment.tasks import open_federation
from fcfl.report.terminal import comparison_table, federation_table, print_result
from fcfl.server.method import RoundInfo

INFEASIBLE = 3

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
Client = Annotated[str | None, typer.Option(help="Column that says whose row it is.")]
Label = Annotated[str | None, typer.Option(help="Column to predict; two values.")]
Sensitive = Annotated[
    str | None, typer.Option(help="Column whose groups are compared; several with commas.")
]
Positive = Annotated[str | None, typer.Option(help="Label value that counts as 1.")]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out, with commas.")]
Seed = Annotated[int, typer.Option(help="Seed of the split and of a random start.")]
TestSize = Annotated[float, typer.Option(help="Share of each client's rows to hold out.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command(
    epilog="Examples:\n\n"
    "  fcfl train stays.csv --client hospital --label died --sensitive race --budget 0.05\n\n"
    "  fcfl train adult --sensitive sex --metric equal_opportunity --budget 0.05,phd=0.1\n\n"
    "  fcfl train --resume --out runs/mine"
)
def train(
    table: Table = None,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    metric: Annotated[
        str, typer.Option(help="demographic_parity, equal_opportunity or equalized_odds.")
    ] = "demographic_parity",
    budget: Annotated[
        str | None,
        typer.Option(help="Largest disparity: 0.05, or north=0.05,south=0.1, or 0.05,south=0.1."),
    ] = None,
    relative_budget: Annotated[
        float | None, typer.Option(help="Budgets as a share of each client's own disparity.")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="Smallest ratio of group rates; 0.8 is four-fifths.")
    ] = None,
    scope: Annotated[
        str, typer.Option(help="client: each on its own rows; global: all rows; both.")
    ] = "client",
    method: Annotated[str, typer.Option(help=_methods_help())] = "two-stage",
    published: Annotated[
        bool, typer.Option("--published", help="two-stage as the authors' code has it.")
    ] = False,
    step_size: Annotated[float | None, typer.Option(help="Longest gradient step.")] = None,
    rounds: Annotated[
        str | None, typer.Option(help="Rounds; two counts, such as 800,1500, for two-stage.")
    ] = None,
    l2: Annotated[float, typer.Option("--l2", help="Weight of |params|²/2 in every loss.")] = 0.0,
    start: Annotated[str, typer.Option(help="zero or uniform.")] = "zero",
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/<table>-<method>.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run with other settings.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Train one model for all clients of a table, each within its disparity budget.

    Writes result.json, model.json, history.jsonl and the settings to a folder. Exit codes: 0
    budgets met on the training rows, 1 an error, 2 wrong usage, 3 the budgets could not be met.
    """
    with _one_line_errors(debug):
        if resume and table is None:
            if out is None:
                raise typer.BadParameter("--resume without a table needs --out.")
            experiment = _settings_of(out)
        elif table is None:
            raise typer.BadParameter("Name a table: a CSV or Parquet file, or a built-in set.")
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
        folder = out or Path("runs") / f"{Path(experiment.table).stem}-{experiment.method}"
        finished = _run(experiment, folder, resume=resume, overwrite=overwrite)
        print_result(out_console, finished.result)
        out_console.print(f"Written to {folder}", markup=False, highlight=False)
        if not finished.budgets_met:
            raise typer.Exit(INFEASIBLE)


@app.command(epilog="Example:\n\n  fcfl predict runs/mine new-rows.csv --out predictions.csv")
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a training run, or its model.json.")],
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file to write. Default: the screen.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Predict new rows: the table with a score and a prediction for each row.

    A level the model has not seen counts as none of the known ones.
    """
    with _one_line_errors(debug):
        predictions = predict_file(model, table)
        if out is None:
            predictions.to_csv(sys.stdout, index=False)
        elif out.suffix == ".parquet":
            predictions.to_parquet(out, index=False)
        else:
            predictions.to_csv(out, index=False)
        if out is not None:
            err_console.print(f"{len(predictions)} rows written to {out}", markup=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Adult, race, a budget of .05 for each client, beside plain FedAvg on the same rows.

    Two clients: people with a doctorate (413 training rows) and everybody else (32,148).
    """
    with _one_line_errors(debug):
        common: dict[str, Any] = {"table": "adult", "sensitive": ("race",), "seed": seed}
        budgeted = Experiment(**common, budget=0.05)
        plain = Experiment(**common, method="fedavg")
        finished = _run(budgeted, out, overwrite=True)
        compared = _run(plain, out / "fedavg", overwrite=True)
        results = {"fcfl": finished.result, "FedAvg": compared.result}
        print_result(out_console, finished.result)
        out_console.print(comparison_table(results))
        out_console.print(
            "The doctorate client has 24 non-white test rows: one of them moves its disparity by "
            f".04. Written to {out}",
            highlight=False,
        )


@app.command(
    epilog="Examples:\n\n  fcfl data\n\n  fcfl data adult --sensitive sex\n\n"
    "  fcfl data stays.csv --client hospital --label died --sensitive race"
)
def data(
    table: Annotated[
        str | None, typer.Argument(help="A built-in set or a file; left out: list the sets.")
    ] = None,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    seed: Seed = 0,
    test_size: TestSize = 0.3,
    debug: Debug = False,
) -> None:
    """List the built-in data sets, or describe one: rows, groups and label rates per client."""
    with _one_line_errors(debug):
        if table is None:
            for name, what in {**BUILTIN, "synthetic": _SYNTHETIC}.items():
                out_console.print(f"[bold]{name}[/]  {what}", highlight=False)
            out_console.print("Describe one with: fcfl data NAME", highlight=False)
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
                seed=seed,
                test_size=test_size,
            )
        federation = open_federation(experiment)
        for note in federation.notes:
            _tell(note)
        out_console.print(federation_table(table, describe(federation)))
        features, label = federation.schema.n_features, federation.columns.label
        summary = f"{features} features, label {label}: {federation.labels[1]} counts as 1"
        out_console.print(summary, markup=False, highlight=False)


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
    experiment: Experiment, folder: Path, *, resume: bool = False, overwrite: bool = False
) -> Finished:
    """Run with a progress bar."""
    with _progress(experiment.method) as watch:
        return run_experiment(
            experiment, folder, resume=resume, overwrite=overwrite, watch=watch, tell=_tell
        )


@contextmanager
def _progress(title: str) -> Iterator[Callable[[RoundInfo, float], None]]:
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


def _tell(sentence: str) -> None:
    err_console.print(f"note: {sentence}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _usage() -> Iterator[None]:
    """A bad option value is wrong usage: exit code 2."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _one_line_errors(debug: bool) -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 1; the traceback with --debug."""
    try:
        yield
    except (FCFLError, ValueError, OSError, MemoryError) as error:
        if debug:
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        err_console.print(f"error: {text}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err_console.print("error: Stopped.", highlight=False)
        raise typer.Exit(1) from None


def _settings_of(folder: Path) -> Experiment:
    path = folder / "experiment.toml"
    if not path.exists():
        raise FCFLError(f"There is no run to resume in {str(folder)!r}.")
    return Experiment.from_toml(path)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _counts(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`rounds` must be counts such as 800,1500, got {text!r}.") from None
