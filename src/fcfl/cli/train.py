"""fcfl train: one model for all clients of a table."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App

from fcfl.errors import FCFLError, Interrupted
from fcfl.report.page import PAGE, write_page
from fcfl.report.terminal import print_result
from fcfl.results.findings import findings_of
from fcfl.runs import Experiment, Finished, run_experiment
from fcfl.runs.opening import check_columns_named
from fcfl.runs.run import SETTINGS, may_change_on_resume

from .console import (
    INFEASIBLE,
    WrongUsage,
    note,
    out_console,
    progress_bar,
    run_folder,
    say,
    usage,
)
from .settings import NOTHING, Given, Overwrite, Resume, out_folder, table_argument, takes

app = App(
    name="train",
    help_epilogue="Examples:\n\n"
    "  fcfl train a.csv --client site --label died --sensitive race --budget 0.05\n\n"
    "  fcfl train adult --sensitive sex --budget 0.05,phd=0.1 --out runs/mine\n\n"
    "  fcfl train --resume --out runs/mine",
)


@app.default
@takes(Experiment)
def train(
    *table: Annotated[str, table_argument("Leave it out with --resume.")],
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
    check_resume(resume, overwrite)
    if table or not resume:
        settings = experiment_of(table, given)
    else:
        settings = _settings_to_resume(given, out)
    folder = out or run_folder(settings.table, settings.method)
    finished = run_shown(settings, folder, resume=resume, overwrite=overwrite)
    print_result(out_console, finished.result)
    say(f"Written to {folder}; open {folder / PAGE}")
    if findings_of(finished.result):
        raise SystemExit(INFEASIBLE)


def run_shown(
    settings: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_message: Callable[[str], None] = note,
) -> Finished:
    """Run with a progress bar and write the report; name the way to resume when stopped."""
    try:
        with progress_bar(settings.method) as on_round:
            finished = run_experiment(
                settings,
                folder,
                resume=resume,
                overwrite=overwrite,
                on_round=on_round,
                on_message=on_message,
            )
        write_page(folder)
        return finished
    except Interrupted as stopped:
        how = f"fcfl train --resume --out {shlex.quote(str(folder))}"
        raise Interrupted(f"{stopped} Continue with: {how}") from None


def check_resume(resume: bool, overwrite: bool) -> None:
    """Raise if a run is to be resumed and replaced."""
    if resume and overwrite:
        raise WrongUsage("Give --resume or --overwrite, not both.")


def experiment_of(table: Sequence[str], given: Given) -> Experiment:
    """Return the settings of a run; raise if its table or its columns are not named."""
    if not table:
        raise WrongUsage("Name a table: a CSV, Parquet or xlsx file, or a built-in set.")
    with usage():
        settings = Experiment(",".join(table), **given)
        if "." in settings.table or Path(settings.table).exists():
            check_columns_named(settings)
    return settings


def _settings_to_resume(given: Given, out: Path | None) -> Experiment:
    """Return the settings in the folder, with those given that may change on resume."""
    if out is None:
        raise WrongUsage("--resume without a table needs --out.")
    if not (out / SETTINGS).exists():
        raise FCFLError(f"There is no run to resume in {str(out)!r}.")
    with usage():
        stored = Experiment.from_toml(out / SETTINGS)
        for name in given:
            if name not in may_change_on_resume(stored):
                raise ValueError(f"`{name}` must be left out: the folder has the settings.")
        return replace(stored, **given)
