"""fcfl predict: score new rows with a trained model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .console import app, note, usage
from .options import command


@command(
    app,
    epilog="Examples:\n\n  fcfl predict runs/mine new.csv --out predictions.csv\n\n"
    "  fcfl predict runs/mine new.csv --threshold 0.3 --escape-formulas --out for-excel.csv",
)
def predict(
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a run, or of a classifier saved in Python."),
    ],
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file to write. Default: the screen.")
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="Score from which on the positive label is predicted. Budgets were held at 0.5.",
        ),
    ] = 0.5,
    escape_formulas: Annotated[
        bool,
        typer.Option(
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
    the run was trained on, a column part says which rows were held out. A model
    trained with --thresholds group needs the columns of the client and of the
    group, too: they decide from which score on a row is positive.
    """
    from fcfl.runs.predicting import (
        check_out,
        check_threshold,
        predict_file,
        without_formulas,
        write_predictions,
    )

    with usage():
        check_threshold(threshold)
    if out is not None:
        check_out(out)
    found = predict_file(model, table, threshold)
    for sentence in found.notes:
        note(sentence)
    written = without_formulas(found.table) if escape_formulas else found.table
    if out is None:
        written.to_csv(sys.stdout, index=False)
        return
    write_predictions(written, out)
    count = len(written)
    rows = "1 row" if count == 1 else f"{count:,} rows"
    note(f"{rows} written to {out}: {found.n_positive:,} positive{found.decided}")
