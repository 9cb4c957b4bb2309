"""A linear model as a table that a person can read and recompute."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from fcfl.data.schema import Category
from fcfl.models.saved_model import SavedModel

INTERCEPT, THRESHOLD = "(intercept)", "(threshold)"


def coefficient_table(model: SavedModel) -> Any:
    """One line for each feature, one for the intercept and one for the decision threshold.

    A row's logit is the intercept, plus for each number ``coefficient * (x - mean) / scale`` (an
    empty cell counts as the mean, and adds the coefficient of kind ``missing`` where there is
    one), plus for each category the coefficient of its level. A row is selected from the logit in
    the line of kind ``threshold`` on.
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
