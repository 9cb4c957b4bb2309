"""Check the classifier's arguments: rows, clients, groups and weights of `fit`; parameters."""

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight

from fcfl._checks import LARGEST, check_choice, did_you_mean
from fcfl._types import ClientId, Vector
from fcfl.data import ClientData
from fcfl.data.cells import alike_notes, check_names, numbers, texts
from fcfl.data.columns import pair_by_meaning, read_clients, read_groups
from fcfl.data.rows import as_pandas
from fcfl.errors import DataError
from fcfl.methods.private import Private
from fcfl.methods.registry import METHODS, check_method
from fcfl.policy import PrivacyBudget
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule
from fcfl.runs.options import check_fields
from fcfl.runs.settings import BudgetSettings, check_private

ONLY_CLIENT = "all rows"
CLIENTS = "clients"
UNNAMED = "sensitive_feature"
NETWORK_OBJECTIVE = 1.0  # default of a torch module, for which no settings are chosen
UNEVEN = 100.0  # advise scaling if one column's largest value is so many times another's


def features_of(X: Any) -> Any:
    """Return a table as a frame of numbers, and other features unchanged.

    Raise if a column of a table cannot be used. scikit-learn's own errors do not name the column.
    """
    X = as_pandas(X)
    if isinstance(X, (list, tuple)):
        try:
            return np.asarray(X)
        except ValueError:
            raise ValueError("`X` must have rows of one length.") from None
    if not isinstance(X, pd.DataFrame):
        return X
    if X.shape[1] == 0:
        raise ValueError("`X` must have at least one column, got none.")
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
    """Raise if a feature's sum of squares may exceed `LARGEST`, the limit of numbers in reports."""
    sizes = largest_values(X)
    worst = int(sizes.argmax())
    if X.shape[0] and sizes[worst] > np.sqrt(LARGEST / X.shape[0]):
        name = f"x{worst}" if names is None else names[worst]
        raise ValueError(
            f"Column {name!r} of `X` has values as large as {sizes[worst]:g}. Scale it, for "
            "example with StandardScaler, or correct the cell."
        )


def check_labelled(y: Any) -> None:
    """Raise if a row has no label. scikit-learn's checks accept None among text labels."""
    n_empty = 0 if y is None else int(np.sum(pd.isna(y)))
    if n_empty:
        rows = "row" if n_empty == 1 else "rows"
        raise ValueError(
            f"Input y contains NaN in {n_empty} {rows}. Leave rows without a label out "
            "of `X`, `y`, `clients` and `sensitive_features`."
        )


def warn_of_names(classes: Any, parts: Mapping[ClientId, ClientData]) -> None:
    """Warn if the class that means "no" counts as selected, and if names look alike."""
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


def sensitive_columns(
    given: Any, n_rows: int, names: Iterable[str] | None = None
) -> dict[str, pd.Series]:
    """Return the sensitive features by name.

    Names are those of a table's columns or a series, else `UNNAMED`, with a number if there are
    several. ``names`` are the features of `fit`: only these are returned, and all are required.
    """
    given = as_pandas(given)
    if given is None:
        columns: dict[str, Any] = {}
    elif isinstance(given, (pd.DataFrame, Mapping)):
        columns = {str(name): column for name, column in given.items()}
    elif isinstance(given, pd.Series):
        columns = {UNNAMED if given.name is None else str(given.name): given}
    else:
        array = np.atleast_1d(np.asarray(given, dtype=object))
        numbered = {f"{UNNAMED}_{place}": column for place, column in enumerate(array.T)}
        columns = {UNNAMED: array} if array.ndim == 1 else numbered
    found = {}
    for name in columns if names is None else names:
        if name not in columns:
            raise ValueError(f"`sensitive_features` must have {name!r}, as in `fit`.")
        column = columns[name]
        _check_length(f"sensitive_features[{name!r}]", len(column), n_rows)
        column = column if isinstance(column, pd.Series) else pd.Series(list(column))
        found[name] = column.rename(name)
    return found


def client_column(given: Any, n_rows: int) -> pd.Series:
    """Return the client of each row; without ``clients``, all rows belong to `ONLY_CLIENT`."""
    if given is None:
        return pd.Series([ONLY_CLIENT] * n_rows, name=CLIENTS)
    given = as_pandas(given)
    column = given if isinstance(given, pd.Series) else pd.Series(np.asarray(given, dtype=object))
    _check_length(CLIENTS, len(column), n_rows)
    return column.infer_objects().rename(CLIENTS)


def row_weights(given: Any, X: Any, labels: Vector) -> Vector | None:
    """Return one weight per row, or None; raise if all rows of a class have weight zero."""
    if given is None:
        return None
    weights: Vector = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
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
    """Return each client's rows, clients in sorted order, groups as codes into ``levels``.

    Rows of weight zero are left out. The other weights are scaled to a mean of one.
    """
    try:
        owners = read_clients(clients)
        codes, names = read_groups(sensitive, levels)
    except DataError as error:
        raise ValueError(str(error)) from None
    for name, known in (levels or {}).items():
        for group in texts(sensitive[name]).levels:
            if group not in known:
                raise ValueError(
                    f"`sensitive_features[{name!r}]` has the unknown group {group!r}. "
                    f"{did_you_mean(group, known)}"
                )
    counted = np.ones(y.size, dtype=bool) if weights is None else weights > 0
    scale = 1.0 if weights is None else weights[counted].mean()
    parts = {}
    for code, client in enumerate(owners.levels):
        rows = np.flatnonzero((owners.codes == code) & counted)
        if rows.size:
            groups = {name: found[rows] for name, found in codes.items()}
            own = None if weights is None else weights[rows] / scale
            parts[client] = ClientData(X[rows], y[rows], groups, names, own)
    return parts


def rows_checksum(parts: Mapping[ClientId, ClientData]) -> str:
    """Return a hash of the rows, their clients and their groups."""
    digest = hashlib.sha256()
    for name, data in parts.items():
        digest.update(name.encode())
        X = data.X
        arrays = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
        arrays += [data.y, *data.groups.values()]
        arrays += [] if data.weights is None else [data.weights]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def largest_values(X: Any) -> Vector:
    """Return the largest absolute value of each column."""
    largest = abs(X).max(axis=0)
    return largest.toarray().ravel() if sparse.issparse(largest) else np.asarray(largest)


def advice(message: str, X: Any) -> str:
    """Return the message on convergence, with advice to scale if columns differ much in size."""
    sizes = largest_values(X)
    sizes = sizes[sizes > 0]
    if not sizes.size or sizes.max() <= UNEVEN * sizes.min():
        return message
    return f"{message} Scale the columns of X, for instance with StandardScaler."


# --- parameters -----------------------------------------------------------------------------------


def method_of(classifier: Any, seed: int) -> Any:
    """Return the method as an object, with ``rounds`` and ``seed`` if it takes them."""
    method, rounds, privacy = classifier.method, classifier.rounds, privacy_of(classifier)
    if privacy is not None:
        if method not in ("sqp", "private"):
            raise ValueError(
                f"`method` must be left out or 'private' with `privacy`, got {method!r}."
            )
        check_private(classifier)
        given = {"least_rows": classifier.min_group_rows, "rounds": rounds}
        chosen: Any = {name: value for name, value in given.items() if value is not None}
        return Private(privacy.epsilon, privacy.delta, **chosen)
    if not isinstance(method, str):
        if rounds is not None:
            raise ValueError("`rounds` is an option of the method object: leave it out here.")
        return method
    registered = METHODS[check_method("method", method)]
    options: dict[str, Any] = {"seed": seed} if "seed" in registered.options else {}
    if rounds is not None:
        counts = (rounds,) if isinstance(rounds, int) else tuple(rounds)
        options["rounds"] = registered.stage_rounds(counts)
    return registered.method(**options)


def privacy_of(classifier: Any) -> PrivacyBudget | None:
    """Return epsilon and delta of each client, or None without `privacy`."""
    given: Any = classifier.privacy
    if given is None or isinstance(given, PrivacyBudget):
        return given
    if not isinstance(given, Mapping) or set(given) != {"epsilon", "delta"}:
        raise ValueError(
            f"`privacy` must be {{'epsilon': E, 'delta': D}} or a PrivacyBudget, got {given!r}."
        )
    return PrivacyBudget(**given)


def open_settings_of(classifier: Any) -> tuple[Any, Any]:
    """Return ``l2`` and ``objective``; "auto" means that they are chosen by cross-validation."""
    l2, objective, method = classifier.l2, classifier.objective, classifier.method
    if classifier.privacy is not None:
        return l2, objective
    if classifier.model is not None and "auto" in (l2, objective):
        raise ValueError(
            "`l2` and `objective` must be numbers (or 'max') for a torch module: they are not "
            "chosen for it."
        )
    is_open = isinstance(method, str) and METHODS[method].traits.is_cross_validated
    if objective is None and is_open:
        objective = "auto" if classifier.model is None else NETWORK_OBJECTIVE
    return l2, objective


def rules_of(classifier: Any, attributes: list[str], clients: list[ClientId]) -> tuple[Rule, ...]:
    """Return the rules that ``budget``, ``metric`` and ``scope`` describe."""
    budget: Any = classifier.budget
    if budget is not None and not attributes:
        raise ValueError("`budget` needs `sensitive_features` in `fit`: the groups to compare.")
    check_choice("metric", classifier.metric, RATE_KINDS)
    if isinstance(budget, (Difference, Ratio)):
        return (budget,)
    if isinstance(budget, (list, tuple)):
        for rule in budget:
            if not isinstance(rule, (Difference, Ratio)):
                raise ValueError(
                    "`budget` must be a number, a mapping or rules such as Difference(...), got "
                    f"{rule!r} in a sequence."
                )
        return tuple(budget)
    settings = BudgetSettings(metric=classifier.metric, budget=budget, scope=classifier.scope)
    check_fields(settings)
    settings.check_budgets_fit()
    return settings.make_rules(attributes, clients)
