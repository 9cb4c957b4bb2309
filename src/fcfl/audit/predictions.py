"""Counts from a table of predictions of any model: what an audit needs, and nothing else."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._checks import did_you_mean
from fcfl._types import LABEL_OF, ClientId, RateId, RateKind, Vector
from fcfl.client.counts import Counts
from fcfl.data.cells import Column, Frame, Texts, named_columns, numbers, text_of, texts
from fcfl.data.roles import Columns, Roles, ordered_pair, read_roles
from fcfl.errors import DataError
from fcfl.policy import compare_only

from .performance import Counted, Selections
from .prediction_scores import with_scores

Table = NDArray[np.int64]
Flags = NDArray[np.bool_]

_KINDS: tuple[RateKind, ...] = tuple(LABEL_OF)  # those that need no label first
_OBVIOUS_PAIRS = (("0", "1"), ("False", "True"), ("false", "true"))
_STAND_IN = "\0label"  # the column that stands in for the label where there is none


@dataclass(frozen=True, slots=True)
class PredictionColumns:
    """The part each column of a table of predictions plays; all others are passed over.

    Parameters
    ----------
    client, prediction : names of columns
    sensitive : names of the columns whose groups are compared
    label : name of the column with the right answer, if there is one
    positive : the value, of label and prediction, that counts as selected
        By default the larger number, or the last text in sorted order.
    """

    client: str
    prediction: str
    sensitive: tuple[str, ...]
    label: str | None = None
    positive: str | None = None

    @property
    def names(self) -> list[str]:
        """Every column with a role."""
        label = () if self.label is None else (self.label,)
        return [self.client, *label, self.prediction, *self.sensitive]

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield (role, column)."""
        yield "client", self.client
        if self.label is not None:
            yield "label", self.label
        yield "prediction", self.prediction
        yield from (("sensitive", name) for name in self.sensitive)


@dataclass(frozen=True, slots=True)
class Cell:
    """Rows of one client with one combination of groups, None where a group is not known."""

    client: ClientId
    groups: tuple[str | None, ...]
    rows: int
    selected: int


@dataclass(frozen=True, slots=True)
class CellCounts:
    """The content of ``cells.json``: rows by client and combination of groups.

    ``attributes`` name the entries of each cell's ``groups``. Two cells may have the same groups,
    where these are not known or not compared.
    """

    attributes: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class CountedPredictions:
    """Every client's counts.

    ``rates`` says what each entry of ``group_counts`` counts. ``labels`` are the negative and the
    positive value, ``None`` for scores without a label. ``notes`` are sentences for the user.
    ``cells`` count the same rows by client and combination of groups.
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
        Without a label only selection rates can be compared, and there is no accuracy.
    threshold : number, optional
        Predictions are scores, and those of at least the threshold are selected. Without it
        they are classes, in the words of the label if there is one.
    groups : mapping from attribute to the groups to compare, by default all
    """
    frame = named_columns(frame)
    _check_columns(frame, columns)
    roles = _read_roles(frame[columns.names], columns)
    labels = None if columns.label is None else roles.labels
    if threshold is None:
        classes = texts(frame[columns.prediction])
        _check_complete(classes.codes < 0, roles.client, columns.prediction)
        labels = labels or _class_pair(classes.levels, columns)
        selected = _in_class(classes, labels, columns)
        note = f"Prediction {columns.prediction!r}: {labels[1]!r} counts as selected."
    else:
        selected = _at_least(threshold, frame[columns.prediction], roles.client)
        note = f"Prediction {columns.prediction!r}: scores of at least {threshold:g} are selected."
    levels = compare_only(roles.levels, groups or {})
    rates = _rates(levels, _KINDS[:1] if columns.label is None else _KINDS)
    counts = _count(roles, selected, rates, is_labelled=columns.label is not None)
    if threshold is not None and columns.label is not None:
        counts = with_scores(counts, numbers(frame[columns.prediction]), roles, levels)
    cells = tuple(_cells(roles, selected, levels))
    return CountedPredictions(rates, levels, labels, counts, (note, *_unknown_groups(roles)), cells)


def _check_columns(frame: Frame, columns: PredictionColumns) -> None:
    seen: dict[str, str] = {}
    for role, name in columns.roles():
        if name not in frame.columns:
            raise DataError(
                f"`{role}` must be a column of the table, got {name!r}. "
                f"{did_you_mean(name, frame.columns)}"
            )
        if name in seen:
            raise DataError(
                f"Column {name!r} must have one role, got `{seen[name]}` and `{role}`. "
                "Name a different column for one of them."
            )
        seen[name] = role


def _read_roles(frame: Frame, columns: PredictionColumns) -> Roles:
    """Clients, groups and, where there is one, the label."""
    if columns.label is not None:
        roles = Columns(columns.client, columns.label, columns.sensitive, (), columns.positive)
        return read_roles(frame, roles)
    roles = Columns(columns.client, _STAND_IN, columns.sensitive)
    return read_roles(frame.assign(**{_STAND_IN: 0}), roles, labels=("0", "1"))


def _check_complete(is_empty: Flags, client: Texts, name: str) -> None:
    empty = np.bincount(client.codes[is_empty], minlength=len(client.levels))
    if empty.any():
        worst = int(empty.argmax())
        raise DataError(
            f"Prediction column {name!r} is empty in {int(empty.sum())} of {len(is_empty)} rows, "
            f"{int(empty[worst])} of them of client {client.levels[worst]!r}. "
            "Fill them in or remove these rows."
        )


def _class_pair(values: tuple[str, ...], columns: PredictionColumns) -> tuple[str, str]:
    """The negative and the positive value of predictions that have no label beside them."""
    if columns.positive is not None:
        positive = text_of(columns.positive)
        others = [value for value in values if value != positive]
        if len(others) == len(values) > 1:
            raise DataError(
                f"`positive` must be a value of prediction column {columns.prediction!r}, got "
                f"{columns.positive!r}. {did_you_mean(positive, values)}"
            )
        if len(others) <= 1:
            return (*others, f"not {positive}")[0], positive
    for pair in _OBVIOUS_PAIRS:
        if set(values) <= set(pair):
            return pair
    if len(values) == 2:
        return ordered_pair(values)
    raise DataError(_not_two(values, columns.prediction))


def _not_two(values: tuple[str, ...], name: str) -> str:
    shown = ", ".join(repr(value) for value in values[:3]) + (", …" if len(values) > 3 else "")
    way_out = (
        "Say with `--positive` which value counts as selected."
        if len(values) == 1
        else "If these are scores, pass `--threshold`."
    )
    return f"Prediction column {name!r} must have two values, got {len(values)}: {shown}. {way_out}"


def _in_class(classes: Texts, pair: tuple[str, str], columns: PredictionColumns) -> Flags:
    """Which rows are predicted positive."""
    strange = [value for value in classes.levels if value not in pair]
    if strange:
        raise DataError(
            f"Prediction column {columns.prediction!r} must hold {pair[0]!r} or {pair[1]!r}, as "
            f"label column {columns.label!r} does, got {strange[0]!r}. "
            "If these are scores, pass `--threshold`."
        )
    is_positive = np.array([value == pair[1] for value in classes.levels], dtype=np.bool_)
    return is_positive[classes.codes]


def _at_least(threshold: float, scores: Column, client: Texts) -> Flags:
    """Which rows have a score of at least the threshold."""
    if not math.isfinite(threshold):
        raise ValueError(f"`threshold` must be a finite number, got {threshold!r}.")
    values = numbers(scores)
    _check_complete(np.isnan(values), client, str(scores.name))
    return values >= threshold


def _rates(levels: Mapping[str, Sequence[str]], kinds: Sequence[RateKind]) -> tuple[RateId, ...]:
    return tuple(
        RateId(kind, name, group) for kind in kinds for name in levels for group in levels[name]
    )


def _count(
    roles: Roles, selected: Flags, rates: Sequence[RateId], *, is_labelled: bool
) -> dict[ClientId, Counted]:
    """Counts of each client; rows are only ever counted, never looped over."""
    by_rate = [_rate_counts(table, rate, roles) for table, rate in _tables(roles, selected, rates)]
    shape = (len(rates), len(roles.client.levels))
    rows = np.array([found.sum(axis=1) for found in by_rate], dtype=np.float64).reshape(shape).T
    chosen = np.array([found[:, 1] for found in by_rate], dtype=np.float64).reshape(shape).T
    confusion = _table(roles, selected, None)[:, 0]
    return {
        client: _counts_of(confusion[code], rows[code], chosen[code], is_labelled=is_labelled)
        for code, client in enumerate(roles.client.levels)
    }


def _counts_of(confusion: Table, rows: Vector, selected: Vector, *, is_labelled: bool) -> Counted:
    """One client's counts from its rows by (label, selected)."""
    if not is_labelled:
        return Selections(int(confusion.sum()), int(confusion[:, 1].sum()), rows, selected)
    (true_negative, false_positive), (false_negative, true_positive) = confusion.tolist()
    return Counts(
        true_negative, false_positive, false_negative, true_positive, math.nan, rows, selected
    )


def _tables(
    roles: Roles, selected: Flags, rates: Sequence[RateId]
) -> Iterator[tuple[Table, RateId]]:
    """Each rate with the table of its attribute, made once."""
    tables = {name: _table(roles, selected, name) for name in {rate.attribute for rate in rates}}
    for rate in rates:
        yield tables[rate.attribute], rate


def _table(roles: Roles, selected: Flags, attribute: str | None) -> Table:
    """Rows by (client, group, label, selected); rows without a group are the last group."""
    n_groups = len(roles.levels[attribute]) if attribute is not None else 0
    group = roles.groups[attribute] if attribute is not None else -1
    code = roles.client.codes * (n_groups + 1) + np.where(group < 0, n_groups, group)
    code = (code * 2 + roles.y.astype(np.intp)) * 2 + selected
    shape = (len(roles.client.levels), n_groups + 1, 2, 2)
    return np.bincount(code, minlength=math.prod(shape)).reshape(shape)


def _rate_counts(table: Table, rate: RateId, roles: Roles) -> Table:
    """Rows of one rate by (client, selected)."""
    of_group = table[:, roles.levels[rate.attribute].index(rate.group)]
    label = LABEL_OF[rate.kind]
    return np.asarray(of_group.sum(axis=1) if label is None else of_group[:, label])


def _cells(roles: Roles, selected: Flags, levels: Mapping[str, Sequence[str]]) -> Iterator[Cell]:
    """Rows by client and combination of groups; a group that is not compared is not known."""
    codes = np.column_stack([roles.client.codes, *(roles.groups[name] for name in levels)])
    found, which = np.unique(codes, axis=0, return_inverse=True)
    rows = np.bincount(which.ravel(), minlength=len(found))
    chosen = np.bincount(which.ravel(), weights=selected, minlength=len(found))
    for (client, *groups), n, k in zip(found.tolist(), rows.tolist(), chosen.tolist(), strict=True):
        names = [
            roles.levels[name][code] if code >= 0 else None
            for name, code in zip(levels, groups, strict=True)
        ]
        compared = [g if g in levels[a] else None for a, g in zip(levels, names, strict=True)]
        yield Cell(roles.client.levels[client], tuple(compared), n, int(k))


def _unknown_groups(roles: Roles) -> Iterator[str]:
    for name, codes in roles.groups.items():
        unknown = int((codes < 0).sum())
        if unknown:
            yield f"{unknown} of {len(codes)} rows have no value in {name!r} and are in no group."
