"""Reports of a linear model in closed form: one pass gives loss, rates and all gradients.

Parameters are the feature weights followed by the intercept. The objective is the mean
cross-entropy of the client's rows; an L2 term is the server's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

from fcfl._checks import check_curvature_weights
from fcfl._types import (
    ClientId,
    CurvatureWeights,
    KernelQuestion,
    LocalTraining,
    Matrix,
    Point,
    RateId,
    Report,
    Vector,
)
from fcfl.data.client_data import ClientData
from fcfl.models.kernel_sums import gaussian_kernel, kernel_sums
from fcfl.models.local_training import Items, set_weights_of, train_locally
from fcfl.models.merge import distinct_rows, sum_by_row
from fcfl.models.rates import (
    rate_members,
    smooth_selection,
    smooth_selection_bend,
    smooth_selection_slope,
)


def linear_logits(X: Any, params: Vector) -> Vector:
    """Logits :math:`z = X w + b` for ``params = [w, b]``."""
    logits: Vector = X @ params[:-1] + params[-1]
    return logits


@dataclass(frozen=True, slots=True)
class LinearClient:
    """A client's distinct rows with, for each, how many rows of which kind it stands for.

    ``row_counts`` and ``positive_counts`` have one entry per distinct row, ``member_counts`` one
    column per rate. Build it with `linear_client`.
    """

    name: ClientId
    X: Any
    X_transposed: Any
    row_counts: Vector
    positive_counts: Vector
    member_counts: Matrix
    n_rows: float
    group_counts: Vector

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return int(self.X.shape[1]) + 1

    def report(self, point: Point) -> Report:
        """Loss and smooth rates at ``point``, with gradients and whatever else it wants."""
        logits = linear_logits(self.X, point.params)
        score = smooth_selection(logits)
        loss = self.row_counts @ np.logaddexp(0.0, logits) - self.positive_counts @ logits
        group_counts = np.where(self.group_counts > 0, self.group_counts, 1.0)
        rates = np.clip((score @ self.member_counts) / group_counts, 0.0, 1.0)
        values = Report(self.n_rows, float(loss / self.n_rows), self.group_counts, rates)
        if point.local is not None:
            values = replace(values, local_params=self._train(point.params, point.local))
        if point.set_losses:
            values = replace(values, set_losses=self._set_losses(logits, group_counts))
        if point.kernel is not None:
            values = self._with_kernel(values, point, point.kernel, logits)
        if point.want == "values":
            return values
        probability = expit(logits)
        gradients = self._pull_back(self._residuals(probability, score, group_counts))
        curvature = None
        if point.want == "curvature":
            weights = check_curvature_weights(self.name, point)
            curvature = self._curvature(weights, probability, score, group_counts)
        return replace(
            values, loss_grad=gradients[0], rate_grads=gradients[1:], curvature=curvature
        )

    def _residuals(self, probability: Vector, score: Vector, group_counts: Vector) -> Matrix:
        """Derivatives with respect to each distinct row's logit: of the loss, then of each rate."""
        residuals = np.empty((score.size, 1 + group_counts.size))
        residuals[:, 0] = (self.row_counts * probability - self.positive_counts) / self.n_rows
        slope = smooth_selection_slope(score)
        np.multiply(self.member_counts, slope[:, None], out=residuals[:, 1:])
        residuals[:, 1:] /= group_counts
        return residuals

    def _pull_back(self, residuals: Matrix) -> Matrix:
        """Gradients with respect to the parameters, one row per column of ``residuals``."""
        gradients = np.empty((residuals.shape[1], self.n_params))
        gradients[:, :-1] = (self.X_transposed @ residuals).T
        gradients[:, -1] = residuals.sum(axis=0)
        return gradients

    def _train(self, start: Vector, training: LocalTraining) -> Vector:
        """Steps on items: each distinct row once with label 0 and once with label 1."""
        n_distinct = self.row_counts.size
        added = set_weights_of(training, self.name, self.group_counts.size) @ self.member_counts.T
        counts = np.concatenate([self.row_counts - self.positive_counts, self.positive_counts])
        weights = counts + added.ravel()
        totals, positives = weights.reshape(2, -1).sum(axis=0), weights[n_distinct:]
        there = np.flatnonzero(counts > 0)

        def summed_gradient(params: Vector, items: Items | None) -> Vector:
            if items is None:
                pull = totals * expit(linear_logits(self.X, params)) - positives
                whole: Vector = self._pull_back(pull[:, None])[0]
                return whole
            label, place = np.divmod(there[items], n_distinct)
            X = self.X[place]
            pull = weights[there[items]] * (expit(linear_logits(X, params)) - label)
            gradient: Vector = np.append(X.T @ pull, pull.sum())
            return gradient

        return train_locally(start, training, self.name, counts[there], summed_gradient)

    def _set_losses(self, logits: Vector, group_counts: Vector) -> Matrix:
        """Mean loss of each set's rows if their label were 0, and if it were 1."""
        losses = np.array([np.logaddexp(0.0, logits), np.logaddexp(0.0, -logits)])
        means: Matrix = (losses @ self.member_counts) / group_counts
        return means

    def _with_kernel(
        self, report: Report, point: Point, question: KernelQuestion, logits: Vector
    ) -> Report:
        """The report with sums by reference point, and gradients of the weighted sums."""
        kernel = gaussian_kernel(self.X, question.references, question.bandwidth)
        losses = self.row_counts * np.logaddexp(0.0, logits) - self.positive_counts * logits
        sets = list(question.sets)
        centred = self.member_counts[:, sets] - self.row_counts[:, None] * question.centres
        sums = kernel_sums(kernel, self.row_counts, losses, centred, logits)
        if point.want == "values":
            return replace(report, kernel_sums=sums)
        pulls = np.column_stack([self.row_counts * expit(logits) - self.positive_counts, centred])
        grads = self._pull_back(pulls * (kernel @ question.weights)[:, None])
        return replace(report, kernel_sums=sums, kernel_grads=grads)

    def _curvature(
        self, weights: CurvatureWeights, probability: Vector, score: Vector, group_counts: Vector
    ) -> Matrix:
        r"""Hessian of :math:`\lambda l + \sum_q w_q r_q`, which is :math:`X^T D X`."""
        diagonal = (weights.loss / self.n_rows) * self.row_counts * probability * (1 - probability)
        net_weights = self.member_counts @ (weights.rates / group_counts)
        diagonal += smooth_selection_bend(score) * net_weights
        curvature = np.empty((self.n_params, self.n_params))
        curvature[:-1, :-1] = _weighted_gramian(self.X, self.X_transposed, diagonal)
        curvature[:-1, -1] = curvature[-1, :-1] = self.X_transposed @ diagonal
        curvature[-1, -1] = diagonal.sum()
        return curvature


def _weighted_gramian(X: Any, X_transposed: Any, diagonal: Vector) -> Matrix:
    """``X.T @ diag(diagonal) @ X``, dense."""
    if not sparse.issparse(X):
        product: Matrix = X_transposed @ (X * diagonal[:, None])
        return product
    scaled = X.copy()
    scaled.data = X.data * np.repeat(diagonal, np.diff(X.indptr))
    gramian: Matrix = (X_transposed @ scaled).toarray()
    return gramian


def linear_client(name: ClientId, data: ClientData, rates: Sequence[RateId]) -> LinearClient:
    """Merge the identical rows of ``data`` and count, by weight, what each of them stands for."""
    if data.n_rows == 0:
        raise ValueError(f"Client {name!r} has no training rows.")
    representatives, which = distinct_rows(data.X)
    facts = np.column_stack([np.ones(data.n_rows), data.y, rate_members(data, rates)])
    if data.weights is not None:
        facts *= data.weights[:, None]
    counts = sum_by_row(facts, which, representatives.size)
    X = data.X[representatives]
    transposed = X.T.tocsr() if sparse.issparse(X) else np.ascontiguousarray(X.T)
    return LinearClient(
        name=name,
        X=X,
        X_transposed=transposed,
        row_counts=np.ascontiguousarray(counts[:, 0]),
        positive_counts=np.ascontiguousarray(counts[:, 1]),
        member_counts=np.ascontiguousarray(counts[:, 2:]),
        n_rows=float(facts[:, 0].sum()),
        group_counts=facts[:, 2:].sum(axis=0),
    )
