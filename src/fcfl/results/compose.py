"""What a run found out, as the plain data of ``result.json``."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

from fcfl import __version__
from fcfl._types import ClientId, RateId, Report, Vector
from fcfl.audit import Audit, Estimate, Evidence, PartAudit, Selections, audit_clients
from fcfl.audit.auditing import Simultaneous
from fcfl.audit.disparities import compare, disparity_value
from fcfl.audit.performance import Counted, pool
from fcfl.client.counts import Counts, count_rows
from fcfl.data import ClientData
from fcfl.rules import Rule

SCHEMA = 1

Part = Literal["train", "test"]
PARTS: tuple[Part, Part] = ("train", "test")


@dataclass(frozen=True)
class AuditTerms:
    """How sure the intervals of a result are, and which groups are too small to compare."""

    confidence: float = 0.95
    simultaneous: Simultaneous = "bonferroni"
    min_group_rows: float = 1.0

    def audit(
        self, rules: Sequence[Rule], rates: Sequence[RateId], counts: Mapping[ClientId, Counted]
    ) -> Audit:
        """Hold counts against rules on these terms."""
        return audit_clients(
            rules,
            rates,
            counts,
            confidence=self.confidence,
            simultaneous=self.simultaneous,
            min_group_rows=self.min_group_rows,
        )


@dataclass(frozen=True)
class Findings:
    """Hard counts of every client and part, and its smooth report on training rows."""

    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...]
    train: Mapping[ClientId, Counts]
    test: Mapping[ClientId, Counts]
    reports: Mapping[ClientId, Report]
    terms: AuditTerms = AuditTerms()

    @cached_property
    def audits(self) -> dict[Part, Audit]:
        """What the rows of each part can support."""
        parts: dict[Part, Mapping[ClientId, Counts]] = {"train": self.train, "test": self.test}
        return {name: self.terms.audit(self.rules, self.rates, parts[name]) for name in parts}


def find(
    rules: Sequence[Rule],
    rates: Sequence[RateId],
    parts: Mapping[Part, Mapping[ClientId, ClientData]],
    logits: Callable[[Any], Vector],
    reports: Mapping[ClientId, Report],
    min_group_rows: float = 1.0,
) -> Findings:
    """Count hard decisions on the rows of both parts under a model's logits."""
    train, test = (
        {c: count_rows(logits(data.X), data, rates) for c, data in parts[part].items()}
        for part in PARTS
    )
    terms = AuditTerms(min_group_rows=min_group_rows)
    return Findings(tuple(rates), tuple(rules), train, test, reports, terms)


def row_sections(found: Findings) -> dict[str, Any]:
    """The parts of a result that speak of rows."""
    clients = clients_section(found)
    return {
        "worst_client": worst_client(clients),
        "clients": clients,
        "global": global_section(found),
        "audit": audit_section(found),
    }


def clients_section(found: Findings) -> dict[ClientId, Any]:
    """Rows, losses, accuracies and disparities of each client."""
    train, test = found.audits["train"], found.audits["test"]
    section = {}
    for client, counts in found.train.items():
        smooth = found.reports[client].rates
        trained = describe(counts, train.clients[client], train.client_rules, found.rates)
        add_smooth(trained, counts, train.client_rules, found, smooth)
        held_out = found.test[client]
        section[client] = {
            "rows": {"train": counts.n_rows, "test": held_out.n_rows},
            "train": trained,
            "test": describe(held_out, test.clients[client], test.client_rules, found.rates),
        }
    return section


def global_section(found: Findings) -> dict[str, Any]:
    """The same for all clients' rows together."""
    train, test = found.audits["train"], found.audits["test"]
    counts = pool(found.train.values())
    trained = describe(counts, train.overall, train.global_rules, found.rates)
    smooth = _pooled_rates(list(found.reports.values()))
    add_smooth(trained, counts, train.global_rules, found, smooth)
    held_out = pool(found.test.values())
    return {
        "train": trained,
        "test": describe(held_out, test.overall, test.global_rules, found.rates),
    }


def audit_section(found: Findings) -> dict[str, Any]:
    """How sure the intervals are, of the held-out rows or, without any, of the training rows."""
    part: Part = "test" if any(c.n_rows for c in found.test.values()) else "train"
    return audit_terms_section(found.terms, found.audits[part])


def audit_terms_section(terms: AuditTerms, audit: Audit) -> dict[str, Any]:
    """The sentence on intervals, and the numbers in it."""
    return {
        "confidence": terms.confidence,
        "simultaneous": terms.simultaneous,
        "min_group_rows": terms.min_group_rows,
        "statement": audit.statement,
    }


def describe(
    counts: Counted, audited: PartAudit, rules: Sequence[Rule], rates: Sequence[RateId]
) -> dict[str, Any]:
    """One holder's rows: what was counted, and what that supports."""
    entries = zip(rules, audited.disparities, strict=True)
    return {
        "loss": _mean_loss(counts),
        **_share("accuracy", audited.accuracy),
        **_share("balanced_accuracy", audited.balanced_accuracy),
        "disparities": [disparity(rule, found, counts, rates) for rule, found in entries],
    }


def disparity(
    rule: Rule, found: Evidence, counts: Counted, rates: Sequence[RateId]
) -> dict[str, Any]:
    """One entry D of the result: a rule's hard value, its interval, its verdict, its groups."""
    return {
        "metric": rule.metric,
        "attribute": rule.attribute,
        "rule": rule.name,
        "value": found.value,
        "smooth": None,
        "low": found.low,
        "high": found.high,
        "budget": found.budget,
        "verdict": found.verdict,
        "price": None,
        "smallest_verifiable": found.smallest_verifiable,
        "groups": _groups(rule, counts, rates),
        "notes": list(found.notes),
    }


def add_smooth(
    part: dict[str, Any],
    counts: Counted,
    rules: Sequence[Rule],
    found: Findings,
    smooth_rates: Vector,
) -> None:
    """Put the smooth disparities, which only training knows, into a part of training rows."""
    for entry, rule in zip(part["disparities"], rules, strict=True):
        entry["smooth"] = _smooth(rule, smooth_rates, counts.group_counts, found)


def _mean_loss(counts: Counted) -> float | None:
    if isinstance(counts, Selections) or not counts.n_rows:
        return None
    return counts.loss_sum / counts.n_rows


def _share(name: str, found: Estimate | None) -> dict[str, Any]:
    if found is None:
        return {name: None, f"{name}_interval": None}
    return {name: found.value, f"{name}_interval": [found.low, found.high]}


def _groups(rule: Rule, counts: Counted, rates: Sequence[RateId]) -> list[dict[str, Any]]:
    return [
        {
            "rate": rate.kind,
            "group": rate.group,
            "rows": int(counts.group_counts[i]),
            "selected": int(counts.group_selected[i]),
        }
        for i, rate in enumerate(rates)
        if rate.attribute == rule.attribute and rate.kind in rule.kinds
    ]


def _smooth(rule: Rule, smooth_rates: Vector, rows: Vector, found: Findings) -> float | None:
    """The smooth disparity between the groups that are compared."""
    compared = compare(rule, found.rates, rows, found.terms.min_group_rows)
    return disparity_value(rule, compared, smooth_rates * rows, rows)


def _pooled_rates(reports: Sequence[Report]) -> Vector:
    """Smooth rates over all clients' rows together."""
    rows = np.array([report.group_counts for report in reports])
    rates = np.array([report.rates for report in reports])
    pooled: Vector = (rows * rates).sum(axis=0) / np.maximum(rows.sum(axis=0), 1.0)
    return pooled


def smooth_disparities(found: Findings, rule: Rule) -> dict[ClientId, float]:
    """Each client's smooth disparity on its training rows, where it has one."""
    values = {
        client: _smooth(rule, report.rates, report.group_counts, found)
        for client, report in found.reports.items()
    }
    return {client: value for client, value in values.items() if value is not None}


def worst_client(section: Mapping[ClientId, Any]) -> dict[str, Any]:
    """Who is served worst: the largest training loss."""
    name = max(section, key=lambda client: section[client]["train"]["loss"])
    return {
        "name": name,
        "train_loss": section[name]["train"]["loss"],
        "test_accuracy": section[name]["test"]["accuracy"],
    }


def versions() -> dict[str, str]:
    """What computed a result."""
    packages = ("numpy", "scipy", "pandas", "statsmodels")
    python = platform.python_version()
    return {"fcfl": __version__, "python": python} | {name: version(name) for name in packages}
