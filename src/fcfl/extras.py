"""Extras of some baselines: quantities that they request in addition to losses and rates.

Sites support `LocalTraining` but not `DisclosedRows`, which would send rows; see
``fcfl.sites.messages.EXTRAS``.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcfl._types import ClientId, Extra, Matrix, Point, Vector, client_seed

Items: TypeAlias = NDArray[np.intp]

MIN_BATCH_ROWS = 32  # a step on a batch of one row would disclose the row


@dataclass(frozen=True)
class LocalTraining(Extra):
    """Gradient steps of a client on its own rows, starting from the parameters of the point.

    An epoch visits all rows once, in as many batches of at least ``batch_rows`` as possible (0: all
    rows at once), of nearly equal sizes; see `split_batches`. A client that merges identical rows
    counts distinct rows. ``l2`` is the weight of ``|params|**2 / 2`` in the loss. The result is
    ``local_params``, the parameters after the last epoch.
    """

    epochs: int
    step_size: float
    batch_rows: int = 0
    l2: float = 0.0

    def __post_init__(self) -> None:
        check_batch_rows(self.batch_rows)

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return the client's parameters after the last epoch."""
        return {"local_params": rows.train_locally(point.params, self)}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return one number per parameter."""
        return {"local_params": (point.params.size,)}


@dataclass(frozen=True)
class DisclosedRows(Extra):
    """Features of ``counts[client]`` training rows of each client, drawn at random.

    The draw depends on the seed and the client's name only. The result is named ``rows``.
    """

    counts: Mapping[ClientId, int]
    seed: int = 0

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return the rows as a dense array."""
        X = rows.original_features
        random = np.random.default_rng(client_seed(self.seed, rows.name))
        chosen = X[np.sort(random.permutation(X.shape[0])[: self.counts[rows.name]])]
        return {"rows": chosen.toarray() if sparse.issparse(chosen) else np.asarray(chosen)}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return a shape of any size, since the server does not have the numbers in advance."""
        return {"rows": (-1, -1)}


def check_batch_rows(batch_rows: int) -> None:
    """Raise `ValueError` unless ``batch_rows`` is 0 or at least `MIN_BATCH_ROWS`."""
    if batch_rows != 0 and not batch_rows >= MIN_BATCH_ROWS:
        raise ValueError(
            f"`batch_rows` must be 0 (all rows at once) or at least {MIN_BATCH_ROWS}, "
            f"got {batch_rows!r}."
        )


def train_locally(
    start: Vector,
    training: LocalTraining,
    own_seed: Callable[[], int],
    row_counts: Vector,
    summed_gradient: Callable[[Vector, Items | None], Vector],
) -> Vector:
    r"""Return the parameters after the epochs of ``training``.

    .. math:: \theta \leftarrow \theta - \eta \Big(\frac{\sum_{i \in b} w_i \nabla \ell_i(\theta)}
              {\sum_{i \in b} c_i} + \lambda \theta\Big)

    for each batch b in turn. ``row_counts`` has the number of rows :math:`c_i` of each item.
    ``summed_gradient`` returns the numerator for the given items, or for all items if None.
    ``own_seed`` returns the client's own seed (`seed_of_rows`). The result is deterministic.
    """
    params = start
    batches = split_batches(row_counts.size, training.batch_rows, own_seed)
    for _ in range(training.epochs):
        for batch in batches:
            rows = row_counts.sum() if batch is None else row_counts[batch].sum()
            if rows > 0:
                gradient = summed_gradient(params, batch) / rows + training.l2 * params
                params = params - training.step_size * gradient
    return params


def split_batches(
    n_items: int, batch_rows: int, own_seed: Callable[[], int]
) -> Sequence[Items | None]:
    """Split items at random into batches of at least ``batch_rows``; None stands for all items.

    1. Sizes differ by at most one and are at least `MIN_BATCH_ROWS`. A client with too few items
       for two batches has one batch of all items.
    2. The split depends only on the client's own seed and the number of batches. It is the same in
       every epoch and every request, so that a server cannot compare different splits: two batch
       sizes give either the same batches or independent ones.
    """
    n_batches = n_items // max(batch_rows, MIN_BATCH_ROWS) if batch_rows else 1
    if n_batches <= 1:
        return (None,)
    order = np.random.default_rng([own_seed(), n_batches]).permutation(n_items)
    return np.array_split(order, n_batches)


def seed_of_rows(content: Iterable[NDArray[Any]]) -> int:
    """Return a hash of the rows' content as a random seed, which only their holder can compute.

    The seed does not depend on the machine, so that runs over sites and in-process runs are equal.
    """
    digest = hashlib.sha256()
    for part in content:
        digest.update(np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest(), "big")
