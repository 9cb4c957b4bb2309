"""Commands fcfl predict, audit, report, export and card, which use a model or results."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter, validators

from fcfl._files import replace_file
from fcfl.errors import FCFLError
from fcfl.runs.audit_run import AuditSettings, run_audit
from fcfl.runs.options import settings_of

from . import console
from .console import WrongUsage, flag, note, out_console, say, usage
from .settings import Given, out_folder, takes
from .show import show_folder

MOST_NOTES = 8  # maximum number of an audit's notes to print; result.json and the page have all

predict_app = App(
    name="predict",
    help_epilogue="Examples:\n\n  fcfl predict runs/mine new.csv --out predictions.csv\n\n"
    "  fcfl predict runs/mine new.csv --threshold 0.3 --escape-formulas --out for-excel.csv",
)
audit_app = App(
    name="audit",
    help_epilogue="Examples:\n\n"
    "  fcfl audit p.csv --client branch --label y --prediction yhat --sensitive sex --ratio 0.8\n\n"
    "  fcfl audit p.csv --client site --prediction score --threshold 0.5 --sensitive race "
    "--budget 0.05,north=0.1\n\n"
    "  fcfl audit p.parquet --client site --label y --prediction yhat --policy policy.toml "
    "--fail-on exceeded",
)
report_app = App(
    name="report",
    help_epilogue="Examples:\n\n  fcfl report runs/mine\n\n"
    "  fcfl report runs/a runs/b --out comparison.html",
)
export_app = App(
    name="export",
    help_epilogue="Examples:\n\n  fcfl export runs/mine --to onnx\n\n"
    "  fcfl export runs/mine --to csv --out coefficients.csv",
)
card_app = App(
    name="card",
    help_epilogue="Examples:\n\n  fcfl card --kind ll144 --template --out facts.toml\n\n"
    "  fcfl card runs/audit-p --kind ll144 --facts facts.toml",
)


@predict_app.default
def predict(
    model: Annotated[Path, Parameter(help="Folder of a run, or of a classifier saved in Python.")],
    table: Annotated[Path, Parameter(help="CSV, Parquet or xlsx file with the same columns.")],
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="CSV or Parquet file to write. Default: the screen.")
    ] = None,
    threshold: Annotated[
        float | None,
        Parameter(
            metavar="P",
            help="Smallest score at which the positive label is predicted. Default: the threshold "
            "used in training. The budgets apply to predictions at that threshold.",
        ),
    ] = None,
    escape_formulas: Annotated[
        bool, flag("Put ' before text that a spreadsheet reads as a formula, such as =A1.")
    ] = False,
) -> None:
    """Predict the rows of a table; adds the columns score and prediction.

    The score is the probability of the positive label, or the logit for a model
    trained with --loss hinge. A level that did not occur in training is encoded as
    none of the known levels, and a missing number as the mean. Notes give the numbers
    of rows with such cells. Existing cells are not changed. If the table is the one
    that the run used, a column named part is added, which marks held-out rows. A
    model trained with --thresholds group also requires the columns of the client and
    the group, which determine the threshold of a row. If each client was a file in
    training, the name of the given file determines the client.
    """
    from fcfl.models.loss import CROSS_ENTROPY
    from fcfl.models.model import check_threshold
    from fcfl.runs import predicting

    with usage():
        if threshold is not None:
            check_threshold(threshold, CROSS_ENTROPY)
    if out is not None:
        predicting.check_out(out)
    found = predicting.predict_file(model, table, threshold)
    for sentence in found.notes:
        note(sentence)
    if escape_formulas:
        found = found.without_formulas()
    if out is None:
        found.write_csv(sys.stdout)
    else:
        found.write(out)
    count = len(found.table)
    rows = "1 row" if count == 1 else f"{count:,} rows"
    where = "" if out is None else f" written to {out}"
    note(f"{rows}{where}: {found.n_positive:,} positive{found.decided}")


@audit_app.default
@takes(AuditSettings)
def audit(
    table: Annotated[str, Parameter(help=settings_of(AuditSettings)["table"].help)],
    /,
    *,
    given: Given,
    out: Annotated[Path | None, out_folder("audit-TABLE")] = None,
) -> None:
    """Audit any model's predictions: compare each client's disparity with its budget.

    Reports each disparity with an interval and a verdict: met, exceeded or
    undetermined. Writes result.json and report.html to a folder.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 4 --fail-on found a failure.
    """
    if "policy" in given and "metric" in given:
        raise WrongUsage("Give `policy` or `metric`, not both.")
    with usage():
        settings = AuditSettings(table, **given)
    folder = out or Path("runs") / f"audit-{Path(settings.table).name.split('.')[0]}"
    audited = run_audit(settings, folder)
    for sentence in audited.notes[:MOST_NOTES]:
        note(sentence)
    if len(audited.notes) > MOST_NOTES:
        more = len(audited.notes) - MOST_NOTES
        note(f"{more} more notes are in result.json and on the page.")
    page, _ = show_folder(folder)
    say(f"Written to {folder}; open {page}")
    for sentence in audited.failures:
        note(sentence, "failed: ")
    if audited.failures:
        raise SystemExit(console.GATE_FAILED)


@report_app.default
def report(
    folder: Annotated[
        Path, Parameter(help="Folder of a run, audit, sweep, comparison or negotiation.")
    ],
    /,
    *more: Annotated[Path, Parameter(help="More folders, to compare.", metavar="FOLDER")],
    out: Annotated[
        Path | None,
        Parameter(
            help="Page to write, or its folder. Default: the folder's report.html, or "
            "comparison.html for several folders."
        ),
    ] = None,
) -> None:
    """Write report.html again from a folder's files, or compare several folders.

    Reads all folders that fcfl writes: runs, audits, sweeps, comparisons,
    negotiations and classifiers saved in Python.
    """
    from fcfl.report import page, terminal
    from fcfl.results import read_results

    if more:
        folders = [folder, *more]
        written = page.write_comparison(folders, out or Path("comparison.html"))
        out_console.print(terminal.runs_table(read_results(folders), out_console.width), "")
    else:
        written, _ = show_folder(folder, out)
    say(f"Written to {written}")


@export_app.default
def export(
    run: Annotated[Path, Parameter(help="Folder of a run, or of a classifier saved in Python.")],
    /,
    *,
    to: Annotated[Literal["onnx", "skops", "csv"], Parameter(help="Format of the file.")],
    out: Annotated[
        Path | None, Parameter(help="File to write. Default: RUN/model.onnx, .skops or .csv.")
    ] = None,
) -> None:
    """Write a trained model for other programs.

    onnx: a graph from columns to label and probabilities, in double precision.
    skops: a scikit-learn pipeline, which is read without pickle. csv: a readable
    table of coefficients. onnx and skops require the extra fcfl[export].
    """
    from fcfl.export import model_as
    from fcfl.models.linear import load_model

    model = load_model(run)
    place = run if run.is_dir() else run.parent
    path = out or place / f"model.{to}"
    _write_file(path, model_as(model, to))
    columns, features = len(model.inputs.schema.columns), model.params.size - 1
    negative, positive = model.inputs.labels
    say(f"Written to {path}: {columns} columns, {features} features, {negative} or {positive}")


@card_app.default
def card(
    run: Annotated[Path | None, Parameter(help="Folder of a run or an audit.")] = None,
    /,
    *,
    kind: Annotated[
        Literal["ll144", "chai", "annex-iv", "skops"],
        Parameter(help="ll144 (New York City), chai (health), annex-iv (EU AI Act), skops."),
    ],
    facts: Annotated[
        Path | None,
        Parameter(help="TOML file with facts that results do not have, such as a contact."),
    ] = None,
    template: Annotated[bool, flag("Write a file of facts to fill in, instead of a card.")] = False,
    min_cell: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=0),
            help="Smallest count to show. Cells from which a hidden count could be computed are "
            "hidden, too.",
        ),
    ] = 11,
    out: Annotated[
        Path | None, Parameter(help="File to write. Default: RUN/card-KIND.md or .xml.")
    ] = None,
) -> None:
    """Write a model card in a required form, with tables, metrics and verdicts.

    Facts that results do not have are read from --facts; missing facts are shown as
    not stated. A card is not legal advice. For tables of intersections (ll144),
    write the card of an audit with several --sensitive columns.
    """
    from datetime import date

    from fcfl.cards.card import SUFFIX, facts_template, make_card, read_facts

    if template:
        path = out or Path(f"{kind}-facts.toml")
        content = facts_template(kind)
    elif run is None:
        raise WrongUsage("Name the folder of a run or an audit, or pass --template.")
    else:
        path = out or run / f"card-{kind}.{SUFFIX[kind]}"
        content = make_card(run, kind, read_facts(kind, facts), min_cell, date.today())
    _write_file(path, content.encode())
    say(f"Written to {path}")


def _write_file(path: Path, content: bytes) -> None:
    """Write a file; raise `FCFLError` unless its folder exists."""
    if path.is_dir() or not path.parent.is_dir():
        raise FCFLError(f"`--out` must be a file in an existing folder, got {str(path)!r}.")
    replace_file(path, content)
