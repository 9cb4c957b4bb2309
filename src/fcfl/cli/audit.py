"""fcfl audit: judge any model's predictions."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.report.page import write_page
from fcfl.report.terminal import print_result
from fcfl.runs.audit_run import AuditSettings, run_audit
from fcfl.runs.options import settings_of

from .console import GATE_FAILED, WrongUsage, err_console, note, out_console, say, usage
from .settings import Given, out_folder, takes

MOST_NOTES = 8  # on the screen; all are in result.json and on the page


app = App(
    name="audit",
    help_epilogue="Examples:\n\n"
    "  fcfl audit p.csv --client branch --label y --prediction yhat --sensitive sex --ratio 0.8\n\n"
    "  fcfl audit p.csv --client site --prediction score --threshold 0.5 --sensitive race "
    "--budget 0.05,north=0.1\n\n"
    "  fcfl audit p.parquet --client site --label y --prediction yhat --policy policy.toml "
    "--fail-on exceeded",
)


@app.default
@takes(AuditSettings)
def audit(
    table: Annotated[str, Parameter(help=settings_of(AuditSettings)["table"].help)],
    /,
    *,
    given: Given,
    out: Annotated[Path | None, out_folder("audit-TABLE")] = None,
) -> None:
    """Audit any model's predictions: each client's disparity against its budget.

    Every disparity has an interval, and the verdict met, exceeded or undetermined.
    Writes result.json and report.html to a folder.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 4 --fail-on found a failure.
    """
    if "policy" in given and "metric" in given:
        raise WrongUsage("Give `policy` or `metric`, not both.")
    with usage():
        settings = AuditSettings(table, **given)
    folder = out or Path("runs") / f"audit-{Path(settings.table).name.split('.')[0]}"
    audited = run_audit(settings, folder)
    page = write_page(folder)
    for sentence in audited.notes[:MOST_NOTES]:
        note(sentence)
    if len(audited.notes) > MOST_NOTES:
        more = len(audited.notes) - MOST_NOTES
        note(f"{more} more notes are in result.json and on the page.")
    print_result(out_console, audited.result)
    say(f"Written to {folder}; open {page}")
    for sentence in audited.failures:
        err_console.print(f"failed: {sentence}", markup=False, highlight=False, soft_wrap=True)
    if audited.failures:
        raise SystemExit(GATE_FAILED)
