"""Commands that train and predict."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fcfl.errors import FCFLError
from fcfl.models.model_file import check_out, predict_file, write_predictions
from fcfl.report.terminal import comparison_table, print_result
from fcfl.runs import Experiment
from fcfl.runs.folder import SETTINGS
from fcfl.runs.settings import parse_budget, parse_options
from fcfl.server.registry import METHODS

from .console import (
    INFEASIBLE,
    Budget,
    Client,
    Debug,
    Drop,
    Label,
    Metric,
    Positive,
    Ratio,
    Seed,
    Sensitive,
    Table,
    TestSize,
    WrongUsage,
    app,
    check_columns,
    counts,
    note,
    number_or_word,
    one_line_errors,
    out_console,
    run_shown,
    say,
    usage,
    words,
)


def _methods_help() -> str:
    return "\n\n".join(f"[bold]{name}[/]: {entry.help}." for name, entry in METHODS.items())


@app.command(
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
    metric: Metric = "demographic_parity",
    budget: Budget = None,
    relative_budget: Annotated[
        float | None,
        typer.Option(help="Budgets as a share of the disparity each client has without budgets."),
    ] = None,
    ratio: Ratio = None,
    scope: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="client: budgets hold on each client's rows; global: on all rows together; both.",
        ),
    ] = "client",
    policy: Annotated[
        Path | None, typer.Option(help="TOML file with rules and budgets, instead of the above.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Train against tighter budgets, so that held-out disparities keep the given ones "
            "with this probability: 0.9."
        ),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help=_methods_help())] = "sqp",
    published: Annotated[
        bool, typer.Option("--published", help="two-stage as the authors' code has it.")
    ] = False,
    step_size: Annotated[float | None, typer.Option(help="Longest gradient step.")] = None,
    rounds: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N]", help="Most steps; for sqp and two-stage two counts: 800,1500."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=X",
            help="What only one baseline knows, such as q=10 or local-epochs=5; may be repeated.",
        ),
    ] = None,
    l2: Annotated[
        str | None,
        typer.Option(
            "--l2",
            metavar="X|auto",
            help="Weight of |params|²/2 in every loss; auto (default for sqp): cross-validated.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="max|X|auto",
            help="max: the largest loss (the paper); X: a smooth maximum, large is near the mean; "
            "auto (default for sqp): cross-validated.",
        ),
    ] = None,
    curvature: Annotated[
        str, typer.Option(metavar="NAME", help="For sqp: exact, lbfgs, or auto by size.")
    ] = "auto",
    excess_loss: Annotated[
        bool,
        typer.Option(
            "--excess-loss",
            help="Compare what clients lose beyond their own best model, not their losses; "
            "l2 0.001 and objective max unless given.",
        ),
    ] = False,
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
    with one_line_errors(debug):
        if resume and overwrite:
            raise WrongUsage("Give --resume or --overwrite, not both.")
        if table is None:
            experiment = _experiment_to_resume(context, out, resume)
        else:
            with usage():
                experiment = Experiment(
                    table=table,
                    client=client,
                    label=label,
                    sensitive=words(sensitive),
                    positive=positive,
                    drop=words(drop),
                    metric=metric,
                    budget=None if budget is None else parse_budget(budget),
                    relative_budget=relative_budget,
                    ratio=ratio,
                    scope=scope,  # type: ignore[arg-type]
                    policy=None if policy is None else str(policy),
                    confidence=confidence,
                    method=method,
                    published=published,
                    step_size=step_size,
                    rounds=counts(rounds),
                    options=parse_options(option or ()),
                    l2=number_or_word("l2", l2, ("auto",)),
                    objective=number_or_word("objective", objective, ("max", "auto")),
                    curvature=curvature,  # type: ignore[arg-type]
                    excess_loss=excess_loss,
                    start=start,  # type: ignore[arg-type]
                    seed=seed,
                    test_size=test_size,
                )
            check_columns(experiment)
        folder = out or Path("runs") / f"{Path(experiment.table).stem}-{experiment.method}"
        finished = run_shown(experiment, folder, resume=resume, overwrite=overwrite)
        print_result(out_console, finished.result)
        say(f"Written to {folder}")
        if not finished.budgets_met:
            raise typer.Exit(INFEASIBLE)


@app.command(epilog="Example:\n\n  fcfl predict runs/mine new.csv --out predictions.csv")
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
    with one_line_errors(debug):
        if out is not None:
            check_out(out)
        predictions = predict_file(model, table)
        if out is None:
            predictions.to_csv(sys.stdout, index=False)
            return
        write_predictions(predictions, out)
        count = len(predictions)
        note(f"{count} {'row' if count == 1 else 'rows'} written to {out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Train on Adult with a budget of .05 per client for race, beside plain FedAvg.

    Two clients: people with a doctorate (413 training rows), and everybody else
    (32,148).
    """
    with one_line_errors(debug):
        common: dict[str, Any] = {"table": "adult", "sensitive": ("race",), "seed": seed}
        budgeted = Experiment(**common, budget=0.05)
        plain = Experiment(**common, method="fedavg")
        finished = run_shown(budgeted, out, overwrite=True)
        compared = run_shown(plain, out / "fedavg", overwrite=True, on_message=lambda note: None)
        results = {"fcfl": finished.result, "FedAvg": compared.result}
        print_result(out_console, finished.result)
        out_console.print("", comparison_table(results), "")
        groups = finished.result.clients["phd"].test.disparities[0].groups
        smallest = min(groups, key=lambda group: group.rows)
        out_console.print(
            f"Client phd has {smallest.rows} test rows of group {smallest.group}: a "
            f"decision about one of them moves its disparity by {1 / smallest.rows:.2f}.",
            highlight=False,
        )
        say(f"Written to {out}")


def _experiment_to_resume(context: typer.Context, out: Path | None, resume: bool) -> Experiment:
    """The settings in the folder; options beside them would be ignored and are refused."""
    if not resume:
        raise WrongUsage("Name a table: a CSV or Parquet file, or a built-in set.")
    if out is None:
        raise WrongUsage("--resume without a table needs --out.")
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and name not in ("resume", "out", "debug"):
            raise WrongUsage(
                f"--resume takes the settings from {str(out)!r}; leave {parameter.opts[0]} out."
            )
    path = out / SETTINGS
    if not path.exists():
        raise FCFLError(f"There is no run to resume in {str(out)!r}.")
    return Experiment.from_toml(path)
