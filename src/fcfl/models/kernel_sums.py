"""Sums over a linear model's rows, weighed by a Gaussian kernel around reference points."""

from typing import Any

import numpy as np
from scipy import sparse

from fcfl._types import Matrix, Vector


def gaussian_kernel(X: Any, references: Matrix, bandwidth: float) -> Matrix:
    r""":math:`K_{ij} = \exp(-|x_i - r_j|^2 / 2\sigma^2)`, shape (rows, references)."""
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
    """Sums for each reference point: of losses, of rows, and of each set's centred logits.

    ``losses`` are summed over the rows an item stands for; ``centred[i, s]`` is the sum of
    ``s_i - centre`` over them.
    """
    facts = np.column_stack([losses, row_counts, centred * logits[:, None]])
    sums: Matrix = facts.T @ kernel
    return sums
