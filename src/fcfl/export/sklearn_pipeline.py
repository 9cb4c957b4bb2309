"""A linear model as a scikit-learn pipeline, which skops writes and reads without pickle.

Its input is a table with the run's columns: numbers as floats, NaN where a cell is empty;
categories as text, empty text where a cell is empty (`fcfl.models.saved_model.cells_of`). Where
there are numbers, skops asks to trust ``numpy.dtype``, which scikit-learn's imputer keeps.
"""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fcfl.data.schema import Category, Number
from fcfl.models.saved_model import SavedModel


def sklearn_pipeline(model: SavedModel) -> Any:
    """A fitted pipeline with the model's own means, scales and weights."""
    columns = model.inputs.schema.columns
    steps = [
        (f"{number}", _category(c) if isinstance(c, Category) else _number(c), [c.name])
        for number, c in enumerate(columns)
    ]
    encoder = ColumnTransformer(steps, sparse_threshold=0.0)
    example = pd.DataFrame({c.name: _example(c) for c in columns})
    encoder.fit(example)
    for (_, step, _), column in zip(encoder.transformers_, columns, strict=False):
        if isinstance(column, Number):
            _take_scale(step, column)
    classes = np.array(model.inputs.labels)
    linear = LogisticRegression()
    linear.classes_, linear.n_features_in_ = classes, model.params.size - 1
    linear.coef_, linear.intercept_ = model.params[None, :-1].copy(), model.params[-1:].copy()
    linear.n_iter_ = np.array([0])
    # LogisticRegression would decide at one half, and not select a logit of exactly zero.
    decided = FixedThresholdClassifier(
        linear,
        threshold=model.model.cut,
        response_method="decision_function",
        pos_label=classes[1].item(),
    )
    decided.estimator_, decided.n_features_in_ = linear, linear.n_features_in_
    return Pipeline([("encoder", encoder), ("classifier", decided)])


def _category(column: Category) -> Any:
    levels = [*column.levels, ""] if column.has_missing else list(column.levels)
    return OneHotEncoder(
        categories=[np.array(levels, dtype=object)], handle_unknown="ignore", sparse_output=False
    )


def _number(column: Number) -> Any:
    """An empty cell becomes the mean, and sets an indicator where training saw empty cells."""
    filled = SimpleImputer(
        strategy="constant", fill_value=column.mean, add_indicator=column.has_missing
    )
    scaled = ColumnTransformer([("scale", StandardScaler(), [0])], remainder="passthrough")
    return Pipeline([("fill", filled), ("scale", scaled)])


def _example(column: Number | Category) -> list[Any]:
    """Three cells that every step can be fitted to, one of them empty."""
    if isinstance(column, Category):
        return [column.levels[0]] * 3
    empty = np.nan if column.has_missing else column.mean
    return [column.mean - column.scale, column.mean + column.scale, empty]


def _take_scale(step: Any, column: Number) -> None:
    """The mean and scale of training, to the last digit."""
    scaler = step.named_steps["scale"].named_transformers_["scale"]
    scaler.mean_, scaler.scale_ = np.array([column.mean]), np.array([column.scale])
    scaler.var_ = scaler.scale_**2
