"""Export linear models as files for other programs: ONNX, skops or a table of coefficients.

ONNX and scikit-learn are imported when they are needed.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pandas as pd

from fcfl._types import Vector
from fcfl.data.cells import Category, Number
from fcfl.errors import FCFLError
from fcfl.models.linear import SavedModel
from fcfl.models.model import Label, distinct_names

INTERCEPT, THRESHOLD = "(intercept)", "(threshold)"
OPSET, ML_OPSET, IR_VERSION = 18, 3, 9  # versions that most runtimes support


def model_as(model: SavedModel, form: Literal["onnx", "skops", "csv"]) -> bytes:
    """Return a model as the content of a file in the given form."""
    model.check_decides_by_score()
    if form == "csv":
        return bytes(coefficient_table(model).to_csv(index=False).encode())
    if find_spec(form) is None:
        raise FCFLError(f"`--to {form}` needs {form}. Install it: pip install 'fcfl[export]'.")
    if form == "onnx":
        return bytes(onnx_model(model).SerializeToString())
    from skops.io import dumps

    return bytes(dumps(sklearn_pipeline(model)))


# --- a table --------------------------------------------------------------------------------------


def coefficient_table(model: SavedModel) -> Any:
    """Return a table with one line per feature, one for the intercept and one for the threshold.

    A row's logit is the sum of the intercept, of ``coefficient * (x - mean) / scale`` for each
    number, and of the coefficient of the level for each category. An empty number counts as the
    mean and adds the coefficient of kind ``missing``, if there is one. A row is selected if its
    logit is at least the coefficient of kind ``threshold``.
    """
    columns = ["column", "kind", "level", "mean", "scale", "coefficient"]
    return pd.DataFrame(list(_lines(model)), columns=columns)


def _lines(model: SavedModel) -> Iterator[tuple[object, ...]]:
    weights = iter(model.params.tolist())
    for column in model.inputs.schema.columns:
        if isinstance(column, Category):
            for level in column.levels:
                yield column.name, "level", level, None, None, next(weights)
        else:
            yield column.name, "number", None, column.mean, column.scale, next(weights)
        if column.has_missing:
            yield column.name, "missing", None, None, None, next(weights)
    yield INTERCEPT, "intercept", None, None, None, next(weights)
    yield THRESHOLD, "threshold", None, None, None, model.model.cut


# --- scikit-learn ---------------------------------------------------------------------------------


def sklearn_pipeline(model: SavedModel) -> Any:
    """Return a fitted pipeline with the model's means, scales and weights.

    skops writes and reads the pipeline without pickle. The input is a table with the run's columns:
    numbers as floats, with NaN for empty cells, and categories as text, with empty text for empty
    cells (`fcfl.models.linear.cells_of`). If there are numbers, skops requires trust in
    ``numpy.dtype``, which scikit-learn's imputer stores.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import FixedThresholdClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def step(column: Number | Category) -> Any:
        if isinstance(column, Category):
            levels = np.array(_levels(column), dtype=object)
            return OneHotEncoder(categories=[levels], handle_unknown="ignore", sparse_output=False)
        filled = SimpleImputer(  # an empty cell becomes the mean, and may set an indicator
            strategy="constant", fill_value=column.mean, add_indicator=column.has_missing
        )
        scaled = ColumnTransformer([("scale", StandardScaler(), [0])], remainder="passthrough")
        return Pipeline([("fill", filled), ("scale", scaled)])

    def example(column: Number | Category) -> list[Any]:
        """Return three cells for fitting a step, with an empty number if training had any."""
        if isinstance(column, Category):
            return [column.levels[0]] * 3
        empty = np.nan if column.has_missing else column.mean
        return [column.mean - column.scale, column.mean + column.scale, empty]

    columns = model.inputs.schema.columns
    steps = [(f"{number}", step(column), [column.name]) for number, column in enumerate(columns)]
    encoder = ColumnTransformer(steps, sparse_threshold=0.0)
    encoder.fit(pd.DataFrame({column.name: example(column) for column in columns}))
    for (_, fitted, _), column in zip(encoder.transformers_, columns, strict=False):
        if isinstance(column, Number):  # the exact mean and scale of training
            scaler = fitted.named_steps["scale"].named_transformers_["scale"]
            scaler.mean_, scaler.scale_ = np.array([column.mean]), np.array([column.scale])
            scaler.var_ = scaler.scale_**2
    classes = np.array(model.inputs.labels)
    linear = LogisticRegression()
    linear.classes_, linear.n_features_in_ = classes, model.params.size - 1
    linear.coef_, linear.intercept_ = model.params[None, :-1].copy(), model.params[-1:].copy()
    linear.n_iter_ = np.array([0])
    # LogisticRegression has a threshold of one half and does not select a logit of exactly zero.
    decided = FixedThresholdClassifier(
        linear,
        threshold=model.model.cut,
        response_method="decision_function",
        pos_label=classes[1].item(),
    )
    decided.estimator_, decided.n_features_in_ = linear, linear.n_features_in_
    return Pipeline([("encoder", encoder), ("classifier", decided)])


def _levels(column: Category) -> list[str]:
    return [*column.levels, ""] if column.has_missing else list(column.levels)


# --- ONNX -----------------------------------------------------------------------------------------


def onnx_model(model: SavedModel) -> Any:
    """Return a linear model as an ONNX graph in double precision.

    Each column is an input of shape (rows, 1): numbers as doubles, with NaN for empty cells, and
    categories as text, with empty text for empty cells. The weight of a category's level is looked
    up without building a feature matrix. The outputs are ``label`` and ``probabilities``, or
    similar names if a column has one of these names.
    """
    import onnx

    columns = model.inputs.schema.columns
    names = distinct_names([*(c.name for c in columns), "label", "probabilities"])
    graph = _Graph(onnx)
    weights = iter(np.split(model.params[:-1], np.cumsum([len(c.feature_names) for c in columns])))
    terms = [
        graph.category(column, name, next(weights))
        if isinstance(column, Category)
        else graph.number(column, name, next(weights))
        for column, name in zip(columns, names, strict=False)
    ]
    logits = graph.add("Sum", [*terms, graph.constant(model.params[-1:][None, :])])
    results = graph.outputs(logits, model, names[-2], names[-1])
    made = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "fcfl", graph.inputs, results, graph.constants),
        opset_imports=[
            onnx.helper.make_opsetid("", OPSET),
            onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET),
        ],
        ir_version=IR_VERSION,
        producer_name="fcfl",
    )
    onnx.checker.check_model(made)
    return made


class _Graph:
    """A graph under construction; names of inner values differ from all column names."""

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.kinds = onnx, onnx.TensorProto
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, op: str, inputs: list[str], output: str | None = None, **more: Any) -> str:
        """Add a node and return the name of its value."""
        output = output or f"fcfl:{op}:{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [output], **more))
        return output

    def constant(self, values: Any) -> str:
        """Add a constant and return its name."""
        name = f"fcfl:constant:{len(self.constants)}"
        array = np.asarray(values)
        if array.dtype == object:
            cells, kind = [cell.encode() for cell in array.ravel()], self.kinds.STRING
            tensor = self.onnx.helper.make_tensor(name, kind, array.shape, cells)
        else:
            tensor = self.onnx.numpy_helper.from_array(array, name)
        self.constants.append(tensor)
        return name

    def value(self, name: str, kind: int, width: int | None = 1) -> Any:
        """Return the description of an input or output."""
        shape = ["rows"] if width is None else ["rows", width]
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def number(self, column: Number, name: str, weights: Vector) -> str:
        """Add the term ``w (x - mean) / scale``, or the weight of missing values."""
        self.inputs.append(self.value(name, self.kinds.DOUBLE))
        centred = self.add("Sub", [name, self.constant(np.array([column.mean]))])
        scaled = self.add("Div", [centred, self.constant(np.array([column.scale]))])
        term = self.add("Mul", [scaled, self.constant(weights[:1])])
        empty = weights[1:] if column.has_missing else np.zeros(1)
        return self.add("Where", [self.add("IsNaN", [name]), self.constant(empty), term])

    def category(self, column: Category, name: str, weights: Vector) -> str:
        """Add the weight of the level, or zero for an unknown level."""
        self.inputs.append(self.value(name, self.kinds.STRING))
        levels = _levels(column)
        position = self.add(
            "LabelEncoder",
            [name],
            domain="ai.onnx.ml",
            keys_strings=levels,
            values_int64s=list(range(len(levels))),
            default_int64=len(levels),
        )
        return self.add("Gather", [self.constant(np.append(weights, 0.0)), position])

    def outputs(self, logits: str, model: SavedModel, label: str, scores: str) -> list[Any]:
        """Add the label, by the model's threshold, and the probabilities of both labels."""
        labels: tuple[Label, Label] = model.inputs.labels
        kind = str if isinstance(labels[0], str) else float if float in map(type, labels) else int
        found = self.add("GreaterOrEqual", [logits, self.constant(np.array([model.model.cut]))])
        index = self.add("Cast", [found], to=self.kinds.INT64)
        flat = self.add("Reshape", [index, self.constant(np.array([-1]))])
        names = np.array([kind(text) for text in labels], dtype=object if kind is str else None)
        self.add("Gather", [self.constant(names), flat], label)
        positive = self.add("Sigmoid", [logits])
        negative = self.add("Sub", [self.constant(np.ones(1)), positive])
        self.add("Concat", [negative, positive], scores, axis=1)
        types = {str: self.kinds.STRING, int: self.kinds.INT64, float: self.kinds.DOUBLE}
        return [self.value(label, types[kind], None), self.value(scores, self.kinds.DOUBLE, 2)]
