"""The formats by name; what each needs is imported when it is asked for."""

from importlib.util import find_spec
from typing import Literal

from fcfl.errors import FCFLError
from fcfl.export.coefficient_table import coefficient_table
from fcfl.models.saved_model import SavedModel


def model_as(model: SavedModel, form: Literal["onnx", "skops", "csv"]) -> bytes:
    """The content of the file."""
    model.check_decides_by_score()
    if form == "csv":
        text: str = coefficient_table(model).to_csv(index=False)
        return text.encode()
    if find_spec(form) is None:
        raise FCFLError(f"`--to {form}` needs {form}. Install it: pip install 'fcfl[export]'.")
    if form == "onnx":
        from fcfl.export.onnx_graph import onnx_model

        content: bytes = onnx_model(model).SerializeToString()
        return content
    from skops.io import dumps

    from fcfl.export.sklearn_pipeline import sklearn_pipeline

    written: bytes = dumps(sklearn_pipeline(model))
    return written
