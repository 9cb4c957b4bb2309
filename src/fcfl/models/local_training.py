"""Gradient steps on a client's own rows, the same for every kind of model."""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, LocalTraining, Matrix, Vector

Items = NDArray[np.intp]


def train_locally(
    start: Vector,
    training: LocalTraining,
    client: ClientId,
    row_counts: Vector,
    summed_gradient: Callable[[Vector, Items | None], Vector],
) -> Vector:
    r"""Parameters after the epochs of ``training``.

    .. math:: \theta \leftarrow \theta - \eta \Big(\frac{\sum_{i \in b} w_i \nabla \ell_i(\theta)}
              {\sum_{i \in b} c_i} + \lambda \theta\Big)

    for one batch b after another. ``row_counts`` has the rows :math:`c_i` that each item stands
    for; ``summed_gradient`` returns the numerator for the items named, or for all. The result
    depends on nothing but the arguments.
    """
    params = start
    for batch in _batches(training, client, row_counts.size):
        rows = row_counts.sum() if batch is None else row_counts[batch].sum()
        if rows > 0:
            gradient = summed_gradient(params, batch) / rows + training.l2 * params
            params = params - training.step_size * gradient
    return params


def _batches(training: LocalTraining, client: ClientId, n_items: int) -> Iterator[Items | None]:
    """The items of each step, shuffled anew every epoch; all of them need no shuffling."""
    size = training.batch_rows
    seeds = [training.seed, training.round, zlib.crc32(client.encode())]
    random = np.random.default_rng(np.random.SeedSequence(seeds))
    for _ in range(training.epochs):
        if size == 0 or size >= n_items:
            yield None
            continue
        order = random.permutation(n_items)
        for first in range(0, n_items, size):
            yield order[first : first + size]


def set_weights_of(training: LocalTraining, client: ClientId, n_rates: int) -> Matrix:
    """What each set adds to the weight of its rows with label 0, then with label 1."""
    given = (training.set_weights or {}).get(client)
    if given is None:
        return np.zeros((2, n_rates))
    if given.shape != (2, n_rates):
        raise ValueError(
            f"`set_weights` must have shape {(2, n_rates)} for client {client!r}, "
            f"got {given.shape}."
        )
    return given
