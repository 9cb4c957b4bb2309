"""Commands fcfl train, demo and data: train on a table, or describe it."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table as Grid

from fcfl.data import BUILTIN, describe, table_files
from fcfl.errors import FCFLError
from fcfl.report.terminal import MAX_CLIENTS, comparison_table, federation_table
from fcfl.results import Result
from fcfl.runs import Experiment
from fcfl.runs.opening import check_columns_named, open_table
from fcfl.runs.run import SETTINGS, may_change_on_resume, run_session
from fcfl.runs.settings import DATA

from .console import WrongUsage, note, out_console, run_folder, running, say, usage
from .settings import NOTHING, Given, Overwrite, Resume, out_folder, table_argument, takes
from .show import finish, show_folder

demo_app = App(name="demo")
train_app = App(
    name="train",
    help_epilogue="Examples:\n\n"
    "  fcfl train a.csv --client site --label died --sensitive race --budget 0.05\n\n"
    "  fcfl train adult --sensitive sex --budget 0.05,phd=0.1 --out runs/mine\n\n"
    "  fcfl train --resume --out runs/mine",
)
data_app = App(
    name="data",
    help_epilogue="Examples:\n\n  fcfl data\n\n  fcfl data adult --sensitive sex\n\n"
    "  fcfl data a.csv --client site --label died --sensitive race",
)
_ADDED = {
    entry.name.removeprefix("data."): entry.value
    for entry in entry_points(group="fcfl.commands")
    if entry.name.startswith("data.")
}
for _name, _app in _ADDED.items():
    data_app.command(_app, name=_name)
_SYNTHETIC = "Two non-convex objectives in 20 dimensions without rows (the paper, section 5.2)"


@train_app.default
@takes(Experiment)
def train(
    *table: Annotated[str, table_argument("Optional with --resume.")],
    given: Given = NOTHING,
    out: Annotated[Path | None, out_folder("TABLE-METHOD")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train one model for all clients of a table, each within its disparity budget.

    Writes result.json, model.json, history.jsonl, report.html and the settings
    to a folder.

    Exit codes: 0 budgets met on the training rows, 1 an error, 2 wrong usage,
    3 done, but a budget is exceeded on the training rows, or the model selects
    nearly nobody, nearly everybody, or fewer than half as many as without budgets.
    """
    if table or not resume:
        settings = experiment_of(table, given)
    else:
        settings = _settings_to_resume(given, out)
    folder = out or run_folder(settings.table, settings.method)
    _run(settings, folder, resume=resume, overwrite=overwrite)
    finish(folder)


def _run(
    settings: Experiment, folder: Path, *, resume: bool, overwrite: bool, quiet: bool = False
) -> Result:
    """Train; if interrupted, name the command that continues the run."""
    again = ("train", "--resume", "--out", str(folder))
    with running(settings.method, folder, resume, again) as session:
        session = session.quiet() if quiet else session
        return run_session(settings, session, overwrite=overwrite).result


def experiment_of(table: Sequence[str], given: Given) -> Experiment:
    """Return the settings of a run; raise `WrongUsage` if the table or its columns are missing."""
    if not table:
        raise WrongUsage("`table` is missing: a CSV, Parquet or xlsx file, or a built-in set.")
    with usage():
        settings = Experiment(",".join(table), **given)
        if "." in settings.table or Path(settings.table).exists():
            check_columns_named(settings)
    return settings


def _settings_to_resume(given: Given, out: Path | None) -> Experiment:
    """Return the settings stored in the folder, updated with given settings that may change."""
    if out is None:
        raise WrongUsage("--resume without a table requires --out.")
    if not (out / SETTINGS).exists():
        raise FCFLError(f"There is no run to resume in {str(out)!r}.")
    with usage():
        stored = Experiment.from_toml(out / SETTINGS)
        for name in given:
            if name not in may_change_on_resume(stored):
                raise ValueError(f"`{name}` cannot be given on resume: the stored value is used.")
        return replace(stored, **given)


@demo_app.default
def demo(
    *,
    seed: Annotated[int, Parameter(help="Random seed of the split.")] = 0,
    out: Annotated[Path, Parameter(help="Folder to write.")] = Path("runs/demo"),
) -> None:
    """Train on Adult with a budget of .05 per client for race, and compare with FedAvg.

    There are two clients: people with a doctorate (413 training rows) and all other
    people (32,148).
    """
    with usage():
        plain = Experiment("adult", sensitive=("race",), method="fedavg", seed=seed)
    fresh = {"resume": False, "overwrite": True}
    found = _run(replace(plain, method="sqp", budget=0.05), out, **fresh)
    compared = _run(plain, out / "fedavg", quiet=True, **fresh)
    page, _ = show_folder(out)
    table = comparison_table({"fcfl": found, "FedAvg": compared}, out_console.width)
    groups = found.clients["phd"].test.disparities[0].groups
    smallest = min(groups, key=lambda group: group.rows)
    sentence = (
        f"Client phd has {smallest.rows} test rows of group {smallest.group}: the "
        f"decision about one of them changes its disparity by {1 / smallest.rows:.2f}."
    )
    out_console.print("", table, f"\n{sentence}", highlight=False)
    say(f"Written to {out}; open {page}")


@data_app.default
@takes(Experiment, DATA)
def data(
    *table: Annotated[str, table_argument("Default: list the built-in sets.")],
    given: Given = NOTHING,
) -> None:
    """List the built-in data sets, or describe a data set: rows, groups, label rates."""
    if not table:
        _list_sets()
        return
    settings = experiment_of(table, given)
    if settings.table == "synthetic":
        out_console.print(_SYNTHETIC, highlight=False)
    else:
        _describe(settings)


def _list_sets() -> None:
    sets = Grid.grid(padding=(0, 2))
    added = {name: f"Made from your own files: fcfl data {name} --help" for name in _ADDED}
    for name, what in {**BUILTIN, "synthetic": _SYNTHETIC, **added}.items():
        sets.add_row(f"[bold]{name}[/]", what)
    out_console.print(sets, "\nDescribe one with: fcfl data NAME", highlight=False)


def _describe(settings: Experiment) -> None:
    federation = open_table(settings)
    for sentence in federation.notes:
        note(sentence)
    clients = describe(federation)
    several = "," in settings.table and len(table_files(settings.table))
    title = f"{several} files" if several else settings.table
    out_console.print(federation_table(title, clients, out_console.width), "")
    features, label = federation.schema.n_features, federation.columns.label
    more = f"{len(clients)} clients, " if len(clients) > MAX_CLIENTS else ""
    say(f"{more}{features} features, label {label}: {federation.labels[1]} counts as 1")
