r"""Influence of single rows: leave-one-out losses, and the variance of rate gradients.

Both come from one Newton step. A fit that minimises
:math:`\sum_k \lambda_k l_k + \frac{\lambda}{2} |\theta|^2` has the Hessian H.

1. Let row i of client k have the weight :math:`c = \lambda_k / n_k`. When the model is fitted
   without this row, the logit of the row is

   .. math:: z_i + \frac{c\, s_i h_i}{1 - c\, b_i h_i}, \qquad h_i = x_i^T H^{-1} x_i

   with s and b the first and second derivative of the row's loss.
2. A fit with multiplier :math:`\nu` on a rate adapts to the noise in its training rows. On held-out
   rows the rate differs, to first order, by :math:`\nu \, \mathrm{tr}(H^{-1} C)`, where C is the
   covariance of the gradient of the rate. The server has :math:`\nu` and H; clients send the trace.

Clients send only sums over rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fcfl._types import ClientId, Extra, Matrix, Point, Vector
from fcfl.models.model import smooth_selection, smooth_selection_slope


@dataclass(frozen=True)
class GradientSpread(Extra):
    r"""Request for ``gradient_spread``, :math:`\mathrm{tr}(F^T C F)` of each rate.

    ``factor`` is F with :math:`F F^T = H^{-1}`. :math:`C` is the covariance of the gradients of the
    smooth score over the rows of the rate, divided by their number. Without rows the value is 0.
    """

    factor: Matrix

    @cached_property
    def inverse(self) -> Matrix:
        """Product :math:`F F^T`, cached for all clients of the process."""
        inverse: Matrix = self.factor @ self.factor.T
        return inverse

    def answer(self, rows: Any, point: Point) -> Mapping[str, Matrix]:
        """Return, per rate, the mean squared norm minus the squared norm of the mean, over rows."""
        score = smooth_selection(rows.logits(point.params), rows.cut, point.sharpness)
        slope = smooth_selection_slope(score, point.sharpness)[:, None]
        members, counts = rows.member_counts, np.maximum(rows.group_counts, 1.0)
        squares = rows.slope_squares(point.params, slope**2 * np.abs(members), self)
        sums = rows.pull_back(point.params, slope * members) @ self.factor
        variance = squares / counts - ((sums / counts[:, None]) ** 2).sum(axis=1)
        return {"gradient_spread": np.maximum(variance, 0.0) / counts}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return the shape: one number per rate."""
        return {"gradient_spread": (n_rates,)}


MOST_ROWS = 20_000  # maximum number of distinct rows of a client; more would not change a choice
_LEVERAGE_ROWS = 2_048  # rows per block of products with H^-1


@dataclass(frozen=True)
class LeaveOneOut(Extra):
    """Request for sums of leave-one-out losses over the rows of a client, for several models.

    ``factors[i]`` is F with :math:`F F^T = H^{-1}` of model ``models[i]``. ``weights[client][i]``
    is the weight of the client's loss in this model. The response ``loo_losses`` holds the number
    of rows and the sum for each model. ``loo_products`` holds sums of products of two losses.
    """

    models: tuple[Vector, ...]
    factors: tuple[Matrix, ...]
    weights: Mapping[ClientId, Vector]

    @cached_property
    def inverses(self) -> tuple[Matrix, ...]:
        """Inverse Hessians, cached for all clients of the process."""
        return tuple(factor @ factor.T for factor in self.factors)

    def for_client(self, name: ClientId) -> "LeaveOneOut":
        """Return the request with the weights of one client only."""
        return replace(self, weights={name: self.weights[name]})

    def answer(self, rows: Any, point: Point) -> Mapping[str, Matrix]:
        """Return the sums over rows, or over every n-th row if there are more than `MOST_ROWS`."""
        all_rows = np.arange(rows.row_counts.size)
        kept = all_rows[:: max(-(-all_rows.size // MOST_ROWS), 1)]
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
                second = rows.loss.bends(logits, np.ones(kept.size), y)
                without = logits + slope * leverage / np.maximum(1.0 - second * leverage, 1e-6)
                part = slice(0, kept.size) if label == 0.0 else slice(kept.size, None)
                losses[part, place] = rows.loss.each(without, y)
        times = np.concatenate([counts - positives, positives])
        return {
            "loo_losses": np.append(times.sum(), times @ losses),
            "loo_products": losses.T @ (times[:, None] * losses),
        }

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes: the number of rows and one sum per model; one sum per pair."""
        n = len(self.models)
        return {"loo_losses": (n + 1,), "loo_products": (n, n)}


def _leverages(features: Any, inverse: Matrix) -> Vector:
    """Return :math:`x^T H^{-1} x` of each row, with a 1 for the intercept appended."""
    inner, border, corner = inverse[:-1, :-1], inverse[:-1, -1], inverse[-1, -1]
    found = np.empty(features.shape[0])
    for first in range(0, found.size, _LEVERAGE_ROWS):
        some = slice(first, first + _LEVERAGE_ROWS)
        X = features[some]
        product = X @ inner
        squares = X.multiply(product).sum(axis=1) if sparse.issparse(X) else (X * product).sum(1)
        found[some] = np.asarray(squares).ravel() + 2.0 * (X @ border) + corner
    return found
