"""fcfl predict: score new rows with a trained model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fcfl.models.model_file import check_out, predict_file, write_predictions

from .console import app, note
from .options import command


@command(app, epilog="Example:\n\n  fcfl predict runs/mine new.csv --out predictions.csv")
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a training run, or its model.json.")],
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file to write. Default: the screen.")
    ] = None,
) -> None:
    """Predict new rows: the table with two more columns, score and prediction.

    The score is the model's probability of the positive label. An unseen level of
    a column is treated as none of the known ones, a missing number as the mean.
    """
    if out is not None:
        check_out(out)
    predictions = predict_file(model, table)
    if out is None:
        predictions.to_csv(sys.stdout, index=False)
        return
    write_predictions(predictions, out)
    count = len(predictions)
    note(f"{count} {'row' if count == 1 else 'rows'} written to {out}")
