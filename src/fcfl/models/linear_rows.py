"""A client's rows under a linear model: reports in closed form.

One pass over the rows gives loss, rates and all gradients. The objective is the mean loss of the
client's rows; an L2 term is the server's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, cast

import numpy as np
from scipy import sparse

from fcfl._checks import check_curvature_weights
from fcfl._types import ClientId, Matrix, Point, RateId, Report, Vector
from fcfl.data.client_data import ClientData
from fcfl.data.coded_features import CodedFeatures
from fcfl.extras import Items, LocalTraining, seed_of_rows, train_locally
from fcfl.models.compiled import kernels, run_all
from fcfl.models.curvature_sum import CurvatureSum
from fcfl.models.influence import GradientSpread
from fcfl.models.loss import CROSS_ENTROPY, CrossEntropy, Loss
from fcfl.models.rates import (
    confusion_of,
    rate_members,
    selection_score,
    smooth_selection_bend,
    smooth_selection_slope,
)
from fcfl.models.row_products import (
    CodedRows,
    RowProducts,
    all_logits,
    compact,
    merge_rows,
    products_of,
    pull_back_all,
)

_NONE = np.zeros(0)


@dataclass(frozen=True)
class LinearRows:
    """A client's rows with, for each, how many rows of which kind it stands for.

    ``row_counts`` and ``positive_counts`` have one entry per distinct row, ``members`` one line
    per rate with one entry per distinct row. Build it with `linear_rows`.
    """

    name: ClientId
    products: RowProducts = field(repr=False)
    row_counts: Vector
    positive_counts: Vector
    members: Matrix
    n_rows: float
    group_counts: Vector
    original_features: Any = field(repr=False)
    loss: Loss = CROSS_ENTROPY
    cut: float = 0.0  # as that of the model

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return int(self.products.X.shape[1]) + 1

    @property
    def member_counts(self) -> Matrix:
        """The rows behind each rate, one column per rate."""
        return self.members.T

    @property
    def features(self) -> Any:
        """The distinct rows, as an ndarray or a csr_array."""
        X = self.products.X
        return X.tocsr() if isinstance(X, CodedFeatures) else X

    def with_groups_of(self, least: float) -> "LinearRows":
        """The same rows, in which a group of fewer than ``least`` rows has none."""
        kept = self.group_counts >= least
        if kept.all():
            return self
        return replace(
            self,
            members=self.members * kept[:, None],
            group_counts=np.where(kept, self.group_counts, 0.0),
        )

    def logits(self, params: Vector) -> Vector:
        """The logit of each distinct row."""
        return all_logits(self.products, params)

    def slope_squares(self, params: Vector, weights: Matrix, spread: GradientSpread) -> Vector:
        """Weighted sums of ``|factor.T @ x|**2`` over distinct rows, one per column of weights."""
        # One Gram matrix a column, instead of a pass a direction.
        return np.array([np.vdot(self.products.gramian(w), spread.inverse) for w in weights.T])

    def report(self, point: Point) -> Report:
        """Loss and smooth rates at ``point``, with gradients and whatever else it wants."""
        report, diagonal = self._report(point)
        if diagonal is None:
            return report
        return replace(report, curvature=self.products.gramian(diagonal))

    def report_into(self, point: Point, total: CurvatureSum) -> Report:
        """The same, the curvature added to that of others instead of in the report."""
        report, diagonal = self._report(point)
        if diagonal is not None:
            self.products.add_gramian(diagonal, total)
        return report

    @cached_property
    def _divisors(self) -> Vector:
        return np.where(self.group_counts > 0, self.group_counts, 1.0)

    def _report(self, point: Point) -> tuple[Report, Vector | None]:
        """The report without curvature, and the diagonal between the rows that makes it."""
        divisors, bends = self._divisors, None
        if point.want == "curvature":
            weights = check_curvature_weights(self.name, point)
            bends = _Bends(weights.loss / self.n_rows, weights.rates / divisors, self._empty())
        sums = self._sum_blocks(point, bends)
        extras = {k: v for extra in point.extras for k, v in extra.answer(self, point).items()}
        loss_grad = rate_grads = None
        if sums.gradients is not None:
            loss_grad = sums.gradients[0] / self.n_rows
            rate_grads = sums.gradients[1:] / divisors[:, None]
        rates = np.minimum(np.maximum(sums.scores / divisors, 0.0), 1.0)
        loss = sums.loss / self.n_rows
        report = Report(
            self.n_rows, loss, self.group_counts, rates, loss_grad, rate_grads, extras=extras
        )
        if point.want == "decisions":
            selected = selection_score(self.logits(point.params), point, self.cut)
            confusion = confusion_of(selected, self.row_counts, self.positive_counts)
            report = replace(report, confusion=confusion)
        return report, None if bends is None else bends.diagonal

    def _empty(self) -> Vector:
        return np.empty(self.row_counts.size)

    def _sum_blocks(self, point: Point, bends: "_Bends | None") -> "_Sums":
        """What is summed over rows, block by block on all cores, and then in order."""
        n_blocks = len(self.products.blocks)
        compiled = self._kernels_for(point)
        prepared = self.products.prepare(point.params) if compiled is None else _NONE
        parts: list[_Sums | None] = [None] * n_blocks

        def evaluate(block: int) -> None:
            if compiled is None:
                parts[block] = self._block(block, prepared, point, bends)
            else:
                parts[block] = self._compiled_block(compiled, block, point, bends)

        run_all(evaluate, range(n_blocks))
        return reduce(_Sums.plus, (part for part in parts if part is not None))

    def _block(self, block: int, prepared: Vector, point: Point, bends: "_Bends | None") -> "_Sums":
        """Sums over the rows of a block; its part of the curvature's diagonal is put in place."""
        rows = self.products.blocks[block]
        counts, positives = self.row_counts[rows], self.positive_counts[rows]
        members = self.members[:, rows]
        logits = self.products.logits(block, prepared)
        score = selection_score(logits, point, self.cut)
        loss = self.loss.total(logits, counts, positives)
        scores = np.einsum("ji,i->j", members, score)  # BLAS rounds by the number of its threads
        if not point.wants_gradients:
            return _Sums(loss, scores)
        residuals = np.empty((score.size, 1 + scores.size))  # as sparse products take them
        residuals[:, 0] = self.loss.slopes(logits, counts, positives)
        slope = smooth_selection_slope(score, point.sharpness)
        for j, member in enumerate(members, 1):
            np.multiply(member, slope, out=residuals[:, j])
        if bends is not None:
            diagonal = self.loss.bends(logits, bends.loss * counts, bends.loss * positives)
            bend = smooth_selection_bend(score, point.sharpness)
            diagonal += bend * np.einsum("ji,j->i", members, bends.rates)
            bends.diagonal[rows] = diagonal
        return _Sums(loss, scores, self.products.pull_back(block, residuals))

    def _kernels_for(self, point: Point) -> Any:
        """The compiled kernels where they do all of a block in one pass: codes, cross-entropy."""
        is_coded = isinstance(self.products, CodedRows) and self.products.codes.size > 0
        is_smooth = type(self.loss) is CrossEntropy and point.want != "decisions"
        return kernels() if is_coded and is_smooth else None

    def _compiled_block(
        self, compiled: Any, block: int, point: Point, bends: "_Bends | None"
    ) -> "_Sums":
        """The same as `_block`, by the compiled kernel."""
        products, rows = cast(CodedRows, self.products), self.products.blocks[block]
        fused, sums = products.fused, np.zeros(1 + self.members.shape[0])
        gradients, weights, diagonal = _NONE, _NONE, _NONE
        if point.wants_gradients:
            gradients = np.zeros((sums.size, self.n_params))
        if bends is not None:
            weights, diagonal = np.append(bends.loss, bends.rates), bends.diagonal
        params = np.require(point.params, np.float64, ["C", "A"])
        compiled.report(
            rows.start, rows.stop, products.codes.shape[1], fused.n_first, point.sharpness,
            self.cut, products.codes, fused.ends, fused.set_features, products.numbers,
            fused.number_features, params, self.row_counts, self.positive_counts, self.members,
            weights, sums, gradients, diagonal,
        )  # fmt: skip
        return _Sums(float(sums[0]), sums[1:], gradients if point.wants_gradients else None)

    def pull_back(self, params: Vector, residuals: Matrix) -> Matrix:
        """Gradients of ``residuals.T @ logits``, one row per column of ``residuals``."""
        return pull_back_all(self.products, residuals)  # linear: the same at all parameters

    def train_locally(self, params: Vector, training: LocalTraining) -> Vector:
        """Steps on items: each distinct row once with label 0 and once with label 1."""
        n_distinct = self.row_counts.size
        counts = np.concatenate([self.row_counts - self.positive_counts, self.positive_counts])
        there = np.flatnonzero(counts > 0)

        def summed_gradient(params: Vector, items: Items | None) -> Any:
            if items is None:
                pull = self.loss.slopes(self.logits(params), self.row_counts, self.positive_counts)
                return pull_back_all(self.products, pull[:, None])[0]
            label, place = np.divmod(there[items], n_distinct)
            batch = products_of(self.products.X[place])
            slopes = self.loss.slope_each(all_logits(batch, params), label)
            pull = counts[there[items]] * slopes
            return pull_back_all(batch, pull[:, None])[0]

        own_seed = lambda: self._own_seed  # noqa: E731 - a pass over the rows
        return train_locally(params, training, own_seed, counts[there], summed_gradient)

    @cached_property
    def _own_seed(self) -> int:
        X = self.features
        content = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
        return seed_of_rows((*content, self.row_counts, self.positive_counts))


@dataclass(frozen=True)
class _Sums:
    """Sums over rows: losses, scores behind each rate, and the gradients of both."""

    loss: float
    scores: Vector
    gradients: Matrix | None = None

    def plus(self, other: "_Sums") -> "_Sums":
        gradients = self.gradients
        if gradients is not None and other.gradients is not None:
            gradients = gradients + other.gradients
        return _Sums(self.loss + other.loss, self.scores + other.scores, gradients)


@dataclass(frozen=True)
class _Bends:
    r"""Second derivatives of :math:`\lambda l + \sum_q w_q r_q` with respect to each row's logit.

    ``loss`` and ``rates`` are the weights of one row's loss and scores, ``diagonal`` where the
    result is put.
    """

    loss: float
    rates: Vector
    diagonal: Vector


def linear_rows(
    client: ClientId,
    data: ClientData,
    rates: Sequence[RateId],
    loss: Loss = CROSS_ENTROPY,
    cut: float = 0.0,
) -> LinearRows:
    """Count, by weight, what each row stands for; identical rows are merged where it pays."""
    if data.n_rows == 0:
        raise ValueError(f"Client {client!r} has no training rows.")
    facts = np.column_stack([np.ones(data.n_rows), data.y, rate_members(data, rates, client)])
    if data.weights is not None:
        facts *= data.weights[:, None]
    X, counts = merge_rows(compact(data.X), facts)
    return LinearRows(
        name=client,
        products=products_of(X),
        row_counts=np.ascontiguousarray(counts[:, 0]),
        positive_counts=np.ascontiguousarray(counts[:, 1]),
        members=np.ascontiguousarray(counts[:, 2:].T),
        n_rows=float(facts[:, 0].sum()),
        group_counts=facts[:, 2:].sum(axis=0),
        original_features=data.X,
        loss=loss,
        cut=cut,
    )
