"""Rows that a method's kernel is built around, and that are therefore disclosed."""

from collections.abc import Mapping

import numpy as np
from scipy import sparse

from fcfl._types import ClientId, Matrix
from fcfl.data import ClientData
from fcfl.data.client_data import client_seed


def reference_rows(train: Mapping[ClientId, ClientData], count: int, seed: int) -> Matrix:
    """About ``count`` training rows, of each client in proportion and at least one, at random.

    A client's rows depend on the seed and on its name, not on who else takes part.
    """
    total = sum(data.n_rows for data in train.values())
    chosen = []
    for client, data in train.items():
        share = min(max(round(count * data.n_rows / total), 1), data.n_rows)
        random = np.random.default_rng(client_seed(seed, client))
        rows = data.X[np.sort(random.permutation(data.n_rows)[:share])]
        chosen.append(rows.toarray() if sparse.issparse(rows) else rows)
    return np.vstack(chosen)
