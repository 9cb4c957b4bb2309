"""Artificial clients for benchmarks."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcfl._checks import check_positive

from .client_data import Index

_MAX_DRAWS = 1000


def dirichlet_clients(
    attribute: ArrayLike, n_clients: int, concentration: float, seed: int, *, min_rows: int = 10
) -> NDArray[np.object_]:
    """Deal rows to clients so that the attribute's mix differs between them.

    For each value of ``attribute`` the clients' shares are drawn from a symmetric Dirichlet
    distribution, and drawn again until every client has ``min_rows`` rows of the value. A small
    ``concentration`` gives very different clients.

    Returns
    -------
    array of names
        ``client-1``, ``client-2``, … for each row.
    """
    check_positive("concentration", concentration)
    if n_clients < 1:
        raise ValueError(f"`n_clients` must be at least 1, got {n_clients!r}.")
    values, codes = np.unique(np.asarray(attribute).astype(str), return_inverse=True)
    rng = np.random.default_rng(seed)
    client = np.empty(codes.size, dtype=np.intp)
    for code, value in enumerate(values):
        rows = rng.permutation(np.flatnonzero(codes == code))
        sizes = _shares(rows.size, n_clients, concentration, min_rows, rng, str(value))
        client[rows] = np.repeat(np.arange(n_clients), sizes)
    width = len(str(n_clients))  # so that the names sort as the numbers do
    names = [f"client-{number:0{width}d}" for number in range(1, n_clients + 1)]
    return np.array(names, dtype=object)[client]


def _shares(
    n_rows: int,
    n_clients: int,
    concentration: float,
    min_rows: int,
    rng: np.random.Generator,
    value: str,
) -> Index:
    """Return how many of ``n_rows`` rows each client gets, at least ``min_rows``."""
    for _ in range(_MAX_DRAWS if n_rows >= n_clients * min_rows else 0):
        ends = np.cumsum(rng.dirichlet(np.full(n_clients, concentration)))[:-1]
        bounds = np.round([0, *(ends * n_rows), n_rows]).astype(np.intp)
        sizes = bounds[1:] - bounds[:-1]
        if sizes.min() >= min_rows:
            return sizes
    raise ValueError(
        f"`min_rows` must leave room for {n_clients} clients, got {min_rows} with {n_rows} rows of "
        f"value {value!r}. Use fewer clients, a larger `concentration` or a smaller `min_rows`."
    )
