"""Check clients' answers once, on arrival: shapes, finite numbers, possible counts."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fcfl._checks import LARGEST, check_report, is_count, is_finite
from fcfl._types import LABEL_OF, ClientId, Point, RateId, RateKind, Vector
from fcfl.client.client import Counted, Introduction
from fcfl.client.counts import Counts
from fcfl.client.thresholds import RateWindow
from fcfl.data import Schema, Statistics
from fcfl.data.cells import Summary
from fcfl.errors import ReportError
from fcfl.policy import Ballot, Choices, PrivacyBudget, places
from fcfl.rules import Rule


def check_introduction(name: ClientId, said: Introduction) -> None:
    """Reject an introduction with invalid names, statistics, labels or policy."""
    if not isinstance(said, Introduction):
        raise ReportError(f"Client {name!r} sent no introduction.")
    if said.name != name:
        raise ReportError(f"Client {name!r} sent the introduction of {said.name!r}.")
    texts = [said.version, said.checksum, *said.labels, *said.levels, *said.present]
    for levels in (*said.levels.values(), *said.present.values()):
        texts += levels
    _expect(name, "names", all(isinstance(text, str) for text in texts))
    _expect(name, "rules", all(isinstance(rule, Rule) for rule in said.rules))
    counts = (said.min_group_rows, said.withhold_below)
    _expect(name, "policy counts", all(is_count(n) and n >= 1 for n in counts))
    _expect(name, "what it sends", isinstance(said.sends_spread, bool))
    sha256 = said.policy_sha256
    _expect(name, "a policy checksum", sha256 is None or isinstance(sha256, str))
    _expect(name, "privacy", said.privacy is None or isinstance(said.privacy, PrivacyBudget))
    _expect(name, "schema", said.schema is None or isinstance(said.schema, Schema))
    if said.statistics is None:
        return
    _expect(name, "statistics", isinstance(said.statistics, Statistics))
    for column, summary in said.statistics.columns.items():
        valid = isinstance(summary, Summary) and summary.is_valid()
        _expect(name, f"statistics of column {column!r}", valid)


def check_site_introduction(name: ClientId, said: Introduction) -> None:
    """Reject, too, a site without statistics or schema: its rows could not be encoded alike."""
    check_introduction(name, said)
    _expect(name, "statistics", said.statistics is not None or said.schema is not None)


def check_reports(
    name: ClientId,
    answers: object,
    points: tuple[Point, ...],
    n_rates: int,
    *,
    of_rows: bool = False,
) -> None:
    """Raise `ReportError` unless there is one valid report for each point."""
    if not isinstance(answers, (tuple, list)):
        kind = type(answers).__name__
        raise ReportError(f"Client {name!r} sent one {kind}, expected a tuple of reports.")
    if len(answers) != len(points):
        raise ReportError(
            f"Client {name!r} sent {len(answers)} reports for a request of {len(points)} points."
        )
    for point, report in zip(points, answers, strict=True):
        check_report(name, report, point, n_rates, of_rows=of_rows)


def check_counted(
    name: ClientId,
    said: Counted,
    params: Vector,
    rates: Sequence[RateId],
    *,
    of_rows: bool = False,
) -> None:
    """Reject invalid counts: negative, of other groups, or more than there are rows.

    Counts ``of_rows`` are of as many training rows as the report.
    """
    if not isinstance(said, Counted):
        raise ReportError(f"Client {name!r} sent {type(said).__name__} instead of counts.")
    check_report(name, said.report, Point(params), len(rates), of_rows=of_rows)
    decided = said.report if said.decided is None else replace(said.report, rates=said.decided)
    check_report(name, decided, Point(params, "decisions"), len(rates), of_rows=of_rows)
    for part, counts in (("training", said.train), ("held-out", said.test)):
        _expect(name, f"counts of its {part} rows", _are_counts(counts, rates))
    if of_rows:
        alike = said.train.n_rows == said.report.n_rows
        alike = alike and np.array_equal(said.train.group_counts, said.report.group_counts)
        _expect(name, "counts of its training rows", bool(alike) or not said.train.n_rows)


def check_thresholds(name: ClientId, said: object, windows: Sequence[RateWindow]) -> None:
    """Raise `ReportError` unless each group of the windows has one finite threshold."""
    groups = {group for window in windows for group in window.groups}
    holds = isinstance(said, Mapping) and set(said) == groups
    _expect(name, "thresholds", holds and all(map(is_finite, said.values())))  # type: ignore[attr-defined]


def check_ballot(name: ClientId, said: Ballot, choices: Choices) -> None:
    """Reject a ballot without a mark and a rank for every offer, or with gains that contradict."""
    if not isinstance(said, Ballot):
        raise ReportError(f"Client {name!r} sent {type(said).__name__} instead of a ballot.")
    n_offers = len(choices.offers)
    holds = len(said.approves) == n_offers and all(isinstance(a, bool) for a in said.approves)
    _expect(name, "marks of what it approves", holds)
    holds = len(said.ranks) == n_offers and all(map(is_finite, said.ranks))
    ranks = np.array(said.ranks)
    _expect(name, "places of the offers", holds and np.array_equal(places(-ranks), ranks))
    holds = is_count(said.walks_to) and said.walks_to < len(choices.alone)
    _expect(name, "a model it would have alone", holds)
    if said.gains:
        holds = len(said.gains) == n_offers and all(map(is_finite, said.gains))
        holds = holds and all(abs(gain) <= 1 for gain in said.gains)
        marked = tuple(gain >= 0 for gain in said.gains)
        _expect(name, "gains", holds and marked == said.approves)


class KnownCounts:
    """Rows and group rows of every client, which stay the same as long as a run lasts."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, ...]] = {}

    def check(self, name: ClientId, part: Hashable, n_rows: float, group_counts: Vector) -> None:
        """Reject counts that differ from the first ones of the same ``part`` of a client's rows."""
        said = (float(n_rows), *map(float, group_counts))
        known = self._known.setdefault((name, part), said)
        if said != known:
            first, now = next((a, b) for a, b in zip(known, said, strict=True) if a != b)
            raise ReportError(
                f"Client {name!r} sent a row count of {now:g} where it had sent {first:g}; its "
                "rows must not change during a run."
            )


def _are_counts(counts: object, rates: Sequence[RateId]) -> bool:
    if not isinstance(counts, Counts):
        return False
    cells = (counts.true_negative, counts.false_positive, counts.false_negative)
    if not all(is_count(n) and n <= LARGEST for n in (*cells, counts.true_positive)):
        return False
    if not (is_finite(counts.loss_sum) and 0 <= counts.loss_sum <= LARGEST):
        return False
    for array in (counts.group_counts, counts.group_selected):
        if not isinstance(array, np.ndarray) or array.shape != (len(rates),):
            return False
        if array.dtype != np.float64 or not (array == np.floor(np.abs(array))).all():
            return False
    if not (counts.group_selected <= counts.group_counts).all():
        return False
    return all(_are_within(counts, rates, kind) for kind in LABEL_OF)


def _are_within(counts: Counts, rates: Sequence[RateId], kind: RateKind) -> bool:
    """Whether the groups of each attribute, which share no row, are within all rows."""
    label = LABEL_OF[kind]
    selected = {0: counts.false_positive, 1: counts.true_positive}
    others = {0: counts.true_negative, 1: counts.false_negative}
    labels = (0, 1) if label is None else (label,)
    most_selected = sum(selected[one] for one in labels)
    most = most_selected + sum(others[one] for one in labels)
    for attribute in {rate.attribute for rate in rates}:
        own = [(r.kind, r.attribute) == (kind, attribute) for r in rates]
        if (
            counts.group_selected[own].sum() > most_selected
            or counts.group_counts[own].sum() > most
        ):
            return False
    return True


def _expect(name: ClientId, what: str, holds: bool) -> None:
    if not holds:
        raise ReportError(f"Client {name!r} sent invalid {what}.")
