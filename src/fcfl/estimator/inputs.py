"""What `fit` is given beside X and y: whose rows they are, their groups, their weights."""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from fcfl._report_checks import LARGEST
from fcfl._types import ClientId, Vector
from fcfl.data import ClientData
from fcfl.data.cells import alike_notes, check_names, numbers
from fcfl.data.roles import pair_by_meaning, read_clients, read_groups
from fcfl.data.rows import as_pandas
from fcfl.errors import DataError

ONLY_CLIENT = "all rows"
CLIENTS = "clients"
UNNAMED = "sensitive_feature"
UNEVEN = 100.0  # times that one column may be larger than another before it is worth a word


def features_of(X: Any) -> Any:
    """Return a table as a frame of numbers, and other features as they are.

    Raise if a column of a table cannot be used: sklearn's errors do not name it.
    """
    X = as_pandas(X)
    if not isinstance(X, pd.DataFrame):
        return X
    if len({isinstance(name, str) for name in X.columns}) > 1:
        raise ValueError("Columns of `X` must all be named by text, or all by numbers.")
    check_names(map(str, X.columns))
    changed = X.copy(deep=False)
    for name, column in X.items():
        if column.dtype.kind == "b" or isinstance(column.dtype, pd.SparseDtype):
            continue
        cells = numbers(column, "Encode text as numbers, for example with OneHotEncoder.")
        n_empty = int(np.isnan(cells).sum())
        if n_empty:
            raise ValueError(
                f"Column {name!r} of `X` has NaN in {n_empty} of {len(X)} rows. Fill them in, for "
                "example with SimpleImputer, or drop the column."
            )
        if not pd.api.types.is_numeric_dtype(column):
            changed[name] = cells
    return changed


def check_sizes(X: Any, names: Sequence[str] | None) -> None:
    """Raise if a feature is so large that its sum of squares exceeds what a report may hold."""
    largest = abs(X).max(axis=0)
    sizes = largest.toarray().ravel() if sparse.issparse(largest) else np.asarray(largest)
    worst = int(sizes.argmax())
    if X.shape[0] and sizes[worst] > np.sqrt(LARGEST / X.shape[0]):
        name = f"x{worst}" if names is None else names[worst]
        raise ValueError(
            f"Column {name!r} of `X` has values as large as {sizes[worst]:g}. Scale it, for "
            "example with StandardScaler, or correct the cell."
        )


def check_labelled(y: Any) -> None:
    """Raise if a row has no label."""
    n_empty = 0 if y is None else int(np.sum(pd.isna(y)))
    if n_empty:
        raise ValueError(
            f"Input y contains NaN in {n_empty} rows. Leave rows without a label out "
            "of `X`, `y`, `clients` and `sensitive_features`."
        )


def warn_of_names(classes: Any, parts: Mapping[ClientId, ClientData]) -> None:
    """Warn of classes that are ordered against their meaning, and of names that look alike."""
    notes = alike_notes("Clients", parts)
    for name, groups in next(iter(parts.values())).levels.items():
        notes += alike_notes(f"Groups of {name!r}:", groups)
    first, second = (str(one).strip() for one in classes)
    if pair_by_meaning((first, second)) == (second, first):
        notes.append(
            f"Class {second!r} counts as selected because it is the last in sorted order. If "
            f"{first!r} should, pass `y == {str(classes[0])!r}` instead of `y`."
        )
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)


def sensitive_columns(given: Any, n_rows: int) -> dict[str, pd.Series]:
    """The sensitive features by name: a frame's columns, a series' name, or numbered ones."""
    if given is None:
        return {}
    given = as_pandas(given)
    if isinstance(given, pd.DataFrame):
        columns = {str(name): given[name] for name in given.columns}
    elif isinstance(given, Mapping):
        columns = {str(name): pd.Series(list(column)) for name, column in given.items()}
    elif isinstance(given, pd.Series):
        columns = {UNNAMED if given.name is None else str(given.name): given}
    else:
        columns = _columns_of_array(np.asarray(given, dtype=object))
    for name, column in columns.items():
        _check_length(f"sensitive_features[{name!r}]", len(column), n_rows)
    return {name: column.rename(name) for name, column in columns.items()}


def sensitive_as_in_fit(given: Any, n_rows: int, names: Iterable[str]) -> dict[str, pd.Series]:
    """Those of the sensitive features that `fit` had; none may be missing."""
    columns = sensitive_columns(given, n_rows)
    for name in names:
        if name not in columns:
            raise ValueError(f"`sensitive_features` must have {name!r}, as in `fit`.")
    return {name: columns[name] for name in names}


def _columns_of_array(array: NDArray[Any]) -> dict[str, pd.Series]:
    if array.ndim == 1:
        return {UNNAMED: pd.Series(array).infer_objects()}
    if array.ndim != 2:
        raise ValueError(f"`sensitive_features` must have one or two dimensions, got {array.ndim}.")
    columns = (pd.Series(column).infer_objects() for column in array.T)
    return {f"{UNNAMED}_{i}": column for i, column in enumerate(columns)}


def client_column(given: Any, n_rows: int) -> pd.Series:
    """Whose row it is; without ``clients`` all rows are one client's."""
    if given is None:
        return pd.Series([ONLY_CLIENT] * n_rows, name=CLIENTS)
    given = as_pandas(given)
    column = given if isinstance(given, pd.Series) else pd.Series(np.asarray(given, dtype=object))
    _check_length(CLIENTS, len(column), n_rows)
    return column.infer_objects().rename(CLIENTS)


def row_weights(given: Any, labels: Vector) -> Vector | None:
    """One weight per row; both classes must keep some."""
    if given is None:
        return None
    weights = np.asarray(given, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(labels.size, weights)
    if weights.ndim != 1:
        raise ValueError(f"`sample_weight` must have one dimension, got {weights.ndim}.")
    _check_length("sample_weight", weights.size, labels.size)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(
            f"`sample_weight` must be zero or positive numbers, got {weights[wrong][0]:g}."
        )
    if np.unique(labels[weights > 0]).size < 2:
        raise ValueError(
            "`sample_weight` must leave rows of both classes of `y`, got zero for all rows of one "
            "class."
        )
    return weights


def _check_length(name: str, length: int, n_rows: int) -> None:
    if length != n_rows:
        raise ValueError(
            f"`{name}` must have one value for each of the {n_rows} rows of `X`, got {length}."
        )


def split_by_client(
    X: Any,
    y: Vector,
    clients: pd.Series,
    sensitive: Mapping[str, pd.Series],
    weights: Vector | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
) -> dict[ClientId, ClientData]:
    """Every client's rows, its name in sorted order; groups as codes into ``levels``.

    Rows of weight zero are left out. The others' weights are scaled to one on average, so that
    they count like rows.
    """
    try:
        owners = read_clients(clients)
        groups = {
            name: read_groups(column, (levels or {}).get(name))
            for name, column in sensitive.items()
        }
    except DataError as error:
        raise ValueError(str(error)) from None
    counted = np.ones(y.size, dtype=bool) if weights is None else weights > 0
    scale = 1.0 if weights is None else weights[counted].mean()
    parts = {}
    for code, name in enumerate(owners.levels):
        rows = np.flatnonzero((owners.codes == code) & counted)
        if rows.size:
            parts[name] = ClientData(
                X[rows],
                y[rows],
                {name: found.codes[rows].astype(np.int32) for name, found in groups.items()},
                {attribute: found.levels for attribute, found in groups.items()},
                None if weights is None else weights[rows] / scale,
            )
    return parts


def rows_checksum(parts: Mapping[ClientId, ClientData]) -> str:
    """Identifies the rows, their owners and their groups."""
    digest = hashlib.sha256()
    for name, data in parts.items():
        digest.update(name.encode())
        for array in _arrays(data):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _arrays(data: ClientData) -> Iterator[Any]:
    X = data.X
    yield from (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    yield data.y
    yield from data.groups.values()
    if data.weights is not None:
        yield data.weights


def advice(message: str, X: Any) -> str:
    """Why training did not converge, and what may help where columns differ much in size."""
    largest = abs(X).max(axis=0)
    sizes = largest.toarray().ravel() if sparse.issparse(largest) else largest
    sizes = sizes[sizes > 0]
    if not sizes.size or sizes.max() <= UNEVEN * sizes.min():
        return message
    return f"{message} Scale the columns of X, for instance with StandardScaler."
