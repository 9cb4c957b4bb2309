"""`fcfl reproduce`: run the paper's experiments again and write tables and figures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from fcfl.cli.console import FAILED, WrongUsage, flag, note, out_console, say, usage
from fcfl.errors import Interrupted
from fcfl_paper.reproduction.aggregate import aggregate, with_chosen_budget
from fcfl_paper.reproduction.items import (
    QUICK,
    Item,
    Run,
    find_items,
    folder_of_items,
    plan_runs,
)
from fcfl_paper.reproduction.page import INSTALL, can_draw, screen_of, write_reproduction
from fcfl_paper.reproduction.records import (
    FailedRun,
    Record,
    Scale,
    read_item_results,
    write_item_result,
)
from fcfl_paper.reproduction.runs import OnRun, make_tables, run_plan, substitutes

AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Names = Annotated[str, Parameter(metavar="NAME", help="Items, or all.")]
ListItems = Annotated[bool, Parameter("--list", help="Show the items.", show_default=False)]
Seeds = Annotated[AtLeastOne, Parameter(help="Seeds of the paper's protocol.")]
Splits = Annotated[AtLeastOne, Parameter(help="Random re-splits.")]
Jobs = Annotated[AtLeastOne, Parameter(help="Runs at the same time.")]
Quick = Annotated[bool, flag("One seed, few rounds: only shows that everything runs.")]
Fresh = Annotated[bool, flag("Run finished runs again.")]
EicuFolder = Annotated[
    Path | None,
    Parameter(
        env_var="FCFL_EICU_DEMO",
        help="Folder with eICU tables, full or the open demo. Default: simulated ones.",
    ),
]
Out = Annotated[Path, Parameter(help="Folder to write; finished runs in it are not run again.")]
Publish = Annotated[bool, flag("Also write results/ and docs/reproduction.md beside experiments/.")]


app = App(
    name="reproduce",
    help_epilogue="Examples:\n\n  fcfl reproduce --list\n\n  fcfl reproduce adult-race\n\n"
    "  fcfl reproduce all --quick\n\n  fcfl reproduce all --seeds 5 --jobs 2",
)


@app.default
def reproduce(
    *names: Names,
    list_items: ListItems = False,
    seeds: Seeds = 5,
    splits: Splits = 20,
    jobs: Jobs = 2,
    quick: Quick = False,
    fresh: Fresh = False,
    eicu: EicuFolder = None,
    out: Out = Path("runs/reproduce"),
    publish: Publish = False,
) -> None:
    """Reproduce tables and figures of the paper, theirs and ours side by side.

    Stopped, the same command continues: finished runs are kept. Writes a result
    file for each item, reproduction.md and its figures (these need matplotlib).

    Exit codes: 0 done, 1 an error, also of a single run, 2 wrong usage.
    """
    if list_items:
        out_console.print(list_of(find_items()))
        return
    with usage():
        items = find_items(names)
    if not items:
        raise WrongUsage("Name an item or all; `fcfl reproduce --list` shows them.")
    _check_publishing(quick, publish)
    try:
        scale = QUICK if quick else Scale(seeds, splits)
        n_failed = _reproduce(items, scale, out, jobs, fresh, eicu)
    except KeyboardInterrupt:
        message = "Stopped; finished runs are kept. Continue with the same command."
        raise Interrupted(message) from None
    say(f"Written to {out}; read {write_reproduction(read_item_results(out), out)}")
    if publish:
        say(f"Published: {_publish(items, out)}")
    if n_failed:
        raise SystemExit(FAILED)


def _check_publishing(quick: bool, publish: bool) -> None:
    """Only a full run with figures is published; without figures the rest is still written."""
    if quick and publish:
        raise WrongUsage("--quick numbers are not worth publishing; leave out one of the two.")
    if not can_draw() and publish:
        raise WrongUsage(f"--publish draws figures, which need matplotlib: {INSTALL}")
    if not can_draw():
        note(f"Tables are written without figures, which need matplotlib: {INSTALL}")


def _reproduce(
    items: Sequence[Item], scale: Scale, out: Path, jobs: int, fresh: bool, eicu: Path | None
) -> int:
    """Run, aggregate, show and write every item; return how many runs failed."""
    available = substitutes(eicu)
    plans = {item.name: plan_runs(item, scale, available) for item in items}
    runs = {run.key: run for plan in plans.values() for run in plan.values()}
    out.mkdir(parents=True, exist_ok=True)
    files = make_tables([run.table for run in runs.values()], out / "tables", eicu)
    with run_bar(len(runs)) as on_run:
        finished = run_plan(
            runs.values(), files, out / "runs", jobs=jobs, fresh=fresh, on_run=on_run
        )
    if finished.n_read:
        note(f"{finished.n_read} of {len(finished.records)} runs were finished before.")
    for item in items:
        plan, records = plans[item.name], finished.records
        result = aggregate(item, plan, records, scale, available)
        result = with_chosen_budget(item, plan, records, result)
        write_item_result(result, out)
        for part in (*screen_of(result), ""):
            say(part) if isinstance(part, str) else out_console.print(part)
    return finished.n_failed


def _publish(items: Sequence[Item], out: Path) -> Path:
    """Copy the result files of these items, and make the page of all that are published."""
    results = folder_of_items().parent / "results"
    results.mkdir(exist_ok=True)
    for item in items:
        name = f"{item.name}.json"
        (results / name).write_bytes((out / name).read_bytes())
    return write_reproduction(read_item_results(results), results.parent / "docs")


def list_of(items: Sequence[Item]) -> Grid:
    """Return every item in one line."""
    table = Grid(box=None)
    for heading in ("name", "of the paper", "what"):
        table.add_column(heading)
    for item in items:
        table.add_row(item.name, item.of, item.title)
    return table


@contextmanager
def run_bar(total: int) -> Iterator[OnRun]:
    """Show a bar that counts runs in a terminal; report a failed run at once."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeRemainingColumn())
    console = Console(stderr=True)
    bar = Progress(TextColumn("{task.description}"), *columns, console=console, transient=True)
    bar.disable = not console.is_terminal
    with bar as progress:
        task = progress.add_task("reproduce", total=total)

        def on_run(run: Run, record: Record, done: int, of: int) -> None:
            what = f"{run.table}, {run.settings['method']}"
            progress.update(task, completed=done, total=of, description=what)
            if isinstance(record, FailedRun):
                text = f"note: {what}, seed {run.settings['seed']} failed: {record.message}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)

        yield on_run
