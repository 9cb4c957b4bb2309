r"""How much the gradients of rates vary from row to row: what says how far rates drift on new rows.

A fit that holds a rate by weight :math:`\nu` moves along the noise of its own rows. On new rows the
rate differs, to first order, by :math:`\nu \, \mathrm{tr}(H^{-1} C)` with H the Hessian of the
objective and C the covariance of the rate's gradient. The server knows :math:`\nu` and H; the trace
is asked of the clients, and is one number for each rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fcfl._types import Extra, Matrix, Point, Vector
from fcfl.models.rates import smooth_selection, smooth_selection_slope


class SlopedRows(Protocol):
    """Rows whose logits have gradients: sums of them, and of their squared lengths under F."""

    @property
    def member_counts(self) -> Matrix: ...  # noqa: D102
    @property
    def group_counts(self) -> Vector: ...  # noqa: D102
    @property
    def cut(self) -> float: ...  # noqa: D102
    def logits(self, params: Vector) -> Vector: ...  # noqa: D102
    def pull_back(self, params: Vector, residuals: Matrix) -> Matrix: ...  # noqa: D102
    def slope_squares(  # noqa: D102
        self, params: Vector, weights: Matrix, spread: "GradientSpread"
    ) -> Vector: ...


@dataclass(frozen=True)
class GradientSpread(Extra):
    r"""``gradient_spread``: for each rate :math:`\mathrm{tr}(F^T C F)`, 0 for a group without rows.

    ``factor`` is F, with :math:`F F^T = H^{-1}`; :math:`C` is the covariance of the gradients of
    the smooth score over the rows behind the rate, divided by their number.
    """

    factor: Matrix

    @cached_property
    def inverse(self) -> Matrix:
        """:math:`F F^T`, made once for all clients of a process."""
        inverse: Matrix = self.factor @ self.factor.T
        return inverse

    def answer(self, rows: SlopedRows, point: Point) -> Mapping[str, Matrix]:
        """One number per rate: the mean of squared lengths, less the squared length of the mean."""
        score = smooth_selection(rows.logits(point.params), rows.cut, point.sharpness)
        slope = smooth_selection_slope(score, point.sharpness)[:, None]
        members, counts = rows.member_counts, np.maximum(rows.group_counts, 1.0)
        squares = rows.slope_squares(point.params, slope**2 * members, self)
        sums = rows.pull_back(point.params, slope * members) @ self.factor
        variance = squares / counts - ((sums / counts[:, None]) ** 2).sum(axis=1)
        return {"gradient_spread": np.maximum(variance, 0.0) / counts}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """One number per rate."""
        return {"gradient_spread": (n_rates,)}
