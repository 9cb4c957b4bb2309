"""What a site may say: shapes, finite numbers, counts that can be."""

import numpy as np

from fcfl._checks import check_report, is_count, is_finite
from fcfl._types import ClientId, Point, Request
from fcfl.client.counts import Counts
from fcfl.data import CategorySummary, NumberSummary, Statistics
from fcfl.errors import ReportError
from fcfl.federation.messages import Counted, Introduction, Reported
from fcfl.rules import Rule


def check_introduction(said: Introduction) -> None:
    """Refuse what is no name, no statistics, no labels or no policy."""
    texts = [said.version, said.checksum, *said.labels, *said.levels]
    for levels in said.levels.values():
        texts += levels
    _expect(said.name, "names", all(isinstance(text, str) for text in texts))
    _expect(said.name, "rules", all(isinstance(rule, Rule) for rule in said.rules))
    counts = (said.min_group_rows, said.withhold_below)
    _expect(said.name, "a policy's counts", all(is_count(n) and n >= 1 for n in counts))
    sha256 = said.policy_sha256
    _expect(said.name, "a policy's checksum", sha256 is None or isinstance(sha256, str))
    _expect(said.name, "statistics", isinstance(said.statistics, Statistics))
    for column, summary in said.statistics.columns.items():
        _expect(said.name, f"statistics of column {column!r}", _is_summary(summary))


def _is_summary(summary: object) -> bool:
    if isinstance(summary, CategorySummary):
        return all(isinstance(level, str) for level in summary.counts) and all(
            map(is_count, (*summary.counts.values(), summary.missing))
        )
    return (
        isinstance(summary, NumberSummary)
        and is_count(summary.n)
        and is_count(summary.missing)
        and is_finite(summary.mean)
        and is_finite(summary.m2)
        and summary.m2 >= 0
    )


def check_reported(said: Reported, request: Request, n_rates: int) -> None:
    """Refuse what is not one valid report for each point."""
    if len(said.reports) != len(request.points):
        raise ReportError(
            f"Client {said.name!r} sent {len(said.reports)} reports for a request of "
            f"{len(request.points)} points."
        )
    for point, report in zip(request.points, said.reports, strict=True):
        check_report(said.name, report, point, n_rates)


def check_counted(said: Counted, point: Point, n_rates: int) -> None:
    """Refuse counts that cannot be: negative, of other groups, or more selected than there are."""
    check_report(said.name, said.report, point, n_rates)
    for part, counts in (("training", said.train), ("held-out", said.test)):
        _expect(said.name, f"counts of its {part} rows", _are_counts(counts, n_rates))
    _expect(said.name, "counts of its training rows", said.train.n_rows > 0)


def _are_counts(counts: object, n_rates: int) -> bool:
    if not isinstance(counts, Counts):
        return False
    cells = (counts.true_negative, counts.false_positive, counts.false_negative)
    if not (all(map(is_count, (*cells, counts.true_positive))) and is_finite(counts.loss_sum)):
        return False
    for array in (counts.group_counts, counts.group_selected):
        if not isinstance(array, np.ndarray) or array.shape != (n_rates,):
            return False
        if array.dtype != np.float64 or not (array == np.floor(np.abs(array))).all():
            return False
    selected = (counts.group_selected <= counts.group_counts).all()
    return bool(selected and (counts.group_counts <= counts.n_rows).all())


def _expect(name: ClientId, what: str, holds: bool) -> None:
    if not holds:
        raise ReportError(f"Client {name!r} sent {what} that cannot be.")
