"""Extras of some baselines: what they request beyond losses and rates.

Sites over a network answer `LocalTraining` only; `DisclosedRows` would send rows.
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

MIN_BATCH_ROWS = 32  # the change of the parameters by a batch of one row is that row


@dataclass(frozen=True)
class LocalTraining(Extra):
    """Gradient steps a client takes on its own rows, from the point it is asked about.

    An epoch visits all rows once, in batches of at least ``batch_rows`` (0: all rows at once), as
    many and as equal in size as that allows; see `split_batches`. A client that merges identical
    rows counts distinct ones. ``l2`` is the weight of ``|params|**2 / 2`` in the loss. The answer
    is ``local_params``, where the client ends.
    """

    epochs: int
    step_size: float
    batch_rows: int = 0
    l2: float = 0.0

    def __post_init__(self) -> None:
        check_batch_rows(self.batch_rows)

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return the client's last parameters."""
        return {"local_params": rows.train_locally(point.params, self)}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return one number per parameter."""
        return {"local_params": (point.params.size,)}


@dataclass(frozen=True)
class DisclosedRows(Extra):
    """``rows``: the features of ``counts[client]`` of the client's training rows, at random.

    They depend on the seed and on the client's name, not on who else takes part.
    """

    counts: Mapping[ClientId, int]
    seed: int = 0

    def answer(self, rows: Any, point: Point) -> dict[str, Matrix]:
        """Return the rows, dense."""
        X = rows.original_features
        random = np.random.default_rng(client_seed(self.seed, rows.name))
        chosen = X[np.sort(random.permutation(X.shape[0])[: self.counts[rows.name]])]
        return {"rows": chosen.toarray() if sparse.issparse(chosen) else np.asarray(chosen)}

    def shapes(self, point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
        """Return any number of rows and features: the server has neither beforehand."""
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

    for one batch b after another. ``row_counts`` has the rows :math:`c_i` that each item stands
    for; ``summed_gradient`` returns the numerator for the items named, or for all. ``own_seed``
    returns the client's own seed (`seed_of_rows`). The result depends on nothing but the arguments.
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

    1. Sizes differ by at most one, and none is below `MIN_BATCH_ROWS`. A client with fewer than
       twice as many items as a batch needs takes all of them at once.
    2. The split is a function of the client's own seed and of the number of batches. It is the
       same in every epoch and every request: repeated requests average nothing out, and two batch
       sizes give either the same batches or unrelated ones.
    """
    n_batches = n_items // max(batch_rows, MIN_BATCH_ROWS) if batch_rows else 1
    if n_batches <= 1:
        return (None,)
    order = np.random.default_rng([own_seed(), n_batches]).permutation(n_items)
    return np.array_split(order, n_batches)


def seed_of_rows(content: Iterable[NDArray[Any]]) -> int:
    """Return a seed that only a holder of the rows can compute: a hash of their content.

    It is the same wherever the client runs, so that a run over sites equals one in process.
    """
    digest = hashlib.sha256()
    for part in content:
        digest.update(np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest(), "big")
