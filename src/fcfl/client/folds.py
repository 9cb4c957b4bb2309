"""How a client splits its own training rows for cross-validation: by a seed and its name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcfl._random import client_seed
from fcfl._types import ClientId, Fold
from fcfl.data.client_data import ClientData

THIN_STEP = 100  # thinned rows are nested: two requests differ by none or by at least as many


def split_fold(client: ClientId, data: ClientData, fold: Fold) -> tuple[ClientData, ClientData]:
    """The rows to train on without this fold, and those it holds out."""
    rows = usable_rows(client, data, fold)
    folds = fold_of_rows(client, rows, fold)
    inside = np.flatnonzero(folds != fold.index)
    return rows.take(inside), rows.take(np.flatnonzero(folds == fold.index))


def usable_rows(client: ClientId, data: ClientData, fold: Fold) -> ClientData:
    """All training rows, a random part of them where there are very many."""
    if fold.most_rows is None or data.n_rows <= fold.most_rows:
        return data
    random = np.random.default_rng(client_seed(fold.seed, client))
    return data.take(np.sort(random.permutation(data.n_rows)[: fold.most_rows]))


def fold_of_rows(client: ClientId, data: ClientData, fold: Fold) -> NDArray[np.intp]:
    """The index of each row's fold, spread evenly over labels and groups.

    A client with fewer than two rows a fold holds nothing out (index -1): its rows are always
    trained on.
    """
    if data.n_rows < 2 * fold.count:
        return np.full(data.n_rows, -1)
    random = np.random.default_rng(client_seed(fold.seed, client)).random(data.n_rows)
    keys: list[NDArray[Any]] = [random, *data.groups.values(), data.y]
    order = np.lexsort(keys)
    folds = np.empty(data.n_rows, dtype=np.intp)
    folds[order] = np.arange(data.n_rows) % fold.count
    return folds
