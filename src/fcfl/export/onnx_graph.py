"""A linear model as an ONNX graph in double precision: raw columns in, label and probabilities out.

Each column is an input of shape (rows, 1): numbers as doubles, NaN where a cell is empty;
categories as text, empty where a cell is empty. A category's level is looked up and its weight
gathered, so that no feature matrix is built.
"""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fcfl._types import Vector
from fcfl.data.schema import Category, Number
from fcfl.models.model_file import Label, distinct_names
from fcfl.models.saved_model import SavedModel

OPSET, ML_OPSET, IR_VERSION = 18, 3, 9  # what runtimes of the last years read
_KINDS = {str: TensorProto.STRING, int: TensorProto.INT64, float: TensorProto.DOUBLE}


def onnx_model(model: SavedModel) -> Any:
    """The graph; its outputs are ``label`` and ``probabilities``, unless a column is called so."""
    columns = model.inputs.schema.columns
    names = distinct_names([*(c.name for c in columns), "label", "probabilities"])
    graph = _Graph()
    weights = iter(np.split(model.params[:-1], np.cumsum([len(c.feature_names) for c in columns])))
    terms = [
        graph.category(column, name, next(weights))
        if isinstance(column, Category)
        else graph.number(column, name, next(weights))
        for column, name in zip(columns, names, strict=False)
    ]
    logits = graph.add("Sum", [*terms, graph.constant(model.params[-1:][None, :])])
    graph.outputs(logits, model, names[-2], names[-1])
    made = helper.make_model(
        helper.make_graph(graph.nodes, "fcfl", graph.inputs, graph.results, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="fcfl",
    )
    onnx.checker.check_model(made)
    return made


class _Graph:
    """Nodes as they are added; every value but inputs and outputs has a name that no column has."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.results: list[Any] = []

    def add(self, op: str, inputs: list[str], output: str | None = None, **more: Any) -> str:
        """A node and the name of its value."""
        output = output or f"fcfl:{op}:{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **more))
        return output

    def constant(self, values: Any) -> str:
        """A constant and its name."""
        name = f"fcfl:constant:{len(self.constants)}"
        array = np.asarray(values)
        if array.dtype == object:
            cells = [cell.encode() for cell in array.ravel()]
            tensor = helper.make_tensor(name, TensorProto.STRING, array.shape, cells)
        else:
            tensor = numpy_helper.from_array(array, name)
        self.constants.append(tensor)
        return name

    def take(self, name: str, kind: int) -> None:
        """A column of the table."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["rows", 1]))

    def number(self, column: Number, name: str, weights: Vector) -> str:
        """``w (x - mean) / scale``, of an empty cell the weight of being empty."""
        self.take(name, TensorProto.DOUBLE)
        centred = self.add("Sub", [name, self.constant(np.array([column.mean]))])
        scaled = self.add("Div", [centred, self.constant(np.array([column.scale]))])
        term = self.add("Mul", [scaled, self.constant(weights[:1])])
        empty = weights[1:] if column.has_missing else np.zeros(1)
        return self.add("Where", [self.add("IsNaN", [name]), self.constant(empty), term])

    def category(self, column: Category, name: str, weights: Vector) -> str:
        """The weight of the level, zero of an unknown one."""
        self.take(name, TensorProto.STRING)
        levels = [*column.levels, ""] if column.has_missing else list(column.levels)
        position = self.add(
            "LabelEncoder",
            [name],
            domain="ai.onnx.ml",
            keys_strings=levels,
            values_int64s=list(range(len(levels))),
            default_int64=len(levels),
        )
        return self.add("Gather", [self.constant(np.append(weights, 0.0)), position])

    def outputs(self, logits: str, model: SavedModel, label: str, scores: str) -> None:
        """The positive label from the model's cut on; probabilities of both labels."""
        labels: tuple[Label, Label] = model.inputs.labels
        kind = str if isinstance(labels[0], str) else float if float in map(type, labels) else int
        found = self.add("GreaterOrEqual", [logits, self.constant(np.array([model.model.cut]))])
        index = self.add("Cast", [found], to=TensorProto.INT64)
        flat = self.add("Reshape", [index, self.constant(np.array([-1]))])
        names = np.array([kind(text) for text in labels], dtype=object if kind is str else None)
        self.add("Gather", [self.constant(names), flat], label)
        positive = self.add("Sigmoid", [logits])
        negative = self.add("Sub", [self.constant(np.ones(1)), positive])
        self.add("Concat", [negative, positive], scores, axis=1)
        self.results = [
            helper.make_tensor_value_info(label, _KINDS[kind], ["rows"]),
            helper.make_tensor_value_info(scores, TensorProto.DOUBLE, ["rows", 2]),
        ]
