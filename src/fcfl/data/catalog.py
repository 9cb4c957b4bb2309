"""Built-in data sets by name, and a description of any federation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcfl._checks import did_you_mean
from fcfl._types import ClientId, Vector
from fcfl.errors import DataError

from .adult import adult, adult_5
from .table import FederatedTable

BUILTIN = {
    "adult": "Census income, original split, clients PhD and non-PhD (the paper's protocol)",
    "adult-5": "Census income, pooled, all features, five clients that differ in the attribute",
    "adult-occupation": "Census income, original split, the twelve largest occupations as clients",
}

ORIGINAL_SPLIT = ("adult", "adult-occupation")
"""Sets with training and test rows of their own."""


def load_builtin(
    name: str,
    *,
    sensitive: Sequence[str] | None = None,
    seed: int = 0,
    test_size: float = 0.3,
    clients: str | int | None = None,
    resplit: bool = False,
    declared: bool = False,
) -> FederatedTable:
    """Load a built-in set.

    Parameters
    ----------
    name : a key of ``BUILTIN``
    sensitive : by default race for ``adult``, sex for the others
    seed, test_size : used by ``adult-5``; the others keep the original split
    clients : for ``adult`` "phd" or "occupation", for ``adult-5`` how many
    resplit : split the others by ``seed`` and ``test_size`` too
    declared : encode ``adult-5`` by the data's description; the others always are
    """
    split = (test_size, seed) if resplit else None
    if resplit and name not in ORIGINAL_SPLIT:
        raise DataError(f"`resplit` is for {', '.join(ORIGINAL_SPLIT)}; {name!r} is always split.")
    if name == "adult":
        return adult(sensitive or ("race",), str(clients or "phd"), split)
    if name == "adult-5":
        n_clients = _count("clients", clients, 5)
        return adult_5(
            sensitive or ("sex",), n_clients, seed=seed, test_size=test_size, declared=declared
        )
    if name == "adult-occupation":
        return adult(sensitive or ("sex",), "occupation", split)
    raise DataError(f"There is no built-in set {name!r}. {did_you_mean(name, BUILTIN)}")


@dataclass(frozen=True)
class GroupDescription:
    """Rows of one group of a client, and the share of them with label 1."""

    attribute: str
    name: str
    rows: int
    positive_rate: float | None


@dataclass(frozen=True)
class ClientDescription:
    """Rows and label rate of one client, and of each of its groups."""

    name: ClientId
    train_rows: int
    test_rows: int
    positive_rate: float | None
    groups: tuple[GroupDescription, ...]


def describe(federation: FederatedTable) -> list[ClientDescription]:
    """Describe each client: rows, label rate, and both again for each of its groups.

    Label rates are over training and test rows together, None where there are no rows.
    """
    return [_describe_client(federation, client) for client in federation.clients]


def _describe_client(federation: FederatedTable, client: ClientId) -> ClientDescription:
    train, test = federation.train[client], federation.test[client]
    y = np.concatenate([train.y, test.y])
    groups = []
    for attribute, levels in federation.levels.items():
        codes = np.concatenate([train.groups[attribute], test.groups[attribute]])
        for code, level in enumerate(levels):
            labels = y[codes == code]
            groups.append(GroupDescription(attribute, level, labels.size, _rate(labels)))
    return ClientDescription(client, train.n_rows, test.n_rows, _rate(y), tuple(groups))


def _rate(y: Vector) -> float | None:
    return float(y.mean()) if y.size else None


def _count(name: str, value: str | int | None, default: int) -> int:
    try:
        return default if value is None else int(value)
    except ValueError:
        raise DataError(f"`{name}` must be a number of clients, got {value!r}.") from None
