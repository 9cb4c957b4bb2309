"""Split an answer into a visible part and numbers that are summed under masks.

Curvature always; and counts, rates and their gradients where no rule compares them at a client,
only over all rows together. The sums of these are then given to one client, the *carrier*, and all
others have none: for whoever is above, its groups are those of all clients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, Report, Request, Vector
from fcfl.client.client import Client, Counted, Evaluate, OnRows, Setup
from fcfl.client.counts import Counts
from fcfl.errors import ReportError
from fcfl.federation.masks.arithmetic import from_triangle, upper_triangle

OnRowsAnswer: TypeAlias = tuple[Report, ...] | Counted
Columns: TypeAlias = NDArray[np.intp]


def summed_rates(setup: Setup) -> Columns:
    """Positions of the rates of attributes that only rules of scope "global" compare."""
    local, together = (
        {rule.attribute for rule in setup.rules if rule.scope == scope}
        for scope in ("client", "global")
    )
    only = [i for i, rate in enumerate(setup.rates) if rate.attribute in together - local]
    return np.array(only, dtype=np.intp)


def wants_sum(question: OnRows) -> bool:
    """Whether part of the answer is needed as a sum only."""
    curved = isinstance(question, Evaluate) and any(
        point.want == "curvature" for point in question.request.points
    )
    return curved or summed_rates(question.setup).size > 0


def n_hidden(question: OnRows) -> int:
    """How many numbers of an answer are summed."""
    n_rates = summed_rates(question.setup).size
    if isinstance(question, Evaluate):
        return sum(_n_of_point(point, n_rates) for point in question.request.points)
    return 6 * n_rates


def _n_of_point(point: Point, n_rates: int) -> int:
    n = point.params.size
    triangle = n * (n + 1) // 2 if point.want == "curvature" else 0
    return triangle + n_rates * (2 + (n if point.wants_gradients else 0))


def hide(question: OnRows, answer: OnRowsAnswer) -> tuple[OnRowsAnswer, Vector]:
    """The answer without what is summed, and that as numbers."""
    columns = summed_rates(question.setup)
    if isinstance(answer, Counted):
        report, numbers = _hide_report(answer.report, columns)
        parts = [_hide_counts(counts, columns) for counts in (answer.train, answer.test)]
        asked = {question.setup.rates[i].attribute for i in columns}
        train, test = (_without_scores(counts, asked) for counts, _ in parts)
        decided = None if columns.size else answer.decided  # it would tell each client's rates
        return replace(
            answer, report=report, train=train, test=test, decided=decided
        ), np.concatenate([numbers, *(n for _, n in parts)])
    hidden = [_hide_report(report, columns) for report in answer]
    return tuple(one for one, _ in hidden), np.concatenate([n for _, n in hidden])


def _hide_report(report: Report, columns: Columns) -> tuple[Report, Vector]:
    rows = report.group_counts[columns]
    numbers = [rows, rows * report.rates[columns]]
    if report.rate_grads is not None:
        numbers.append((rows[:, None] * report.rate_grads[columns]).ravel())
    if report.curvature is not None:
        numbers.insert(0, upper_triangle(report.curvature))
    grads = report.rate_grads
    if grads is not None and columns.size:
        grads = grads.copy()
        grads[columns] = 0.0
    return (
        replace(
            report,
            group_counts=_zeroed(report.group_counts, columns),
            rates=_zeroed(report.rates, columns),
            rate_grads=grads,
            curvature=None,
        ),
        np.concatenate(numbers),
    )


def _hide_counts(counts: Counts, columns: Columns) -> tuple[Counts, Vector]:
    numbers = np.concatenate([counts.group_counts[columns], counts.group_selected[columns]])
    return (
        replace(
            counts,
            group_counts=_zeroed(counts.group_counts, columns),
            group_selected=_zeroed(counts.group_selected, columns),
        ),
        numbers,
    )


def _without_scores(counts: Counts, attributes: set[str]) -> Counts:
    """Remove counts by score, which would reveal the group's rows."""
    return replace(counts, scores=tuple(s for s in counts.scores if s.attribute not in attributes))


def _zeroed(values: Matrix, columns: Columns) -> Matrix:
    """A copy whose last axis is zero in ``columns``."""
    found = values.copy()
    found[..., columns] = 0.0
    return found


def is_hidden(question: OnRows, answer: OnRowsAnswer) -> bool:
    """Whether an answer has no visible number of what is summed."""
    columns = summed_rates(question.setup)
    if isinstance(answer, Counted):
        if columns.size and answer.decided is not None:
            return False
        told = [answer.report.group_counts, answer.train.group_counts, answer.test.group_counts]
    else:
        told = [one.group_counts for one in answer]
    return not any(counts[columns].any() for counts in told)


def carrier_of(names: Iterable[ClientId]) -> ClientId:
    """Return the client that is given all clients' groups, whatever the order of answers."""
    return min(names)


def restore(
    question: OnRows, answers: Mapping[ClientId, Any], total: Vector
) -> tuple[dict[ClientId, Any], list[Matrix | None]]:
    """The answers, the carrier's with all clients' groups, and the curvatures' sums."""
    columns, carrier = summed_rates(question.setup), carrier_of(answers)
    numbers, own = _Numbers(total), answers[carrier]
    sums: list[Matrix | None] = []
    if isinstance(own, Counted):
        most = sum(one.report.n_rows for one in answers.values())
        report = _restore_report(own.report, columns, numbers, most)
        train, test = (
            _restore_counts(
                getattr(own, part),
                columns,
                numbers,
                sum(getattr(one, part).n_rows for one in answers.values()),
            )
            for part in ("train", "test")
        )
        own = replace(own, report=report, train=train, test=test)
    else:
        assert isinstance(question, Evaluate)
        restored = []
        for k, (point, report) in enumerate(zip(question.request.points, own, strict=True)):
            sums.append(_matrix(point, numbers))
            most = sum(one[k].n_rows for one in answers.values())
            restored.append(_restore_report(report, columns, numbers, most))
        own = tuple(restored)
    return {**answers, carrier: own}, sums


class _Numbers:
    """The numbers of a sum, taken one part after another."""

    def __init__(self, values: Vector) -> None:
        self._values, self._at = values, 0

    def next(self, size: int) -> Vector:
        """The next so many of them."""
        self._at += size
        return self._values[self._at - size : self._at]


def _matrix(point: Point, numbers: _Numbers) -> Matrix | None:
    n = point.params.size
    if point.want != "curvature":
        return None
    return from_triangle(numbers.next(n * (n + 1) // 2), n)


def _check_sums(rows: Vector, selected: Matrix, most: float) -> None:
    """Reject sums that counts cannot have: one client can make them anything."""
    off = 1e-6 * max(most, 1.0)
    is_counted = np.all((rows >= -off) & (rows <= most + off))
    if not is_counted or not np.all((selected >= -off) & (selected <= rows + off)):
        raise ReportError(
            "Groups' rows under masks add up to what counts cannot be: a client sent other numbers."
        )


def _restore_report(report: Report, columns: Columns, numbers: _Numbers, most: float) -> Report:
    if not columns.size:
        return report
    counts, rates, grads = report.group_counts.copy(), report.rates.copy(), report.rate_grads
    counts[columns] = rows = numbers.next(columns.size)
    selected, at_least = numbers.next(columns.size), np.maximum(rows, 1e-9)
    _check_sums(rows, selected, most)
    rates[columns] = np.clip(selected / at_least, 0.0, 1.0)
    if grads is not None:
        grads = grads.copy()
        grads[columns] = numbers.next(columns.size * grads.shape[1]).reshape(-1, grads.shape[1])
        grads[columns] /= at_least[:, None]
    return replace(report, group_counts=counts, rates=rates, rate_grads=grads)


def _restore_counts(counts: Counts, columns: Columns, numbers: _Numbers, most: float) -> Counts:
    rows, selected = counts.group_counts.copy(), counts.group_selected.copy()
    rows[columns] = numbers.next(columns.size)
    selected[columns] = numbers.next(columns.size)
    _check_sums(rows[columns], selected[columns], most)
    return replace(counts, group_counts=rows, group_selected=selected)


# --- weights of curvature -------------------------------------------------------------------------


def weights_by_row(
    weights: Mapping[ClientId, CurvatureWeights], columns: Columns, rows: Vector
) -> dict[ClientId, CurvatureWeights]:
    """The same weight of a summed rate for all clients: that of one row, of ``rows`` in all.

    What a client has of it is known to the client only: `with_own_rows`.
    """
    if not columns.size:
        return dict(weights)
    together = sum(one.rates[columns] for one in weights.values()) / np.maximum(rows, 1.0)
    found = {}
    for name, one in weights.items():
        rates = one.rates.copy()
        rates[columns] = together
        found[name] = replace(one, rates=rates)
    return found


def with_own_rows(client: Client, name: ClientId, question: OnRows) -> OnRows:
    """The question with the client's own weights: those of one row times its rows."""
    columns = summed_rates(question.setup)
    if not columns.size or not isinstance(question, Evaluate):
        return question
    points = tuple(_own(client, name, question.setup, p, columns) for p in question.request.points)
    return replace(question, request=Request(points))


def _own(client: Client, name: ClientId, setup: Setup, point: Point, columns: Columns) -> Point:
    if point.want != "curvature" or point.curvature_weights is None:
        return point
    (report,) = client.report(setup, (Point(point.params),))
    weights = point.curvature_weights[name]
    rates = weights.rates.copy()
    rates[columns] *= report.group_counts[columns]
    return replace(point, curvature_weights={name: replace(weights, rates=rates)})
