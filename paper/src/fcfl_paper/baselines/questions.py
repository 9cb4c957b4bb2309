"""What these baselines ask of clients beyond losses and rates.

Only clients in the same process answer: sites over a network reject these questions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import ClientId, Extra, Matrix, Point, Vector, client_seed
from fcfl.extras import Items, LocalTraining, train_locally
from fcfl.problem import Problem

Positions: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class WeightedTraining(Extra):
    """`LocalTraining` on rows that weigh by label and group.

    ``set_weights[client]``, of shape (2, rates), is added to the weight 1 of the rows behind each
    rate: its first line for rows with label 0, its second for rows with label 1. It may differ
    from zero only where all rows behind the rate have that label. The answer is ``local_params``,
    where the client ends.
    """

    training: LocalTraining
    set_weights: Mapping[ClientId, Matrix]

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return where the client ends; an item is split into its rows with label 0 and 1."""
        added = self.set_weights[rows.name] @ rows.member_counts.T
        counts = np.array([rows.row_counts - rows.positive_counts, rows.positive_counts])
        weights, there = counts + added, np.flatnonzero(counts > 0)

        def summed_gradient(params: Vector, items: Items | None) -> Vector:
            used = weights
            if items is not None:
                used = np.zeros_like(weights)
                used.flat[there[items]] = weights.flat[there[items]]
            pull = rows.loss.slopes(rows.logits(params), used.sum(axis=0), used[1])
            gradient: Vector = rows.pull_back(params, pull[:, None])[0]
            return gradient

        def own_seed() -> int:
            return int(client_seed(0, rows.name).generate_state(1)[0])

        counted = counts.ravel()[there]
        end = train_locally(point.params, self.training, own_seed, counted, summed_gradient)
        return {"local_params": end}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return as many numbers as there are parameters."""
        return {"local_params": (point.params.size,)}


@dataclass(frozen=True)
class LossesByLabel(Extra):
    """``set_losses``: the mean loss of the rows behind each rate if their label were 0, and 1."""

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return two lines, one column per rate."""
        losses = rows.loss.by_label(rows.logits(point.params))
        counts = np.where(rows.group_counts > 0, rows.group_counts, 1.0)
        return {"set_losses": (losses @ rows.member_counts) / counts}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return two lines, one column per rate."""
        return {"set_losses": (2, n_rates)}


@dataclass(frozen=True)
class KernelSums(Extra):
    """Sums over rows weighed by a Gaussian kernel around reference points.

    Row i has the kernel values ``K[i, j] = exp(-|x_i - references[j]|**2 / (2 * bandwidth**2))``
    and the weight ``weights @ K[i]``. ``sets`` are positions of rates, whose rows are those of a
    group; ``centres`` the share of each group in all rows. ``kernel_sums`` has one column per
    reference point: sums over rows i of ``K[i, j]`` times the loss, times 1, and for each set
    times ``(s_i - centre) * logit``; ``kernel_grads`` the gradients of the weighted sum of losses
    and of each set's last sum.
    """

    references: Matrix
    bandwidth: float
    sets: tuple[int, ...]
    centres: Vector
    weights: Vector

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return the sums, and their gradients where the point wants gradients."""
        kernel = gaussian_kernel(rows.features, self.references, self.bandwidth)
        logits = rows.logits(point.params)
        losses = rows.loss.items(logits, rows.row_counts, rows.positive_counts)
        centred = rows.member_counts[:, list(self.sets)] - rows.row_counts[:, None] * self.centres
        sums = kernel_sums(kernel, rows.row_counts, losses, centred, logits)
        if not point.wants_gradients:
            return {"kernel_sums": sums}
        slopes = rows.loss.slopes(logits, rows.row_counts, rows.positive_counts)
        pulls = np.column_stack([slopes, centred])
        grads = rows.pull_back(point.params, pulls * (kernel @ self.weights)[:, None])
        return {"kernel_sums": sums, "kernel_grads": grads}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return one column per reference point; one line per gradient."""
        shapes: dict[str, tuple[int, ...]] = {
            "kernel_sums": (2 + len(self.sets), self.references.shape[0])
        }
        if point.wants_gradients:
            shapes["kernel_grads"] = (1 + len(self.sets), point.params.size)
        return shapes


def gaussian_kernel(X: Any, references: Matrix, bandwidth: float) -> Matrix:
    r"""Return :math:`K_{ij} = \exp(-|x_i - r_j|^2 / 2\sigma^2)`, shape (rows, references)."""
    if references.shape[1] != X.shape[1]:
        raise ValueError(
            f"`references` must have {X.shape[1]} columns, as the rows have, "
            f"got {references.shape[1]}."
        )
    squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
    distances = np.asarray(squares).ravel()[:, None] - 2.0 * (X @ references.T)
    distances += np.einsum("ij,ij->i", references, references)
    kernel: Matrix = np.exp(-np.maximum(distances, 0.0) / (2.0 * bandwidth**2))
    return kernel


def kernel_sums(
    kernel: Matrix, row_counts: Vector, losses: Vector, centred: Matrix, logits: Vector
) -> Matrix:
    """Return sums for each reference point: of losses, of rows, and of each set's centred logits.

    ``losses`` are summed over the rows an item stands for; ``centred[i, s]`` is the sum of
    ``s_i - centre`` over them.
    """
    facts = np.column_stack([losses, row_counts, centred * logits[:, None]])
    sums: Matrix = facts.T @ kernel
    return sums


def cells(problem: Problem) -> tuple[Positions, Positions]:
    """Return positions of the first attribute's (label 0, group) and (label 1, group) rates."""
    first = next((rate.attribute for rate in problem.rates), None)
    found = [
        [i for i, r in enumerate(problem.rates) if (r.kind, r.attribute) == (kind, first)]
        for kind in ("false_positive", "true_positive")
    ]
    if not found[0] or len(found[0]) != len(found[1]):
        raise ValueError(
            "`problem` must have the true- and false-positive rates of each group for this "
            "method; pass its `rate_kinds` to `rates_needed`."
        )
    return np.array(found[0]), np.array(found[1])
