"""Count the predictions of any model by client and group, as input for an audit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._checks import did_you_mean, first_of
from fcfl._types import LABEL_OF, ROW_SIGNS, ClientId, RateId, RateKind, Vector
from fcfl.client.counts import Counts, ScoreCounts, count_scores
from fcfl.data.cells import Frame, Texts, check_columns, named_columns, numbers, text_of, texts
from fcfl.data.columns import Columns, Roles, check_one_role, ordered_pair, read_roles
from fcfl.errors import DataError
from fcfl.policy import compare_only

from .auditing import Counted, Selections

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

_KINDS: tuple[RateKind, ...] = tuple(LABEL_OF)  # the first requires no label
_OBVIOUS_PAIRS = (("0", "1"), ("False", "True"), ("false", "true"))
_STAND_IN = "\0label"  # placeholder column if the table has no label


@dataclass(frozen=True, slots=True)
class PredictionColumns:
    """Roles of the columns in a table of predictions; other columns are ignored.

    Parameters
    ----------
    client, prediction : column names
    sensitive : names of the columns whose groups are compared
    label : name of the column with the true label, optional
    positive : value of label and prediction that counts as selected
        Default: the larger number, or the last text in sorted order.
    """

    client: str
    prediction: str
    sensitive: tuple[str, ...]
    label: str | None = None
    positive: str | None = None

    def __post_init__(self) -> None:
        check_one_role(self.roles())

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield each column as (role, name)."""
        yield "client", self.client
        if self.label is not None:
            yield "label", self.label
        yield "prediction", self.prediction
        yield from (("sensitive", name) for name in self.sensitive)


@dataclass(frozen=True, slots=True)
class Cell:
    """Counts of one client's rows with one combination of groups; None for excluded groups."""

    client: ClientId
    groups: tuple[str | None, ...]
    rows: int
    selected: int


@dataclass(frozen=True, slots=True)
class CellCounts:
    """The content of ``cells.json``: counts by client and combination of groups.

    ``attributes`` are the sensitive columns, in the order of each cell's ``groups``.
    """

    attributes: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class CountedPredictions:
    """Counts of the predictions of every client.

    ``rates`` identify the entries of ``group_counts``. ``labels`` are the negative and the positive
    value, ``None`` for scores without a label. ``notes`` are sentences for the user. ``cells``
    count the same rows by client and combination of groups.
    """

    rates: tuple[RateId, ...]
    levels: dict[str, tuple[str, ...]]
    labels: tuple[str, str] | None
    counts: dict[ClientId, Counted]
    notes: tuple[str, ...]
    cells: tuple[Cell, ...] = ()


def count_predictions(
    frame: Frame,
    columns: PredictionColumns,
    *,
    threshold: float | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> CountedPredictions:
    """Count a table of predictions by client and group.

    Parameters
    ----------
    frame : DataFrame
    columns : PredictionColumns
        Without a label, only selection rates are counted, and no accuracy.
    threshold : number, optional
        If given, predictions are scores, and scores of at least the threshold are selected.
        Otherwise predictions are classes, with the same two values as the label.
    groups : mapping from attribute to the groups to compare, optional
        Default: all groups.
    """
    frame = named_columns(frame)
    for role, name in columns.roles():
        check_columns(frame, [name], role)
    roles = _read_roles(frame[[name for _, name in columns.roles()]], columns)
    labels = None if columns.label is None else roles.labels
    scores = None
    if threshold is None:
        classes = texts(frame[columns.prediction])
        _check_complete(classes.codes < 0, roles.client, columns.prediction)
        labels = labels or _class_pair(classes.levels, columns)
        selected = _in_class(classes, labels, columns)
        note = f"Prediction {columns.prediction!r}: {labels[1]!r} counts as selected."
    else:
        if not math.isfinite(threshold):
            raise ValueError(f"`threshold` must be a finite number, got {threshold!r}.")
        scores = numbers(frame[columns.prediction])
        _check_complete(np.isnan(scores), roles.client, columns.prediction)
        selected = scores >= threshold
        note = f"Prediction {columns.prediction!r}: scores of at least {threshold:g} are selected."
    levels = compare_only(roles.levels, groups or {})
    kinds = _KINDS[:1] if columns.label is None else _KINDS
    rates = tuple(
        RateId(kind, name, group) for kind in kinds for name in levels for group in levels[name]
    )
    compared = {name: _compared(roles, name, kept) for name, kept in levels.items()}
    if scores is not None and not ((scores >= 0) & (scores <= 1)).all():
        scores = None  # not probabilities: cannot be binned
    return CountedPredictions(
        rates,
        levels,
        labels,
        _count(
            roles, selected, scores, rates, levels, compared, is_labelled=columns.label is not None
        ),
        (note, *_unknown_groups(roles)),
        tuple(_cells(roles, selected, levels, compared)),
    )


def _read_roles(frame: Frame, columns: PredictionColumns) -> Roles:
    """Return clients, groups and the label if there is one."""
    if columns.label is not None:
        roles = Columns(columns.client, columns.label, columns.sensitive, (), columns.positive)
        return read_roles(frame, roles)
    roles = Columns(columns.client, _STAND_IN, columns.sensitive)
    return read_roles(frame.assign(**{_STAND_IN: 0}), roles, labels=("0", "1"))


def _check_complete(is_empty: Flags, client: Texts, name: str) -> None:
    """Raise `DataError` for empty predictions."""
    empty = np.bincount(client.codes[is_empty], minlength=len(client.levels))
    if empty.any():
        worst = int(empty.argmax())
        raise DataError(
            f"Prediction column {name!r} is empty in {int(empty.sum())} of {len(is_empty)} rows, "
            f"{int(empty[worst])} of them of client {client.levels[worst]!r}. "
            "Fill them in or remove these rows."
        )


def _class_pair(values: tuple[str, ...], columns: PredictionColumns) -> tuple[str, str]:
    """Return the negative and the positive value if the table has no label."""
    name, positive = columns.prediction, columns.positive
    if positive is not None:
        positive = text_of(positive)
        others = [value for value in values if value != positive]
        if len(others) == len(values) > 1:
            raise DataError(
                f"`positive` must be a value of prediction column {name!r}, got "
                f"{columns.positive!r}. {did_you_mean(positive, values)}"
            )
        if len(others) <= 1:
            return (*others, f"not {positive}")[0], positive
    for pair in _OBVIOUS_PAIRS:
        if set(values) <= set(pair):
            return pair
    if len(values) == 2:
        return ordered_pair(values)
    option = "the value that counts as selected with `--positive`"
    if len(values) > 1:
        option = "a threshold with `--threshold` if these are scores"
    raise DataError(
        f"Prediction column {name!r} must have two values, got {len(values)}: "
        f"{first_of(map(repr, values), 3)}. Give {option}."
    )


def _in_class(classes: Texts, pair: tuple[str, str], columns: PredictionColumns) -> Flags:
    """Return a mask of the rows predicted positive; raise for values other than the pair."""
    unexpected = [value for value in classes.levels if value not in pair]
    if unexpected:
        raise DataError(
            f"Prediction column {columns.prediction!r} must hold {pair[0]!r} or {pair[1]!r}, as "
            f"label column {columns.label!r} does, got {unexpected[0]!r}. "
            "If these are scores, pass `--threshold`."
        )
    is_positive = np.array([value == pair[1] for value in classes.levels], dtype=np.bool_)
    return is_positive[classes.codes]


def _compared(roles: Roles, name: str, kept: Sequence[str]) -> Codes:
    """Return each row's index into the groups to compare, -1 for other groups."""
    place = [kept.index(level) if level in kept else -1 for level in roles.levels[name]]
    return np.array([*place, -1], dtype=np.int64)[roles.groups[name]]


def _count(
    roles: Roles,
    selected: Flags,
    scores: Vector | None,
    rates: Sequence[RateId],
    levels: Mapping[str, Sequence[str]],
    compared: Mapping[str, Codes],
    *,
    is_labelled: bool,
) -> dict[ClientId, Counted]:
    """Return the counts of each client, with binned scores by group and label if given."""
    client, y = roles.client, roles.y.astype(np.int64)
    n_clients = len(client.levels)
    counted = np.zeros((2, n_clients, len(rates)))
    for column, rate in enumerate(rates):
        signs = np.array(ROW_SIGNS[rate.kind])[y]
        group = levels[rate.attribute].index(rate.group)
        rows = (compared[rate.attribute] == group) & (signs != 0)
        for place, counts in enumerate((rows, rows & (selected == (signs > 0)))):
            counted[place, :, column] = np.bincount(client.codes[counts], minlength=n_clients)
    cells = np.bincount((client.codes * 2 + y) * 2 + selected, minlength=4 * n_clients)
    confusion = cells.reshape(n_clients, 4)
    rows_of = np.split(np.argsort(client.codes, kind="stable"), confusion.sum(1).cumsum()[:-1])
    by_client: dict[ClientId, Counted] = {}
    for name, index, n, groups in zip(
        client.levels, rows_of, confusion.tolist(), counted.swapaxes(0, 1), strict=True
    ):
        if not is_labelled:
            by_client[name] = Selections(n[0] + n[1], n[1], groups[0], groups[1])
            continue
        binned: tuple[ScoreCounts, ...] = ()
        if scores is not None:
            codes = {attribute: of_all[index] for attribute, of_all in compared.items()}
            binned = count_scores(scores[index], roles.y[index], codes, levels)
        tn, fp, fn, tp = n
        by_client[name] = Counts(tn, fp, fn, tp, math.nan, groups[0], groups[1], binned)
    return by_client


def _cells(
    roles: Roles,
    selected: Flags,
    levels: Mapping[str, Sequence[str]],
    compared: Mapping[str, Codes],
) -> Iterator[Cell]:
    """Yield the counts of each client and combination of groups."""
    codes = np.column_stack([roles.client.codes, *compared.values()])
    found, which = np.unique(codes, axis=0, return_inverse=True)
    rows = np.bincount(which.ravel(), minlength=len(found))
    chosen = np.bincount(which.ravel(), weights=selected, minlength=len(found))
    for (client, *groups), n, k in zip(found.tolist(), rows.tolist(), chosen.tolist(), strict=True):
        names = zip(levels.values(), groups, strict=True)
        known = tuple(kept[code] if code >= 0 else None for kept, code in names)
        yield Cell(roles.client.levels[client], known, n, int(k))


def _unknown_groups(roles: Roles) -> Iterator[str]:
    """Yield a note for each attribute with missing values."""
    for name, codes in roles.groups.items():
        unknown = int((codes < 0).sum())
        if unknown:
            yield f"{unknown} of {len(codes)} rows have no value in {name!r} and are in no group."
