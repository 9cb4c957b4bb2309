"""Reports on the rows of a client under a linear model, in closed form.

One pass over the rows computes loss, rates and all gradients. The loss is the mean over the rows of
the client. The server adds the L2 term.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._checks import check_curvature_weights
from fcfl._types import ClientId, Matrix, Point, RateId, Report, Vector
from fcfl.data.client_data import (
    ClientData,
    CodedFeatures,
    coded_from_csr,
    csr_rows,
    row_blocks,
    transposed,
)
from fcfl.extras import Items, LocalTraining, seed_of_rows, train_locally
from fcfl.models.influence import GradientSpread
from fcfl.models.kernels import CurvatureSum, FusedColumns, fuse, kernels, run_all
from fcfl.models.loss import CROSS_ENTROPY, CrossEntropy, Loss
from fcfl.models.model import (
    confusion_of,
    rate_members,
    rows_behind,
    score_of_none,
    selection_score,
    smooth_selection_bend,
    smooth_selection_slope,
)

_LEAST_SAVED = 0.1  # minimum share of rows saved; merging costs about as much as two reports

Keys = NDArray[Any]
"""One key per row. Equal rows have equal keys; different rows rarely do."""


def merge_rows(X: Any, facts: Matrix) -> tuple[Any, Matrix]:
    """Return distinct rows with the sums of their facts, or all rows unchanged if few are equal."""
    keys = row_keys(X)
    n_keys = 1 + np.count_nonzero(np.diff(np.sort(keys[:, 0])))
    if n_keys > (1 - _LEAST_SAVED) * X.shape[0]:
        return X, facts
    representatives, which = distinct_rows(X, keys)
    return X[representatives], sum_by_row(facts, which, representatives.size)


def row_keys(X: Any) -> Keys:
    """Return keys of rows: two random projections, or for codes a wrapped sum of random numbers."""
    rng = np.random.default_rng(0)
    if isinstance(X, CodedFeatures):
        return _keys_of_codes(X, rng)
    directions = rng.standard_normal((X.shape[1], 2))
    # Rounding in BLAS depends on the position of a row; rounding in einsum does not.
    keys: Keys = X @ directions if sparse.issparse(X) else np.einsum("ij,jk->ik", X, directions)
    return keys


def _keys_of_codes(X: CodedFeatures, rng: np.random.Generator) -> Keys:
    of_slot = rng.integers(0, 1 << 64, X.layout.n_slots, dtype=np.uint64)
    keys = np.zeros(X.shape[0], dtype=np.uint64)
    for column in X.slots.T:
        keys += of_slot[column]
    for values in X.numbers.T:
        bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # adding 0 removes negative zeros
        keys += (bits ^ (bits >> 29)) * (rng.integers(0, 1 << 64, dtype=np.uint64) | np.uint64(1))
    return keys[:, None]


def distinct_rows(X: Any, keys: Keys | None = None) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the position of one row per distinct row, and the distinct row that each row equals.

    Rows are sorted by key, and adjacent rows with equal keys are compared entry by entry, so that
    different rows are never merged. Equal rows may stay separate if a different row with the same
    key is between them. This costs time but does not change reports.
    """
    n_rows = X.shape[0]
    if n_rows == 0:
        nothing = np.zeros(0, dtype=np.intp)
        return nothing, nothing
    if sparse.issparse(X):
        X = X.sorted_indices()
        X.eliminate_zeros()
    keys = row_keys(X) if keys is None else keys
    order = np.lexsort(keys.T)
    fresh = np.ones(n_rows, dtype=bool)
    alike = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]).all(axis=1)) + 1
    fresh[alike] = _differ(X[order[alike]], X[order[alike - 1]])
    which = np.empty(n_rows, dtype=np.intp)
    which[order] = np.cumsum(fresh) - 1
    return order[fresh], which


def _differ(left: Any, right: Any) -> NDArray[np.bool_]:
    """Return whether any entry differs, for each pair of rows."""
    if isinstance(left, CodedFeatures):
        codes: NDArray[np.bool_] = (left.slots != right.slots).any(axis=1)
        codes |= (left.numbers != right.numbers).any(axis=1)
        return codes
    if not sparse.issparse(left):
        different: NDArray[np.bool_] = (left != right).any(axis=1)
        return different
    entries = abs(left - right).sum(axis=1)
    return np.asarray(entries).ravel() > 0


def sum_by_row(values: Matrix, which: NDArray[np.intp], n_distinct: int) -> Matrix:
    """Return the sums of ``values`` over the rows equal to each distinct row."""
    sums = [np.bincount(which, column, n_distinct) for column in values.T]
    return np.stack(sums, axis=1) if sums else np.zeros((n_distinct, 0))


_BLOCK_ROWS = 8_192  # rows per block, so that temporary arrays fit in the cache
_PER_PARAMETER = 4  # minimum rows of a block per parameter, because blocks also sum gradients
_FUSED_ROWS, _ROWS_PER_CODE, _MOST_CODES = 2_048, 16, 512  # limits on tables of codes
_DENSE_ENTRIES = 1 << 21  # maximum number of entries of a scaled copy of dense rows
_THIN = 0.25  # an array with a smaller share of nonzero entries may be one-hot


def compact(X: Any) -> Any:
    """Convert one-hot rows, in a sparse matrix or an array, to codes; return others unchanged."""
    if sparse.issparse(X):
        return coded_from_csr(X) or X
    if isinstance(X, np.ndarray) and X.size and np.count_nonzero(X) < _THIN * X.size:
        return coded_from_csr(sparse.csr_array(X)) or X
    return X


class RowProducts:
    r"""Products of rows with vectors, and :math:`X^T D X`, for an ndarray, a csr_array or codes.

    Parameters are the feature weights followed by the intercept. Blocks of rows do not depend on
    the number of threads and are summed in order, so that results are bitwise reproducible. The
    compiled kernels use codes (`fused`, `codes`, `numbers`). Other products use NumPy and SciPy.
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        n_rows, n_features = X.shape
        most = max(_BLOCK_ROWS, _PER_PARAMETER * (n_features + 1))
        n_blocks = max(-(-n_rows // most), 1)  # of nearly one size
        self.blocks = tuple(row_blocks(n_rows, max(-(-n_rows // n_blocks), 1)))

    @property
    def matrix(self) -> Any:
        """Rows as an ndarray or a csr_array."""
        return self.X.tocsr() if isinstance(self.X, CodedFeatures) else self.X

    @cached_property
    def _parts(self) -> list[Any]:
        """Views of the rows of each block."""
        view = csr_rows if sparse.issparse(self.X) else (lambda X, rows: X[rows])
        return [view(self.X, rows) for rows in self.blocks]

    @cached_property
    def fused(self) -> FusedColumns:
        """Coded columns, with narrow columns fused unless the number of rows is small."""
        n_rows = self.X.shape[0] // max(len(self.blocks), 1)
        most = min(1 << (n_rows // _ROWS_PER_CODE).bit_length(), _MOST_CODES)
        return fuse(self.X.layout, most if n_rows >= _FUSED_ROWS else 1)

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        """Codes of the parts of `fused`, of shape (rows, parts)."""
        return np.ascontiguousarray(self.fused.codes(self.X.slots), np.int32)

    @cached_property
    def numbers(self) -> Matrix:
        """Features that are numbers."""
        return np.ascontiguousarray(self.X.numbers, np.float64)

    def logits(self, block: int, params: Vector) -> Vector:
        """Return :math:`X w + b` for the rows of a block."""
        logits: Vector = self._parts[block] @ params[:-1]
        logits += params[-1]
        return logits

    def all_logits(self, params: Vector) -> Vector:
        """Return the logits of all rows."""
        logits = np.empty(self.X.shape[0])
        for block, rows in enumerate(self.blocks):
            logits[rows] = self.logits(block, params)
        return logits

    def pull_back(self, block: int, residuals: Matrix) -> Matrix:
        """Return gradients of ``residuals.T @ logits``, one row per column of ``residuals``."""
        part, gradients = self._parts[block], np.empty((residuals.shape[1], self.X.shape[1] + 1))
        if isinstance(part, CodedFeatures):
            layout = part.layout
            gradients[:, :-1] = layout.by_feature(transposed(part.ones()) @ residuals).T
            gradients[:, layout.number_features] = residuals.T @ part.numbers
        elif sparse.issparse(part):
            gradients[:, :-1] = (transposed(part) @ residuals).T
        else:
            np.matmul(residuals.T, part, out=gradients[:, :-1])
        gradients[:, -1] = residuals.sum(axis=0)
        return gradients

    def pull_back_all(self, residuals: Matrix) -> Matrix:
        """Return `pull_back` over all rows."""
        gradients = np.zeros((residuals.shape[1], self.X.shape[1] + 1))
        for block, rows in enumerate(self.blocks):
            gradients += self.pull_back(block, residuals[rows])
        return gradients

    def gramian(self, diagonal: Vector) -> Matrix:
        r"""Return :math:`[X\ 1]^T D\, [X\ 1]` as an ndarray."""
        n_rows, n_features = self.X.shape
        if isinstance(self.X, CodedFeatures) and kernels() is not None:
            total = CurvatureSum(n_features + 1)
            total.add_codes(self.X, diagonal)
            return total.total
        X = self.matrix
        gramian = np.zeros((n_features + 1, n_features + 1))
        if sparse.issparse(X):
            scaled = X.multiply(diagonal[:, None]).tocsr()
            gramian[:-1, :-1] = (X.T @ scaled).toarray()
        else:
            for rows in row_blocks(n_rows, max(_DENSE_ENTRIES // max(n_features, 1), 1)):
                gramian[:-1, :-1] += X[rows].T @ (X[rows] * diagonal[rows, None])
        gramian[:-1, -1] = gramian[-1, :-1] = X.T @ diagonal
        gramian[-1, -1] = diagonal.sum()
        return gramian

    def add_gramian(self, diagonal: Vector, to: CurvatureSum) -> None:
        """Add `gramian` to a sum over clients."""
        if isinstance(self.X, CodedFeatures) and kernels() is not None:
            to.add_codes(self.X, diagonal)
        else:
            to.add(self.gramian(diagonal))


_NONE = np.zeros(0)


@dataclass(frozen=True)
class LinearRows:
    """Distinct rows of a client, with their numbers by label and by rate.

    ``row_counts`` and ``positive_counts`` have one entry per distinct row. ``members`` has shape
    (rates, distinct rows) and holds signs (`ROW_SIGNS`) times numbers of rows.
    ``if_none`` are the sums of row scores with no row selected. Build it with `linear_rows`.
    """

    name: ClientId
    products: RowProducts = field(repr=False)
    row_counts: Vector
    positive_counts: Vector
    members: Matrix
    n_rows: float
    group_counts: Vector
    if_none: Vector
    original_features: Any = field(repr=False)
    loss: Loss = CROSS_ENTROPY
    cut: float = 0.0  # as that of the model

    @property
    def n_params(self) -> int:
        """Number of parameters: feature weights and one intercept."""
        return int(self.products.X.shape[1]) + 1

    @property
    def member_counts(self) -> Matrix:
        """Transpose of ``members``: signed numbers of rows, one column per rate."""
        return self.members.T

    @property
    def features(self) -> Any:
        """Distinct rows, as an ndarray or a csr_array."""
        return self.products.matrix

    def with_groups_of(self, least: float) -> "LinearRows":
        """Return the rows with counts and rates of groups of fewer than ``least`` rows set to 0."""
        kept = self.group_counts >= least
        if kept.all():
            return self
        return replace(
            self,
            members=self.members * kept[:, None],
            group_counts=np.where(kept, self.group_counts, 0.0),
            if_none=np.where(kept, self.if_none, 0.0),
        )

    def logits(self, params: Vector) -> Vector:
        """Return the logit of each distinct row."""
        return self.products.all_logits(params)

    def slope_squares(self, params: Vector, weights: Matrix, spread: GradientSpread) -> Vector:
        """Return weighted sums of ``|factor.T @ x|**2`` over distinct rows, one per column."""
        # Compute one Gram matrix per column, instead of one pass per direction.
        return np.array([np.vdot(self.products.gramian(w), spread.inverse) for w in weights.T])

    def report(self, point: Point) -> Report:
        """Return loss and smooth rates at ``point``, with gradients and extras if requested."""
        report, diagonal = self._report(point)
        if diagonal is None:
            return report
        return replace(report, curvature=self.products.gramian(diagonal))

    def report_into(self, point: Point, total: CurvatureSum) -> Report:
        """Return the report without curvature, which is added to ``total``."""
        report, diagonal = self._report(point)
        if diagonal is not None:
            self.products.add_gramian(diagonal, total)
        return report

    @cached_property
    def _divisors(self) -> Vector:
        return np.where(self.group_counts > 0, self.group_counts, 1.0)

    def _report(self, point: Point) -> tuple[Report, Vector | None]:
        """Return the report without curvature, and the diagonal D of :math:`X^T D X`."""
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
        rates = np.minimum(np.maximum((sums.scores + self.if_none) / divisors, 0.0), 1.0)
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
        """Sum over the rows of each block on all cores, and then over blocks in order."""
        n_blocks = len(self.products.blocks)
        compiled = self._kernels_for(point)
        parts: list[_Sums | None] = [None] * n_blocks

        def evaluate(block: int) -> None:
            if compiled is None:
                parts[block] = self._block(block, point, bends)
            else:
                parts[block] = self._compiled_block(compiled, block, point, bends)

        run_all(evaluate, range(n_blocks))
        return reduce(_Sums.plus, (part for part in parts if part is not None))

    def _block(self, block: int, point: Point, bends: "_Bends | None") -> "_Sums":
        """Sum over the rows of a block, and store their part of the diagonal of the curvature."""
        rows = self.products.blocks[block]
        counts, positives = self.row_counts[rows], self.positive_counts[rows]
        members = self.members[:, rows]
        logits = self.products.logits(block, point.params)
        score = selection_score(logits, point, self.cut)
        loss = self.loss.total(logits, counts, positives)
        scores = np.einsum("ji,i->j", members, score)  # BLAS rounding depends on its threads
        if not point.wants_gradients:
            return _Sums(loss, scores)
        residuals = np.empty((score.size, 1 + scores.size))  # C order, for sparse products
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
        """Return the compiled kernels for codes with cross-entropy, otherwise None."""
        is_coded = isinstance(self.products.X, CodedFeatures) and self.products.X.slots.size > 0
        is_smooth = type(self.loss) is CrossEntropy and point.want != "decisions"
        return kernels() if is_coded and is_smooth else None

    def _compiled_block(
        self, compiled: Any, block: int, point: Point, bends: "_Bends | None"
    ) -> "_Sums":
        """Compute `_block` by the compiled kernel."""
        products, rows = self.products, self.products.blocks[block]
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
        """Return gradients of ``residuals.T @ logits``, one row per column of ``residuals``."""
        return self.products.pull_back_all(residuals)  # independent of the parameters

    def train_locally(self, params: Vector, training: LocalTraining) -> Vector:
        """Train on items: pairs of a distinct row and a label, weighted by their number."""
        n_distinct = self.row_counts.size
        counts = np.concatenate([self.row_counts - self.positive_counts, self.positive_counts])
        there = np.flatnonzero(counts > 0)

        def summed_gradient(params: Vector, items: Items | None) -> Any:
            if items is None:
                pull = self.loss.slopes(self.logits(params), self.row_counts, self.positive_counts)
                return self.products.pull_back_all(pull[:, None])[0]
            label, place = np.divmod(there[items], n_distinct)
            batch = RowProducts(self.products.X[place])
            slopes = self.loss.slope_each(batch.all_logits(params), label)
            pull = counts[there[items]] * slopes
            return batch.pull_back_all(pull[:, None])[0]

        own_seed = lambda: self._own_seed  # noqa: E731 - a pass over the rows
        return train_locally(params, training, own_seed, counts[there], summed_gradient)

    @cached_property
    def _own_seed(self) -> int:
        X = self.features
        content = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
        return seed_of_rows((*content, self.row_counts, self.positive_counts))


@dataclass(frozen=True)
class _Sums:
    """Sums over rows of the losses, of the scores of each rate, and of the gradients of both."""

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
    r"""Second derivatives of :math:`\lambda l + \sum_q w_q r_q` with respect to the logits.

    ``loss`` and ``rates`` are the weights of the loss and the scores of one row. ``diagonal`` is
    the output array.
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
    """Return the rows of a client, prepared for reports; equal rows are merged if it saves time."""
    if data.n_rows == 0:
        raise ValueError(f"Client {client!r} has no training rows.")
    facts = np.column_stack([np.ones(data.n_rows), data.y, rate_members(data, rates, client)])
    if data.weights is not None:
        facts *= data.weights[:, None]
    members = facts[:, 2:]
    X, counts = compact(data.X), facts
    if not (members < 0).any():  # otherwise the signs of equal rows might cancel
        X, counts = merge_rows(X, facts)
    return LinearRows(
        name=client,
        products=RowProducts(X),
        row_counts=np.ascontiguousarray(counts[:, 0]),
        positive_counts=np.ascontiguousarray(counts[:, 1]),
        members=np.ascontiguousarray(counts[:, 2:].T),
        n_rows=float(facts[:, 0].sum()),
        group_counts=rows_behind(members),
        if_none=score_of_none(members),
        original_features=data.X,
        loss=loss,
        cut=cut,
    )
