"""Hard counts and smooth reports of clients' rows, and what a result says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np

from fcfl._brief import brief_repr
from fcfl._types import ClientId, RateId, Report, Vector
from fcfl.audit import Audit, Estimate, Evidence, PartAudit, Selections, audit_clients
from fcfl.audit.auditing import Simultaneous
from fcfl.audit.disparities import compare, disparity_value
from fcfl.audit.forecast import forecast
from fcfl.audit.performance import Counted, pool
from fcfl.client.counts import Counts
from fcfl.rules import Rule

from .client_result import (
    PARTS,
    ClientResult,
    Disparity,
    Expected,
    GroupCount,
    GroupScores,
    Interval,
    Overall,
    Part,
    PartName,
    RowCounts,
    WorstClient,
)
from .result import AuditSection


@dataclass(frozen=True)
class AuditTerms:
    """How sure the intervals of a result are, and which groups are too small to compare."""

    confidence: float = 0.95
    simultaneous: Simultaneous = "bonferroni"
    min_group_rows: float | None = 1.0
    noise_sd: Mapping[PartName, float] = field(default_factory=dict)  # of each cell counted
    together: tuple[str, ...] = ()  # attributes of which one client has all clients' counts

    def audit(
        self,
        rules: Sequence[Rule],
        rates: Sequence[RateId],
        counts: Mapping[ClientId, Counted],
        trained_counts: Mapping[ClientId, Vector] | None = None,
        part: PartName = "train",
    ) -> Audit:
        """Hold counts against rules on these terms; training rows may decide what is compared."""
        return audit_clients(
            rules,
            rates,
            counts,
            confidence=self.confidence,
            simultaneous=self.simultaneous,
            min_group_rows=self.min_group_rows,
            trained_counts=trained_counts,
            noise_sd=self.noise_sd.get(part, 0.0),
            together=self.together,
        )

    def section(self, audit: Audit) -> AuditSection:
        """The sentence on intervals, and the numbers in it."""
        return AuditSection(
            self.confidence, self.simultaneous, self.min_group_rows, audit.statement
        )


@dataclass(frozen=True)
class Evaluations:
    """Hard counts of every client and part, and its smooth report on training rows.

    ``drifts`` are by how much each client's rates will differ on new rows, where that is known.
    """

    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...]
    train: Mapping[ClientId, Counts]
    test: Mapping[ClientId, Counts]
    reports: Mapping[ClientId, Report]
    terms: AuditTerms = AuditTerms()
    drifts: Mapping[ClientId, Vector] | None = None

    __repr__ = brief_repr

    @cached_property
    def audits(self) -> Mapping[PartName, Audit]:
        """What the rows of each part can support."""
        parts = {"train": self.train, "test": self.test}
        trained = {client: counts.group_counts for client, counts in self.train.items()}
        audit = self.terms.audit
        return {p: audit(self.rules, self.rates, parts[p], trained, p) for p in PARTS}


@dataclass(frozen=True)
class RowSections:
    """The parts of a result that speak of rows."""

    worst_client: WorstClient
    clients: Mapping[ClientId, ClientResult]
    overall: Overall
    audit: AuditSection | None = None


def row_sections(evaluations: Evaluations) -> RowSections:
    """What each client got and all rows together, with intervals and verdicts."""
    clients = _client_results(evaluations)
    held_out = any(counts.n_rows for counts in evaluations.test.values())
    judged = evaluations.audits["test" if held_out else "train"]
    return RowSections(
        worst_by_loss(clients), clients, _overall(evaluations), evaluations.terms.section(judged)
    )


def _client_results(evaluations: Evaluations) -> dict[ClientId, ClientResult]:
    train, test = evaluations.audits["train"], evaluations.audits["test"]
    found = {}
    for client, counts in evaluations.train.items():
        held_out = evaluations.test[client]
        trained = part_of(counts, train.clients[client], train.client_rules, evaluations.rates)
        if not counts.n_rows:  # a client without rows to count, which reports a loss all the same
            trained = replace(trained, loss=evaluations.reports[client].loss)
        report = evaluations.reports[client]
        found[client] = ClientResult(
            RowCounts(counts.n_rows, held_out.n_rows),
            _with_smooth(
                trained, client, train.client_rules, evaluations, report.rates, report.group_counts
            ),
            part_of(held_out, test.clients[client], test.client_rules, evaluations.rates),
        )
    return found


def _overall(evaluations: Evaluations) -> Overall:
    """The same for all clients' rows together."""
    train, test = evaluations.audits["train"], evaluations.audits["test"]
    counts, held_out = pool(evaluations.train.values()), pool(evaluations.test.values())
    trained = part_of(counts, train.overall, train.global_rules, evaluations.rates)
    rates, rows = _pooled_rates(list(evaluations.reports.values()))
    judged = part_of(held_out, test.overall, test.global_rules, evaluations.rates)
    trained = _with_smooth(trained, None, train.global_rules, evaluations, rates, rows)
    return Overall(with_scores(trained, counts), with_scores(judged, held_out))


def with_scores(part: Part, counts: Counted) -> Part:
    """The part with its rows by group, label and predicted probability, where they are told."""
    if isinstance(counts, Selections):
        return part
    return replace(
        part,
        scores=tuple(
            GroupScores(
                one.attribute,
                one.group,
                tuple(map(int, one.negatives)),
                tuple(map(int, one.positives)),
            )
            for one in counts.scores
            if one.n_rows
        ),
    )


def part_of(
    counts: Counted, audited: PartAudit, rules: Sequence[Rule], rates: Sequence[RateId]
) -> Part:
    """One client's rows: what was counted, and what that supports."""
    entries = zip(rules, audited.disparities, strict=True)
    positives = None if isinstance(counts, Selections) else counts.n_positive
    return Part(
        _mean_loss(counts),
        *_share(audited.accuracy),
        *_share(audited.balanced_accuracy),
        tuple(disparity(rule, evidence, counts, rates) for rule, evidence in entries),
        selected=counts.n_selected if counts.n_rows else None,
        positives=positives if counts.n_rows else None,
    )


def disparity(
    rule: Rule, evidence: Evidence, counts: Counted, rates: Sequence[RateId]
) -> Disparity:
    """A rule's hard value, its interval, its verdict, its groups."""
    groups = tuple(
        GroupCount(
            rate.kind,
            rate.group,
            int(counts.group_counts[i]),
            int(counts.group_selected[i]),
            is_compared=i in evidence.compared,
        )
        for i, rate in enumerate(rates)
        if rate.attribute == rule.attribute and rate.kind in rule.kinds
    )
    return Disparity(
        rule.metric,
        rule.attribute,
        rule.name,
        evidence.value,
        low=evidence.low,
        high=evidence.high,
        budget=evidence.budget,
        verdict=evidence.verdict,
        smallest_verifiable=evidence.smallest_verifiable,
        groups=groups,
        notes=evidence.notes,
    )


def _with_smooth(
    part: Part,
    client: ClientId | None,
    rules: Sequence[Rule],
    evaluations: Evaluations,
    smooth_rates: Vector,
    rows: Vector,
) -> Part:
    """A part of training rows with the smooth disparities, and with what to expect on new rows."""
    decided = _decided(evaluations, client)
    entries = tuple(
        replace(
            entry,
            smooth=_smooth(rule, client, smooth_rates, rows, evaluations),
            expected=_expected(rule, client, smooth_rates, decided, rows, evaluations),
        )
        for entry, rule in zip(part.disparities, rules, strict=True)
    )
    return replace(part, disparities=entries)


def _mean_loss(counts: Counted) -> float | None:
    told = None if isinstance(counts, Selections) or not counts.n_rows else counts.loss_sum
    return None if told is None or np.isnan(told) else told / counts.n_rows


def _share(estimate: Estimate | None) -> tuple[float | None, Interval | None]:
    if estimate is None:
        return None, None
    return estimate.value, (estimate.low, estimate.high)


def _smooth(
    rule: Rule,
    client: ClientId | None,
    smooth_rates: Vector,
    rows: Vector,
    evaluations: Evaluations,
) -> float | None:
    """The smooth disparity between the groups that are compared."""
    least = rule.least_rows(client, evaluations.terms.min_group_rows)
    compared = compare(rule, evaluations.rates, rows, least)
    return disparity_value(rule, compared, smooth_rates * rows, rows)


def _expected(
    rule: Rule,
    client: ClientId | None,
    smooth_rates: Vector,
    decided: Vector | None,
    rows: Vector,
    evaluations: Evaluations,
) -> Expected | None:
    if decided is None:
        return None
    least = rule.least_rows(client, evaluations.terms.min_group_rows)
    compared = compare(rule, evaluations.rates, rows, least)
    budget, drifts = rule.budget_of(client), _drifts(evaluations, client)
    found = forecast(rule, compared, smooth_rates, decided, rows, budget, drifts=drifts)
    return None if found is None else Expected(**asdict(found))


def _decided(evaluations: Evaluations, client: ClientId | None) -> Vector | None:
    """Hard rates of training rows, None for a client without rows to count."""
    counts = pool(evaluations.train.values()) if client is None else evaluations.train[client]
    if not counts.n_rows:
        return None
    return np.asarray(counts.group_selected / np.maximum(counts.group_counts, 1.0))


def _drifts(evaluations: Evaluations, client: ClientId | None) -> Vector | None:
    """By how much rates will differ on new rows: one client's, or those of all rows together."""
    drifts = evaluations.drifts
    if drifts is None:
        return None
    if client is not None:
        return drifts[client]
    reports = evaluations.reports.items()
    return _pooled_rates([replace(report, rates=drifts[name]) for name, report in reports])[0]


def _pooled_rates(reports: Sequence[Report]) -> tuple[Vector, Vector]:
    """Smooth rates over all clients' rows together, and the rows behind each."""
    rows = np.array([report.group_counts for report in reports])
    rates = np.array([report.rates for report in reports])
    together: Vector = rows.sum(axis=0)
    return (rows * rates).sum(axis=0) / np.maximum(together, 1.0), together


def worst_by_loss(clients: Mapping[ClientId, ClientResult]) -> WorstClient:
    """Who is served worst: the largest training loss; nobody where no loss was told."""
    if all(client.train.loss is None for client in clients.values()):
        return WorstClient(None, None, None)
    name = max(clients, key=lambda client: clients[client].train.loss or 0.0)
    return WorstClient(name, clients[name].train.loss, clients[name].test.accuracy)
