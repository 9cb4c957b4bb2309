"""Results of clients and of all rows together, from hard counts and smooth reports.

`row_sections` compares them with budgets. `find_degenerate` finds out whether a trained model
selects nearly nobody or everybody, and `threshold_selecting` at which threshold it would not: it
asks all clients for counts at other thresholds, at most `MOST_COUNTS` times, and only where the
model is degenerate. Nothing else leaves a client than the usual counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from fcfl._types import ClientId, RateId, Report, Vector, brief_repr
from fcfl.audit.auditing import Audit, Counted, Part, Simultaneous, audit_clients, pool
from fcfl.audit.verdicts import compare, disparity_value, forecast
from fcfl.client.counts import Counts, pool_counts
from fcfl.models.model import Model
from fcfl.privacy import attributes_of, cells_of
from fcfl.problem import Price
from fcfl.results.result import (
    AuditSection,
    ClientResult,
    Degenerate,
    DegenerateRows,
    PartName,
    RowCounts,
    WorstClient,
    degenerate_side,
)
from fcfl.rules import Rule


@dataclass(frozen=True)
class AuditTerms:
    """Confidence of the intervals of a result, and which groups are too small to compare."""

    confidence: float = 0.95
    simultaneous: Simultaneous = "bonferroni"
    min_group_rows: float | None = 1.0
    noise_sd: Mapping[PartName, float] = field(default_factory=dict)  # of each cell counted

    def audit(
        self,
        rules: Sequence[Rule],
        rates: Sequence[RateId],
        counts: Mapping[ClientId, Counted],
        trained_counts: Mapping[ClientId, Vector] | None = None,
        part: PartName = "train",
    ) -> Audit:
        """Audit counts on these terms; training rows may decide which groups are compared."""
        return audit_clients(
            rules,
            rates,
            counts,
            confidence=self.confidence,
            simultaneous=self.simultaneous,
            min_group_rows=self.min_group_rows,
            trained_counts=trained_counts,
            noise_sd=self.noise_sd.get(part, 0.0),
        )

    def section(self, audit: Audit) -> AuditSection:
        """Return the sentence on intervals, and the numbers in it."""
        return AuditSection(
            self.confidence, self.simultaneous, self.min_group_rows, audit.statement
        )


@dataclass(frozen=True)
class Evaluations:
    """Hard counts of every client and part, and its smooth report on training rows.

    ``drifts`` are the expected changes of each client's rates on new rows, where they are known.
    """

    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...]
    train: Mapping[ClientId, Counts]
    test: Mapping[ClientId, Counts]
    reports: Mapping[ClientId, Report]
    terms: AuditTerms = AuditTerms()
    drifts: Mapping[ClientId, Vector] | None = None

    __repr__ = brief_repr

    @property
    def count_noise(self) -> float:
        """How far a client's count of selected training rows may be off: 3 standard deviations."""
        sd = self.terms.noise_sd.get("train", 0.0)
        if sd == 0.0:
            return 0.0
        n_cells = len(cells_of(self.rates, "evaluation"))
        return float(3.0 * sd * np.sqrt(n_cells / 2) / len(attributes_of(self.rates)))

    @cached_property
    def audits(self) -> Mapping[PartName, Audit]:
        """The audit of each part."""
        trained = {client: counts.group_counts for client, counts in self.train.items()}
        return {
            "train": self.terms.audit(self.rules, self.rates, self.train, trained, "train"),
            "test": self.terms.audit(self.rules, self.rates, self.test, trained, "test"),
        }


@dataclass(frozen=True)
class RowSections:
    """The parts of a result that depend on rows."""

    worst_client: WorstClient
    clients: Mapping[ClientId, ClientResult]
    overall: ClientResult
    audit: AuditSection | None = None


def row_sections(evaluations: Evaluations, prices: Sequence[Price] = ()) -> RowSections:
    """Return the result of each client and of all rows together, with intervals and verdicts.

    ``prices`` are shown beside the training disparities of their budgets.
    """
    train, test, audits = evaluations.train, evaluations.test, evaluations.audits
    clients = {
        client: ClientResult(
            RowCounts(counts.n_rows, test[client].n_rows),
            _trained_part(evaluations, client, prices),
            audits["test"].clients[client],
        )
        for client, counts in train.items()
    }
    rows = RowCounts(*(sum(one.n_rows for one in part.values()) for part in (train, test)))
    overall = ClientResult(rows, _trained_part(evaluations, None, prices), audits["test"].overall)
    section = evaluations.terms.section(audits["test" if rows.test else "train"])
    return RowSections(worst_by_loss(clients), clients, overall, section)


def _trained_part(
    evaluations: Evaluations, client: ClientId | None, prices: Sequence[Price]
) -> Part:
    """Return training rows with smooth disparities and forecasts; None: all rows together."""
    audit, drifts = evaluations.audits["train"], evaluations.drifts
    drift: Vector | None
    if client is None:
        counts, part = pool(evaluations.train.values()), audit.overall
        rules, reports = audit.global_rules, evaluations.reports
        rows = np.array([report.group_counts for report in reports.values()])
        smooth = _pooled(np.array([report.rates for report in reports.values()]), rows)
        drift = None if drifts is None else _pooled(np.array([drifts[c] for c in reports]), rows)
        rows = rows.sum(axis=0)
    else:
        counts, part = evaluations.train[client], audit.clients[client]
        rules, report = audit.client_rules, evaluations.reports[client]
        smooth, rows = report.rates, report.group_counts
        drift = None if drifts is None else drifts[client]
        if not counts.n_rows:  # no rows to count, but a loss is reported
            part = replace(part, loss=report.loss)
    decided = np.asarray(counts.group_selected / np.maximum(counts.group_counts, 1.0))
    known = {(p.client, p.rule, p.metric, p.attribute): p.value for p in prices}
    entries = []
    for rule, entry in zip(rules, part.disparities, strict=True):
        least = rule.least_rows(client, evaluations.terms.min_group_rows)
        compared = compare(rule, evaluations.rates, rows, least)
        budget = rule.budget_of(client)
        expected = None
        if counts.n_rows:
            expected = forecast(rule, compared, smooth, decided, rows, budget, drifts=drift)
        value = disparity_value(rule, compared, smooth * rows, rows)
        price = known.get((client, rule.name, rule.metric, rule.attribute))
        entries.append(replace(entry, smooth=value, expected=expected, price=price))
    return replace(part, disparities=tuple(entries))


def _pooled(rates: Vector, rows: Vector) -> Vector:
    """Return rates over all clients' rows together, from one row of the arrays for each client."""
    return np.asarray((rows * rates).sum(axis=0) / np.maximum(rows.sum(axis=0), 1.0))


def worst_by_loss(clients: Mapping[ClientId, ClientResult]) -> WorstClient:
    """Return the client with the largest training loss, or nobody where no loss is known."""
    if all(client.train.loss is None for client in clients.values()):
        return WorstClient(None, None, None)
    name = max(clients, key=lambda client: clients[client].train.loss or 0.0)
    return WorstClient(name, clients[name].train.loss, clients[name].test.accuracy)


MOST_COUNTS = 10  # thresholds tried
_NEAR = 0.02  # of the rarer label's rows: near enough to stop
_NEAR_ENOUGH = 0.2  # of the rarer label's rows: the most that advice may be off by
_FARTHEST = 30.0  # log-odds, beyond which no score is a probability in float64 other than 0 or 1


def find_degenerate(
    model: Model, train: Mapping[ClientId, Counts], noise: float = 0.0
) -> Degenerate | None:
    """Return the finding for a model by the counts of its decisions, None if it is useful.

    ``noise`` is how far counts of one client may be off. The finding is about

    1. the clients judged by their own rows, if there are any,
    2. all clients together, if their pooled rows are judged so and some client alone is not:
       advice then serves all of them.
    """
    own = [_judged(name, counts, noise) for name, counts in train.items()]
    found = [one for one in own if one is not None]
    if len(found) < len(own):
        together = _judged(None, pool_counts(train.values()), noise * math.sqrt(len(train)))
        found = found if together is None else [together]
    return Degenerate(tuple(found), model.threshold) if found else None


def _judged(client: ClientId | None, counts: Counts, noise: float) -> DegenerateRows | None:
    n_rows, positives, selected = counts.n_rows, counts.n_positive, counts.n_selected
    side = degenerate_side(selected, positives, n_rows, noise)
    return None if side is None else DegenerateRows(client, side, n_rows, positives, selected)


def threshold_selecting(
    wanted: int, n_rows: int, select: Callable[[float], int]
) -> tuple[float, int] | None:
    """Return the threshold that selects about ``wanted`` of the rows, and how many it selects.

    ``select`` counts the rows selected at a threshold. The search brackets the root of the
    log-odds of the share selected, which is nearly linear in those of the threshold. Return None
    if no count is within a fifth.
    """
    rarer, wanted_odds = min(wanted, n_rows - wanted), _odds(wanted, n_rows)
    low = -_FARTHEST, _odds(n_rows, n_rows) - wanted_odds  # log-odds that select too many
    high = _FARTHEST, _odds(0, n_rows) - wanted_odds  # and too few
    at, step, best = float(logit(wanted / n_rows)), 1.0, (math.nan, -n_rows)
    for tried in range(MOST_COUNTS):
        threshold = _typed(at)
        count = select(threshold)
        if abs(count - wanted) < abs(best[1] - wanted):
            best = threshold, count
        if abs(count - wanted) <= _NEAR * rarer:
            break
        point = float(logit(threshold)), _odds(count, n_rows) - wanted_odds
        low, high = (point, high) if count > wanted else (low, point)
        if low[0] == -_FARTHEST or high[0] == _FARTHEST:  # not bracketed yet
            at = point[0] + (step if count > wanted else -step)
            at, step = min(max(at, 1.0 - _FARTHEST), _FARTHEST - 1.0), 2.0 * step
        else:  # the secant; each third time a bisection, if that gains little
            share = 0.5 if tried % 3 == 0 else low[1] / (low[1] - high[1])
            at = low[0] + min(max(share, 0.05), 0.95) * (high[0] - low[0])
    return best if abs(best[1] - wanted) <= _NEAR_ENOUGH * rarer else None


def _odds(count: int, n_rows: int) -> float:
    """Return the log-odds of a share of the rows, finite for all and for none."""
    return float(logit((count + 0.5) / (n_rows + 1.0)))


def _typed(log_odds: float) -> float:
    """Return the probability with three digits off 0 or 1, so that a person can type it."""
    small = float(f"{expit(-abs(log_odds)):.3g}")
    return small if log_odds < 0 else round(1.0 - small, 15)
