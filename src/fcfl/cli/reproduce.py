"""The command that makes the paper's tables and figures again."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from fcfl._files import write_json
from fcfl.errors import Interrupted
from fcfl.paper.reproduction import (
    Item,
    Run,
    Scale,
    add_chosen,
    find_items,
    plan_runs,
    run_plan,
    summarise,
)
from fcfl.paper.reproduction.page import item_path, read_item_files, screen_of, write_reproduction
from fcfl.paper.reproduction.plan import QUICK, RESPLITS
from fcfl.paper.reproduction.run_plan import Record
from fcfl.paper.reproduction.run_tables import make_tables, stand_ins

from .console import (
    FAILED,
    Debug,
    WrongUsage,
    app,
    err_console,
    note,
    one_line_errors,
    out_console,
    say,
    usage,
)


@app.command(
    epilog="Examples:\n\n  fcfl reproduce --list\n\n  fcfl reproduce adult-race\n\n"
    "  fcfl reproduce all --quick\n\n  fcfl reproduce all --seeds 5 --jobs 2",
)
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…|all", help="Items, or all of them.")
    ] = None,
    list_items: Annotated[bool, typer.Option("--list", help="Show the items and stop.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the paper's protocol.")] = 5,
    splits: Annotated[int, typer.Option(min=1, help="Random re-splits.")] = RESPLITS,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 2,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="One seed, few rounds: shows the way, not the numbers."),
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished runs again.")] = False,
    eicu: Annotated[
        Path | None,
        typer.Option(
            envvar="FCFL_EICU_DEMO",
            help="Folder with eICU tables, full or the open demo. Default: simulated ones.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder to write; finished runs in it are not run again.")
    ] = Path("runs/reproduce"),
    publish: Annotated[
        bool,
        typer.Option("--publish", help="Also write results/ and docs/reproduction.md here."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Make tables and figures of the paper again, theirs and ours side by side.

    Stopped, the same command goes on: what is finished is kept. Writes a result
    file for each item, reproduction.md and its figures.

    Exit codes: 0 done, 1 an error, also of a single run, 2 wrong usage.
    """
    with one_line_errors(debug):
        if list_items:
            out_console.print(list_of(find_items()))
            return
        with usage():
            items = find_items(names or [])
        if not items:
            raise WrongUsage("Name an item or all; `fcfl reproduce --list` shows them.")
        if quick and publish:
            raise WrongUsage("--quick shows the way, not numbers to publish; leave one out.")
        scale = QUICK if quick else Scale(seeds, splits)
        with _saying_how_to_go_on():
            failed = _reproduce(items, scale, out, jobs, fresh, eicu)
        page = write_reproduction(read_item_files(out), out)
        say(f"Written to {out}; read {page}")
        if publish:
            say(f"Published: {_publish(items, out)}")
        if failed:
            raise typer.Exit(FAILED)


@contextmanager
def _saying_how_to_go_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Stopped; finished runs are kept. Go on with the same command.") from None


def _reproduce(
    items: Sequence[Item], scale: Scale, out: Path, jobs: int, fresh: bool, eicu: Path | None
) -> int:
    """Run, add up, show and write every item; how many runs failed."""
    tables = stand_ins(eicu)
    plans = {item.name: plan_runs(item, scale, tables) for item in items}
    runs = {run.key: run for plan in plans.values() for run in plan.values()}
    needed = [str(run.settings["table"]) for run in runs.values()]
    out.mkdir(parents=True, exist_ok=True)
    files = make_tables(needed, out / "tables", eicu)
    with run_bar(len(runs)) as on_round:
        finished = run_plan(
            runs.values(), files, out / "runs", jobs=jobs, fresh=fresh, on_round=on_round
        )
    if finished.n_read:
        note(f"{finished.n_read} of {len(finished.records)} runs were finished before.")
    for item in items:
        content = summarise(item, plans[item.name], finished.records, scale, tables)
        add_chosen(item, plans[item.name], finished.records, content)
        write_json(item_path(out, content), content)
        for part in screen_of(content):
            if isinstance(part, str):
                say(part)
            else:
                out_console.print(part)
        say("")
    return sum(record["status"] == "failed" for record in finished.records.values())


def _publish(items: Sequence[Item], out: Path) -> str:
    """Copy the result files of these items, and make the page of all that are published."""
    results = Path("results")
    results.mkdir(exist_ok=True)
    for item in items:
        name = f"{item.name}.json"
        (results / name).write_text(compact((out / name).read_text("utf-8")), encoding="utf-8")
    return str(write_reproduction(read_item_files(results), Path("docs")))


def compact(text: str) -> str:
    """The same JSON with one line for each row of the item's tables."""
    content = json.loads(text)
    rows = content.pop("rows")
    head = _dumped(content)
    return f'{head[:-1]},"rows":[\n' + ",\n".join(map(_dumped, rows)) + "\n]}\n"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def list_of(items: Sequence[Item]) -> Grid:
    """Every item in one line."""
    table = Grid(box=None)
    for heading in ("name", "of the paper", "what"):
        table.add_column(heading)
    for item in items:
        table.add_row(item.name, item.of, item.title)
    return table


@contextmanager
def run_bar(total: int) -> Iterator[Callable[[Run, Record, int, int], None]]:
    """A bar that counts runs where somebody can see it; a failed run is told at once."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeRemainingColumn(),
    )
    shown = err_console.is_terminal
    with Progress(*columns, console=err_console, transient=True, disable=not shown) as progress:
        task = progress.add_task("reproduce", total=total)

        def on_round(run: Run, record: Record, done: int, of: int) -> None:
            what = f"{run.settings['table']}, {run.settings['method']}"
            progress.update(task, completed=done, total=of, description=what)
            if record["status"] == "failed":
                note(f"{what}, seed {run.settings['seed']} failed: {record['message']}")

        yield on_round
