"""fcfl audit: judge any model's predictions."""

from pathlib import Path
from typing import Annotated

import typer

from fcfl.report.page import write_page
from fcfl.report.terminal import print_result
from fcfl.runs.audit_run import run_audit
from fcfl.runs.audit_settings import AuditSettings

from .console import GATE_FAILED, WrongUsage, app, err_console, note, out_console, say
from .options import Options, command, was_given

MOST_NOTES = 8  # on the screen; all are in result.json and on the page


@command(
    app,
    epilog="Examples:\n\n"
    "  fcfl audit p.csv --client branch --label y --prediction yhat --sensitive sex --ratio 0.8\n\n"
    "  fcfl audit p.csv --client site --prediction score --threshold 0.5 --sensitive race "
    "--budget 0.05,north=0.1\n\n"
    "  fcfl audit p.parquet --client site --label y --prediction yhat --policy policy.toml "
    "--fail-on exceeded",
)
def audit(
    settings: Annotated[AuditSettings, Options(AuditSettings)],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/audit-TABLE.")
    ] = None,
) -> None:
    """Audit any model's predictions: each client's disparity against its budget.

    Every disparity has an interval, and the verdict met, exceeded or undetermined.
    Writes result.json and report.html to a folder.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 4 --fail-on found a failure.
    """
    if settings.policy is not None and was_given("metric"):
        raise WrongUsage("Give `policy` or `metric`, not both.")
    folder = out or Path("runs") / f"audit-{Path(settings.table).name.split('.')[0]}"
    audited = run_audit(settings, folder)
    page = write_page(folder)
    _say_notes(audited.notes)
    print_result(out_console, audited.result)
    say(f"Written to {folder}; open {page}")
    for sentence in audited.failures:
        err_console.print(f"failed: {sentence}", markup=False, highlight=False, soft_wrap=True)
    if audited.failures:
        raise typer.Exit(GATE_FAILED)


def _say_notes(notes: tuple[str, ...]) -> None:
    for sentence in notes[:MOST_NOTES]:
        note(sentence)
    if len(notes) > MOST_NOTES:
        note(f"{len(notes) - MOST_NOTES} more notes are in result.json and on the page.")
