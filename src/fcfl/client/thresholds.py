r"""Choose decision thresholds by group on the training rows of a client.

The thresholds maximise the number of correct decisions subject to, for each kind of rate compared,

.. math:: w \max_g r_g - \min_g r_g \le b

A difference has w = 1. A ratio has its budget as w and b = 0. Margins lower b. With
:math:`l = \min_g r_g` every rate lies in the window :math:`[l, (b + l) / w]`. Given the window, the
best threshold of each group is chosen independently. The rates of a group decrease in its
threshold, so that a window is a range of thresholds. For two kinds of rates, the ranges are
intersected.

All possible values of l are tried. For one kind of rate, the result is exact. For two kinds, all
pairs of lowest rates are tried, with at most `MAX_OF_TWO` thresholds for all groups together,
evenly spaced in the selection rate.

Scores are logits minus the cut of the model, so that 0 is the common threshold. Decisions are
weighted by the same cut (`decision_weights`).

Thresholds are rounded to a thousandth of the spread of the client's scores, or finer. They disclose
scores of single rows only to this precision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fcfl._types import LABEL_OF, ClientId, RateKind, Vector
from fcfl.problem import Constraints

MAX_OF_TWO = 1200  # maximum number of thresholds of all groups, if two kinds of rates are compared
MAX_KINDS = 2
_MIN_OF_TWO = 60  # minimum of this limit per group
_TOLERANCE = 1e-10  # for rounding errors
_STEPS = 1000.0  # minimum number of rounding steps between the quantiles `_MIDDLE` of the scores
_MIDDLE = (0.05, 0.95)
_TIE = 1e-6  # weight, in decisions, that breaks ties in favour of the threshold nearest to 0

Index = NDArray[np.intp]


@dataclass(frozen=True)
class RateWindow:
    """Limit on the rates of ``groups`` of one kind: ``weight * highest - lowest <= bound``."""

    kind: RateKind
    groups: tuple[str, ...]
    weight: float
    bound: float

    def highest(self, lowest: Vector) -> Vector:
        """Return the highest rate allowed, given the lowest: ``(bound + lowest) / weight``."""
        if self.weight == 0:
            return np.where(self.bound + lowest >= -_TOLERANCE, 1.0, -1.0)
        return np.asarray((self.bound + lowest + _TOLERANCE) / self.weight)


def best_thresholds(
    logits: Vector,
    labels: Vector,
    members: Mapping[str, NDArray[np.bool_]],
    windows: Sequence[RateWindow],
    weights: Vector | None = None,
) -> dict[str, float]:
    """Return the best threshold of every group in the windows.

    ``members`` are masks of the rows of each group. ``weights`` are the weights of the rows in the
    number of correct decisions.
    """
    kinds = tuple(dict.fromkeys(window.kind for window in windows))
    if len(kinds) > MAX_KINDS:
        raise ValueError(f"`windows` must have at most {MAX_KINDS} kinds of rates.")
    names = tuple(dict.fromkeys(group for window in windows for group in window.groups))
    if not names:
        return {}
    counted = np.ones(logits.size) if weights is None else weights
    digits = _digits(logits)
    limit = None if len(kinds) < 2 else max(_MIN_OF_TWO, MAX_OF_TWO // len(names))
    options = {
        name: _options(logits[inside], labels[inside], counted[inside], kinds, digits, limit)
        for name, inside in ((name, members[name]) for name in names)
    }
    chosen = _best(options, windows, kinds)
    return {name: float(options[name].thresholds[index]) for name, index in chosen.items()}


def decision_weights(labels: Vector, threshold: float, weights: Vector | None) -> Vector:
    r"""Return the weight of a correct decision on each row, given a decision threshold P.

    The threshold P minimises the expected cost :math:`(1-P) FN + P FP`. Rows with label 1 therefore
    have weight :math:`2(1-P)` and rows with label 0 have weight :math:`2P`, both 1 for P = ½.
    """
    by_label = np.where(labels == 1.0, 2.0 * (1.0 - threshold), 2.0 * threshold)
    return by_label if weights is None else by_label * weights


# --- one group's thresholds -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    """Candidate thresholds of a group in decreasing order, from selecting no row to all rows.

    ``gains`` are correct decisions minus those when no row is selected. ``rates`` are the rates of
    each kind, in increasing order.
    """

    thresholds: Vector
    gains: Vector
    rates: Mapping[RateKind, Vector]

    def take(self, index: Index) -> "_Options":
        """Return the options at the positions ``index``."""
        rates = {kind: own[index] for kind, own in self.rates.items()}
        return _Options(self.thresholds[index], self.gains[index], rates)


def _digits(logits: Vector) -> int:
    """Return the number of decimals to which thresholds are rounded, from the spread of scores."""
    low, high = np.quantile(logits, _MIDDLE)
    spread = high - low if high > low else np.ptp(logits)
    if not spread > 0:
        return 3
    return int(np.clip(-np.floor(np.log10(spread / _STEPS)), -12, 12))


def _options(
    logits: Vector,
    labels: Vector,
    weights: Vector,
    kinds: Sequence[RateKind],
    digits: int,
    limit: int | None,
) -> _Options:
    """Return one threshold for each distinct set of selected rows, up to ``limit`` if given."""
    order = np.argsort(logits, kind="stable")
    logits, labels, weights = logits[order], labels[order], weights[order]
    thresholds = _between(logits, digits)
    from_here = np.searchsorted(logits, thresholds, side="left")

    def beyond(values: Vector) -> Vector:
        """Return the sum of ``values`` over the rows selected by each threshold."""
        return np.asarray(values.sum() - np.concatenate([[0.0], np.cumsum(values)])[from_here])

    def rates(label: int | None) -> Vector:
        inside = np.ones(labels.size) if label is None else (labels == label).astype(np.float64)
        return np.asarray(np.round(beyond(inside)) / max(inside.sum(), 1.0))

    gains = beyond(weights * (2.0 * labels - 1.0))
    found = _Options(thresholds, gains, {kind: rates(LABEL_OF[kind]) for kind in kinds})
    if limit is None or thresholds.size <= limit:
        return found
    shares = np.linspace(0, labels.size, limit)
    spread = np.searchsorted(labels.size - from_here, shares)
    return found.take(np.union1d(spread, np.flatnonzero(thresholds == 0)))


def _between(logits: Vector, digits: int) -> Vector:
    """Return the midpoints between scores in decreasing order, with 0 for the gap that has 0."""
    scale = 10.0**digits
    marks = np.unique(np.floor(logits * scale))
    first = np.concatenate([[-np.inf], marks]) + 1  # smallest and largest threshold in each gap
    last = np.concatenate([marks, [np.inf]])
    middle = np.concatenate([marks[:1], np.ceil((marks[:-1] + marks[1:]) / 2), marks[-1:] + 1])
    middle = np.where((first <= 0) & (last >= 0), 0.0, middle)
    return np.unique(np.round(middle / scale, max(digits, 0)))[::-1]


# --- all groups together --------------------------------------------------------------------------


def _best(
    options: Mapping[str, _Options], windows: Sequence[RateWindow], kinds: Sequence[RateKind]
) -> dict[str, int]:
    """Return the position of each group's threshold in the best window."""
    rates_of = {
        kind: [options[g].rates[kind] for w in windows if w.kind == kind for g in w.groups]
        for kind in kinds
    }
    lowest = [np.unique(np.concatenate(rates)) for rates in rates_of.values()]
    shape = tuple(low.size for low in lowest)
    total, picked = np.zeros(shape), {}
    for name, own in options.items():
        first, end = np.zeros(shape, np.intp), np.full(shape, own.thresholds.size, np.intp)
        for window in windows:
            if name not in window.groups:
                continue
            axis = kinds.index(window.kind)
            low, rates = lowest[axis], own.rates[window.kind]
            along = [1] * len(kinds)
            along[axis] = low.size
            start = np.searchsorted(rates, low, side="left").reshape(along)
            stop = np.searchsorted(rates, window.highest(low), side="right").reshape(along)
            first, end = np.maximum(first, start), np.minimum(end, stop)
        nearness = np.abs(own.thresholds) / (1.0 + np.abs(own.thresholds))
        values = own.gains - _TIE * nearness
        picked[name], value = _largest_between(values, first, end)
        total += value
    place = np.unravel_index(int(np.argmax(total)), shape)
    return {name: int(index[place]) for name, index in picked.items()}


def _largest_between(values: Vector, first: Index, end: Index) -> tuple[Index, Vector]:
    """Return position and value of the maximum of ``values[first:end]``; -inf for an empty range.

    The maximum of every range of length 2^k is tabulated; any range is a union of two of these.
    """
    size = values.size
    table = [np.arange(size)]
    while 2 ** len(table) <= size:
        half, last = 2 ** (len(table) - 1), table[-1]
        left, right = last[: last.size - half], last[half:]
        table.append(np.where(values[right] > values[left], right, left))
    padded = np.zeros((len(table), size), dtype=np.intp)
    for level, largest in enumerate(table):
        padded[level, : largest.size] = largest
    length = np.maximum(end - first, 1)
    level = np.frexp(length)[1] - 1
    is_empty = end <= first
    left = padded[level, np.minimum(first, size - 1)]
    right = padded[level, np.clip(end - 2**level, 0, size - 1)]
    places = np.where(values[right] > values[left], right, left)
    return places, np.where(is_empty, -np.inf, values[places])


def windows_of(constraints: Constraints, bounds: Vector) -> dict[ClientId, tuple[RateWindow, ...]]:
    """Return the rate windows of each client, one for every block of rows and kind of rate.

    ``bounds`` are the bounds of the rows. A window has the lowest bound of its rows.
    """
    windows: dict[ClientId, dict[tuple[int, str], RateWindow]] = {}
    for row, block, bound in zip(constraints.rows, constraints.blocks, bounds, strict=True):
        assert row.client is not None, "rules over all rows are rejected before"
        kind: RateKind = row.kind  # type: ignore[assignment]
        weight = row.budget if row.rule == "ratio" else 1.0
        own, key = windows.setdefault(row.client, {}), (int(block), row.kind)
        window = own.get(key, RateWindow(kind, (), weight, float(bound)))
        groups = tuple(dict.fromkeys((*window.groups, row.group_a, row.group_b)))
        own[key] = replace(window, groups=groups, bound=min(window.bound, float(bound)))
    return {client: tuple(own.values()) for client, own in windows.items()}
