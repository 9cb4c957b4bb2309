"""fcfl predict: score new rows with a trained model."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.models.loss import CROSS_ENTROPY
from fcfl.models.model import check_threshold
from fcfl.runs.predicting import (
    check_out,
    predict_file,
    without_formulas,
    write_csv,
    write_predictions,
)

from .console import note, usage

app = App(
    name="predict",
    help_epilogue="Examples:\n\n  fcfl predict runs/mine new.csv --out predictions.csv\n\n"
    "  fcfl predict runs/mine new.csv --threshold 0.3 --escape-formulas --out for-excel.csv",
)


@app.default
def predict(
    model: Annotated[
        Path,
        Parameter(help="Folder of a run, or of a classifier saved in Python."),
    ],
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
            help="Score from which on the positive label is predicted. Default: the threshold of "
            "training, at which budgets were held.",
        ),
    ] = None,
    escape_formulas: Annotated[
        bool,
        Parameter(
            "--escape-formulas",
            help="Put ' before text that a spreadsheet would compute, such as =A1.",
        ),
    ] = False,
) -> None:
    """Predict new rows: the table with two more columns, score and prediction.

    The score is the model's probability of the positive label; for a model trained with
    --loss hinge it is the logit, which is not a probability. An unseen level of
    a column is treated as none of the known ones, a missing number as the mean;
    both are counted. Other cells stay as they are in the file. Of the table that
    the run was trained on, a column part marks the rows held out. A model
    trained with --thresholds group needs the columns of the client and of the
    group, too: they decide from which score on a row is positive. Where files were
    the clients, the file's name is the client.
    """
    with usage():
        if threshold is not None:
            check_threshold(threshold, CROSS_ENTROPY)
    if out is not None:
        check_out(out)
    found = predict_file(model, table, threshold)
    for sentence in found.notes:
        note(sentence)
    if escape_formulas:
        found = replace(found, table=without_formulas(found.table))
    if out is None:
        write_csv(found, sys.stdout)
    else:
        write_predictions(found, out)
    count = len(found.table)
    rows = "1 row" if count == 1 else f"{count:,} rows"
    where = "" if out is None else f" written to {out}"
    note(f"{rows}{where}: {found.n_positive:,} positive{found.decided}")
