"""A linear model, with reports in closed form: one pass gives loss, rates and all gradients.

Parameters are the feature weights followed by the intercept. The objective is the mean loss of the
client's rows; an L2 term is the server's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from scipy import sparse

from fcfl._checks import check_curvature_weights
from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, RateId, Report, Vector
from fcfl.data.client_data import ClientData
from fcfl.extras import Items, LocalTraining, set_weights_of, train_locally
from fcfl.models.loss import CROSS_ENTROPY, Loss
from fcfl.models.merge import distinct_rows, sum_by_row
from fcfl.models.rates import (
    rate_members,
    smooth_selection,
    smooth_selection_bend,
    smooth_selection_slope,
)

M = TypeVar("M")


@dataclass(frozen=True)
class Linear:
    """Logits :math:`z = X w + b`.

    ``first`` says where training starts: at zero, where every group is treated alike, or
    uniformly at random by ``seed``, as a linear layer customarily does.
    """

    n_features: int
    first: Literal["zero", "uniform"] = "zero"
    seed: int = 0
    loss: Loss = CROSS_ENTROPY
    default_l2: ClassVar[float | None] = None

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return self.n_features + 1

    def neutral_start(self) -> Vector:
        """Zero, where every group is treated alike."""
        return np.zeros(self.n_params)

    def start(self) -> Vector:
        """The first parameters."""
        if self.first == "zero":
            return np.zeros(self.n_params)
        spread = 1.0 / np.sqrt(max(self.n_features, 1))
        return np.random.default_rng(self.seed).uniform(-spread, spread, self.n_params)

    def rows(self, client: ClientId, data: ClientData, rates: Sequence[RateId]) -> "LinearRows":
        """A client's rows, ready to be reported on."""
        return linear_rows(client, data, rates, self.loss)

    def logits(self, params: Vector, X: Any) -> Vector:
        """The logit of each row of ``X``."""
        return linear_logits(X, params)

    def adapt_method(self, method: M) -> M:
        """A linear model can afford whatever a method asks by default."""
        return method


def linear_logits(X: Any, params: Vector) -> Vector:
    """Logits :math:`z = X w + b` for ``params = [w, b]``."""
    logits: Vector = X @ params[:-1] + params[-1]
    return logits


@dataclass(frozen=True)
class LinearRows:
    """A client's distinct rows with, for each, how many rows of which kind it stands for.

    ``row_counts`` and ``positive_counts`` have one entry per distinct row, ``member_counts`` one
    column per rate. Build it with `linear_rows`.
    """

    name: ClientId
    features: Any
    transposed: Any
    row_counts: Vector
    positive_counts: Vector
    member_counts: Matrix
    n_rows: float
    group_counts: Vector
    original_features: Any = field(repr=False)
    loss: Loss = CROSS_ENTROPY

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return int(self.features.shape[1]) + 1

    def with_groups_of(self, least: float) -> "LinearRows":
        """The same rows, in which a group of fewer than ``least`` rows has none."""
        kept = self.group_counts >= least
        if kept.all():
            return self
        return replace(
            self,
            member_counts=self.member_counts * kept,
            group_counts=np.where(kept, self.group_counts, 0.0),
        )

    def logits(self, params: Vector) -> Vector:
        """The logit of each distinct row."""
        return linear_logits(self.features, params)

    def report(self, point: Point) -> Report:
        """Loss and smooth rates at ``point``, with gradients and whatever else it wants."""
        logits = self.logits(point.params)
        score = smooth_selection(logits)
        loss = self.loss.total(logits, self.row_counts, self.positive_counts)
        group_counts = np.where(self.group_counts > 0, self.group_counts, 1.0)
        rates = np.clip((score @ self.member_counts) / group_counts, 0.0, 1.0)
        extras = {k: v for extra in point.extras for k, v in extra.answer(self, point).items()}
        report = Report(self.n_rows, loss / self.n_rows, self.group_counts, rates, extras=extras)
        if point.want == "values":
            return report
        gradients = self._pull_back(self._residuals(logits, score, group_counts))
        curvature = None
        if point.want == "curvature":
            weights = check_curvature_weights(self.name, point)
            curvature = self._curvature(weights, logits, score, group_counts)
        return replace(
            report, loss_grad=gradients[0], rate_grads=gradients[1:], curvature=curvature
        )

    def pull_back(self, params: Vector, residuals: Matrix) -> Matrix:
        """Gradients of ``residuals.T @ logits``, one row per column of ``residuals``."""
        return self._pull_back(residuals)  # linear: the same at all parameters

    def _pull_back(self, residuals: Matrix) -> Matrix:
        gradients = np.empty((residuals.shape[1], self.n_params))
        gradients[:, :-1] = (self.transposed @ residuals).T
        gradients[:, -1] = residuals.sum(axis=0)
        return gradients

    def _residuals(self, logits: Vector, score: Vector, group_counts: Vector) -> Matrix:
        """Derivatives with respect to each distinct row's logit: of the loss, then of each rate."""
        residuals = np.empty((score.size, 1 + group_counts.size))
        slopes = self.loss.slopes(logits, self.row_counts, self.positive_counts)
        residuals[:, 0] = slopes / self.n_rows
        slope = smooth_selection_slope(score)
        np.multiply(self.member_counts, slope[:, None], out=residuals[:, 1:])
        residuals[:, 1:] /= group_counts
        return residuals

    def train_locally(self, params: Vector, training: LocalTraining) -> Vector:
        """Steps on items: each distinct row once with label 0 and once with label 1."""
        n_distinct = self.row_counts.size
        added = set_weights_of(training, self.name, self.group_counts.size) @ self.member_counts.T
        counts = np.concatenate([self.row_counts - self.positive_counts, self.positive_counts])
        weights = counts + added.ravel()
        totals, positives = weights.reshape(2, -1).sum(axis=0), weights[n_distinct:]
        there = np.flatnonzero(counts > 0)

        def summed_gradient(params: Vector, items: Items | None) -> Vector:
            if items is None:
                pull = self.loss.slopes(self.logits(params), totals, positives)
                whole: Vector = self._pull_back(pull[:, None])[0]
                return whole
            label, place = np.divmod(there[items], n_distinct)
            X = self.features[place]
            pull = weights[there[items]] * self.loss.slope_each(linear_logits(X, params), label)
            gradient: Vector = np.append(X.T @ pull, pull.sum())
            return gradient

        return train_locally(params, training, self.name, counts[there], summed_gradient)

    def _curvature(
        self, weights: CurvatureWeights, logits: Vector, score: Vector, group_counts: Vector
    ) -> Matrix:
        r"""Hessian of :math:`\lambda l + \sum_q w_q r_q`, which is :math:`X^T D X`."""
        weight = weights.loss / self.n_rows
        diagonal = self.loss.bends(logits, weight * self.row_counts, weight * self.positive_counts)
        net_weights = self.member_counts @ (weights.rates / group_counts)
        diagonal += smooth_selection_bend(score) * net_weights
        curvature = np.empty((self.n_params, self.n_params))
        curvature[:-1, :-1] = _weighted_gramian(self.features, self.transposed, diagonal)
        curvature[:-1, -1] = curvature[-1, :-1] = self.transposed @ diagonal
        curvature[-1, -1] = diagonal.sum()
        return curvature


def _weighted_gramian(X: Any, transposed: Any, diagonal: Vector) -> Matrix:
    """``X.T @ diag(diagonal) @ X``, dense."""
    if not sparse.issparse(X):
        product: Matrix = transposed @ (X * diagonal[:, None])
        return product
    scaled = X.copy()
    scaled.data = X.data * np.repeat(diagonal, np.diff(X.indptr))
    gramian: Matrix = (transposed @ scaled).toarray()
    return gramian


def linear_rows(
    client: ClientId, data: ClientData, rates: Sequence[RateId], loss: Loss = CROSS_ENTROPY
) -> LinearRows:
    """Merge the identical rows of ``data`` and count, by weight, what each of them stands for."""
    if data.n_rows == 0:
        raise ValueError(f"Client {client!r} has no training rows.")
    representatives, which = distinct_rows(data.X)
    facts = np.column_stack([np.ones(data.n_rows), data.y, rate_members(data, rates, client)])
    if data.weights is not None:
        facts *= data.weights[:, None]
    counts = sum_by_row(facts, which, representatives.size)
    X = data.X[representatives]
    transposed = X.T.tocsr() if sparse.issparse(X) else np.ascontiguousarray(X.T)
    return LinearRows(
        name=client,
        features=X,
        transposed=transposed,
        row_counts=np.ascontiguousarray(counts[:, 0]),
        positive_counts=np.ascontiguousarray(counts[:, 1]),
        member_counts=np.ascontiguousarray(counts[:, 2:]),
        n_rows=float(facts[:, 0].sum()),
        group_counts=facts[:, 2:].sum(axis=0),
        original_features=data.X,
        loss=loss,
    )
