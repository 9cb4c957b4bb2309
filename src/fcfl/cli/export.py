"""fcfl export: a trained model for other programs."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from .console import say, write_file

app = App(
    name="export",
    help_epilogue="Examples:\n\n  fcfl export runs/mine --to onnx\n\n"
    "  fcfl export runs/mine --to csv --out coefficients.csv",
)


@app.default
def export(
    run: Annotated[Path, Parameter(help="Folder of a run, or of a classifier saved in Python.")],
    /,
    *,
    to: Annotated[Literal["onnx", "skops", "csv"], Parameter(help="What to write.")],
    out: Annotated[
        Path | None, Parameter(help="File to write. Default: RUN/model.onnx, .skops or .csv.")
    ] = None,
) -> None:
    """Write a trained model for other programs.

    onnx: columns in, label and probabilities out, in double precision. skops: a
    scikit-learn pipeline that is read without pickle. csv: a table of coefficients
    that a person can read. onnx and skops need the extra fcfl[export].
    """
    from fcfl.export import model_as
    from fcfl.models.linear import load_model

    model = load_model(run)
    place = run if run.is_dir() else run.parent
    path = out or place / f"model.{to}"
    write_file(path, model_as(model, to))
    columns, features = len(model.inputs.schema.columns), model.params.size - 1
    negative, positive = model.inputs.labels
    say(f"Written to {path}: {columns} columns, {features} features, {negative} or {positive}")
