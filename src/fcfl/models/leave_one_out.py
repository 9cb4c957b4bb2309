r"""Losses of rows that a model was trained without, by one Newton step for each row.

A fit that minimises :math:`\sum_k \lambda_k l_k + \frac{\lambda}{2} |\theta|^2` has the Hessian H.
Without row i of client k, which has the weight :math:`c = \lambda_k / n_k`, its logit would be

.. math:: z_i + \frac{c\, s_i h_i}{1 - c\, b_i h_i}, \qquad h_i = x_i^T H^{-1} x_i

with s and b the first and second derivative of the row's loss. Only sums over rows leave a client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fcfl._types import ClientId, Extra, Matrix, Point, Vector
from fcfl.extras import RowsUnderModel

MOST_ROWS = 20_000  # distinct rows of one client; more would not change a choice
_BLOCK = 2_048  # rows whose products with H^-1 are in memory at once


@dataclass(frozen=True)
class LeaveOneOut(Extra):
    """Sums of leave-one-out losses over a client's rows, for several models at once.

    ``factors[i]`` is F with :math:`F F^T = H^{-1}` of model ``models[i]``; ``weights[client][i]``
    the weight of the client's loss in it. ``loo_losses`` has the number of rows and the sum for
    each model, ``loo_products`` the sums of products of two models' losses.
    """

    models: tuple[Vector, ...]
    factors: tuple[Matrix, ...]
    weights: Mapping[ClientId, Vector]

    @cached_property
    def inverses(self) -> tuple[Matrix, ...]:
        """The inverse Hessians, made once for all clients of a process."""
        return tuple(factor @ factor.T for factor in self.factors)

    def for_client(self, name: ClientId) -> "LeaveOneOut":
        """Return the question with the weights of one client only."""
        return replace(self, weights={name: self.weights[name]})

    def answer(self, rows: RowsUnderModel, point: Point) -> Mapping[str, Matrix]:
        """The sums over rows, or over an even sample of them where there are very many."""
        every = np.arange(rows.row_counts.size)
        kept = every[:: max(-(-every.size // MOST_ROWS), 1)]
        counts, positives = rows.row_counts[kept], rows.positive_counts[kept]
        features = rows.features[kept]
        n_rows = rows.row_counts.sum()
        losses = np.empty((2 * kept.size, len(self.models)))
        each = zip(self.models, self.inverses, self.weights[rows.name], strict=True)
        for place, (params, inverse, weight) in enumerate(each):
            logits = rows.logits(params)[kept]
            leverage = weight / n_rows * _leverages(features, inverse)
            for label in (0.0, 1.0):
                y = np.full(kept.size, label)
                slope = rows.loss.slope_each(logits, y)
                bend = rows.loss.bends(logits, np.ones(kept.size), y)
                without = logits + slope * leverage / np.maximum(1.0 - bend * leverage, 1e-6)
                part = slice(0, kept.size) if label == 0.0 else slice(kept.size, None)
                losses[part, place] = rows.loss.each(without, y)
        times = np.concatenate([counts - positives, positives])
        return {
            "loo_losses": np.append(times.sum(), times @ losses),
            "loo_products": losses.T @ (times[:, None] * losses),
        }

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """One number per model and one for the rows; one per pair of models."""
        n = len(self.models)
        return {"loo_losses": (n + 1,), "loo_products": (n, n)}


def _leverages(features: Any, inverse: Matrix) -> Vector:
    """:math:`x^T H^{-1} x` of each row, a 1 for the intercept appended."""
    inner, border, corner = inverse[:-1, :-1], inverse[:-1, -1], inverse[-1, -1]
    found = np.empty(features.shape[0])
    for first in range(0, found.size, _BLOCK):
        some = slice(first, first + _BLOCK)
        X = features[some]
        product = X @ inner
        squares = X.multiply(product).sum(axis=1) if sparse.issparse(X) else (X * product).sum(1)
        found[some] = np.asarray(squares).ravel() + 2.0 * (X @ border) + corner
    return found
