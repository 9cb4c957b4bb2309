"""Compute results of clients and of all rows together from hard counts and smooth reports.

`row_sections` compares the counts with budgets. `find_degenerate` detects a model that selects
nearly nobody or nearly everybody. For such a model only, `threshold_selecting` searches for a
better decision threshold: it requests counts from all clients at other thresholds, at most
`MAX_COUNTS` times. Clients send no other values than the usual counts.
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
from fcfl.results import result as results
from fcfl.rules import Rule


@dataclass(frozen=True)
class AuditTerms:
    """Options of the audits in a result; ``noise_sd`` is the standard deviation of counts."""

    confidence: float = 0.95
    simultaneous: Simultaneous = "bonferroni"
    min_group_rows: float | None = 1.0
    noise_sd: Mapping[results.PartName, float] = field(
        default_factory=dict
    )  # for each counted cell

    def audit(
        self,
        rules: Sequence[Rule],
        rates: Sequence[RateId],
        counts: Mapping[ClientId, Counted],
        trained_counts: Mapping[ClientId, Vector] | None = None,
        part: results.PartName = "train",
    ) -> Audit:
        """Audit counts by these options; ``trained_counts`` selects the groups to compare."""
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

    def section(self, audit: Audit) -> results.AuditSection:
        """Return the statement of an audit with its options."""
        return results.AuditSection(
            self.confidence, self.simultaneous, self.min_group_rows, audit.statement
        )


@dataclass(frozen=True)
class Evaluations:
    """Hard counts of every client on both parts, and its smooth report on training rows.

    ``drifts`` are the expected changes of each client's rates on new rows, None if not estimated.
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
    def audits(self) -> Mapping[results.PartName, Audit]:
        """The audits of training rows and of held-out rows."""
        trained = {client: counts.group_counts for client, counts in self.train.items()}
        return {
            "train": self.terms.audit(self.rules, self.rates, self.train, trained, "train"),
            "test": self.terms.audit(self.rules, self.rates, self.test, trained, "test"),
        }


@dataclass(frozen=True)
class RowSections:
    """The fields of a `Result` that are computed from rows."""

    worst_client: results.WorstClient
    clients: Mapping[ClientId, results.ClientResult]
    overall: results.ClientResult
    audit: results.AuditSection | None = None


def row_sections(evaluations: Evaluations, prices: Sequence[Price] = ()) -> RowSections:
    """Return the result of each client and of all rows together, with intervals and verdicts.

    ``prices`` are added to the training disparities of the same budgets.
    """
    train, test, audits = evaluations.train, evaluations.test, evaluations.audits
    clients = {
        client: results.ClientResult(
            results.RowCounts(counts.n_rows, test[client].n_rows),
            _trained_part(evaluations, client, prices),
            audits["test"].clients[client],
        )
        for client, counts in train.items()
    }
    rows = results.RowCounts(*(sum(one.n_rows for one in part.values()) for part in (train, test)))
    overall = results.ClientResult(
        rows, _trained_part(evaluations, None, prices), audits["test"].overall
    )
    section = evaluations.terms.section(audits["test" if rows.test else "train"])
    return RowSections(worst_by_loss(clients), clients, overall, section)


def _trained_part(
    evaluations: Evaluations, client: ClientId | None, prices: Sequence[Price]
) -> Part:
    """Return the training part with smooth disparities and forecasts; None: all rows together."""
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
        if not counts.n_rows:  # the client reports a loss but no counts
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
    """Return the rates of all rows together, given arrays with one line for each client."""
    return np.asarray((rows * rates).sum(axis=0) / np.maximum(rows.sum(axis=0), 1.0))


def worst_by_loss(clients: Mapping[ClientId, results.ClientResult]) -> results.WorstClient:
    """Return the client with the largest training loss; all fields are None if no loss is known."""
    if all(client.train.loss is None for client in clients.values()):
        return results.WorstClient(None, None, None)
    name = max(clients, key=lambda client: clients[client].train.loss or 0.0)
    return results.WorstClient(name, clients[name].train.loss, clients[name].test.accuracy)


MAX_COUNTS = 10  # thresholds to try
_NEAR = 0.02  # error at which the search stops, as a share of the rows with the rarer label
_NEAR_ENOUGH = 0.2  # largest error of an advised threshold, as a share of the same rows
_FARTHEST = 30.0  # log-odds beyond which the probability is nearly 0 or 1 in float64


def find_degenerate(
    model: Model, train: Mapping[ClientId, Counts], noise: float = 0.0
) -> results.Degenerate | None:
    """Return the rows of which a model selects nearly none or nearly all, None otherwise.

    ``noise`` is the largest error of one client's counts. The result contains

    1. all rows together, if the pooled rows are degenerate and not every client is: one advised
       threshold then applies to all clients,
    2. otherwise, the degenerate clients, if any.
    """
    by_client = [_judged(name, counts, noise) for name, counts in train.items()]
    found = [rows for rows in by_client if rows is not None]
    if len(found) < len(by_client):
        pooled = _judged(None, pool_counts(train.values()), noise * math.sqrt(len(train)))
        found = found if pooled is None else [pooled]
    return results.Degenerate(tuple(found), model.threshold) if found else None


def _judged(client: ClientId | None, counts: Counts, noise: float) -> results.DegenerateRows | None:
    n_rows, positives, selected = counts.n_rows, counts.n_positive, counts.n_selected
    side = results.degenerate_side(selected, positives, n_rows, noise)
    return (
        None if side is None else results.DegenerateRows(client, side, n_rows, positives, selected)
    )


def threshold_selecting(
    wanted: int, n_rows: int, select: Callable[[float], int]
) -> tuple[float, int] | None:
    """Return the threshold that selects about ``wanted`` rows, and the number it selects.

    ``select`` returns the number of rows selected at a threshold. The search finds a root by
    bracketing: the log-odds of the selected share are nearly linear in the log-odds of the
    threshold. Return None if the error of every count tried exceeds a fifth (`_NEAR_ENOUGH`).
    """
    rarer, wanted_odds = min(wanted, n_rows - wanted), _odds(wanted, n_rows)
    low = -_FARTHEST, _odds(n_rows, n_rows) - wanted_odds  # a threshold that selects too many
    high = _FARTHEST, _odds(0, n_rows) - wanted_odds  # a threshold that selects too few
    at, step, best = float(logit(wanted / n_rows)), 1.0, (math.nan, -n_rows)
    for tried in range(MAX_COUNTS):
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
        else:  # secant steps, and a bisection in every third step
            share = 0.5 if tried % 3 == 0 else low[1] / (low[1] - high[1])
            at = low[0] + min(max(share, 0.05), 0.95) * (high[0] - low[0])
    return best if abs(best[1] - wanted) <= _NEAR_ENOUGH * rarer else None


def _odds(count: int, n_rows: int) -> float:
    """Return the log-odds of a share of the rows, finite for 0 and for all rows."""
    return float(logit((count + 0.5) / (n_rows + 1.0)))


def _typed(log_odds: float) -> float:
    """Return the probability, rounded to three digits of its distance from 0 or 1."""
    small = float(f"{expit(-abs(log_odds)):.3g}")
    return small if log_odds < 0 else round(1.0 - small, 15)
