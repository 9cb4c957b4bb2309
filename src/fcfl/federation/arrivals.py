"""What a client may answer: shapes, finite numbers, possible counts. Checked once, on arrival."""

import numpy as np

from fcfl._checks import check_report, is_count, is_finite
from fcfl._types import ClientId, Point, Vector
from fcfl.client.counts import Counts
from fcfl.client.questions import Counted, HeldOut, Introduction
from fcfl.data import Statistics
from fcfl.data.statistics import Summary
from fcfl.errors import ReportError
from fcfl.rules import Rule


def check_introduction(name: ClientId, said: Introduction) -> None:
    """Refuse what is no name, no statistics, no labels or no policy."""
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
    sha256 = said.policy_sha256
    _expect(name, "a policy checksum", sha256 is None or isinstance(sha256, str))
    if said.statistics is None:
        return
    _expect(name, "statistics", isinstance(said.statistics, Statistics))
    for column, summary in said.statistics.columns.items():
        valid = isinstance(summary, Summary) and summary.is_valid()
        _expect(name, f"statistics of column {column!r}", valid)


def check_site_introduction(name: ClientId, said: Introduction) -> None:
    """Refuse also a site that says nothing of its columns: its rows could not be encoded alike."""
    check_introduction(name, said)
    _expect(name, "statistics", said.statistics is not None)


def check_reports(name: ClientId, answers: object, points: tuple[Point, ...], n_rates: int) -> None:
    """Refuse what is not one valid report for each point."""
    if not isinstance(answers, (tuple, list)):
        kind = type(answers).__name__
        raise ReportError(f"Client {name!r} sent one {kind}, expected a tuple of reports.")
    if len(answers) != len(points):
        raise ReportError(
            f"Client {name!r} sent {len(answers)} reports for a request of {len(points)} points."
        )
    for point, report in zip(points, answers, strict=True):
        check_report(name, report, point, n_rates)


def check_counted(
    name: ClientId, said: Counted, params: Vector, n_rates: int, *, needs_rows: bool
) -> None:
    """Refuse invalid counts: negative, of other groups, or more selected than there are."""
    if not isinstance(said, Counted):
        raise ReportError(f"Client {name!r} sent {type(said).__name__} instead of counts.")
    check_report(name, said.report, Point(params), n_rates)
    for part, counts in (("training", said.train), ("held-out", said.test)):
        _expect(name, f"counts of its {part} rows", _are_counts(counts, n_rates))
    _expect(name, "counts of its training rows", said.train.n_rows > 0 or not needs_rows)


def check_held_out(name: ClientId, said: HeldOut, n_candidates: int) -> None:
    """Refuse sums of another number of candidates, negative ones, and what is no number."""
    if not isinstance(said, HeldOut):
        raise ReportError(f"Client {name!r} sent {type(said).__name__} instead of held-out losses.")
    shapes = {"loss_sums": (n_candidates,), "product_sums": (n_candidates, n_candidates)}
    holds = is_finite(said.n_rows) and said.n_rows >= 0
    for part, shape in shapes.items():
        array = getattr(said, part)
        holds = holds and isinstance(array, np.ndarray) and array.shape == shape
        holds = holds and array.dtype == np.float64 and bool(np.isfinite(array).all())
    _expect(name, "held-out losses", bool(holds and (np.diag(said.product_sums) >= 0).all()))


def _are_counts(counts: object, n_rates: int) -> bool:
    if not isinstance(counts, Counts):
        return False
    cells = (counts.true_negative, counts.false_positive, counts.false_negative)
    if (
        not (all(map(is_count, (*cells, counts.true_positive))) and is_finite(counts.loss_sum))
        or counts.loss_sum < 0
    ):
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
        raise ReportError(f"Client {name!r} sent invalid {what}.")
