"""What a run found out, as the plain data of ``result.json``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcfl._types import ClientId, RateId, Report, Vector
from fcfl.client.evaluate import Counts, pool_counts
from fcfl.rules import Rule, without_budgets

SCHEMA = 1


@dataclass(frozen=True)
class Findings:
    """Hard counts of every client and part, and its smooth report on training rows."""

    rates: tuple[RateId, ...]
    rules: tuple[Rule, ...]
    train: Mapping[ClientId, Counts]
    test: Mapping[ClientId, Counts]
    reports: Mapping[ClientId, Report]


def clients_section(found: Findings) -> dict[ClientId, Any]:
    """Rows, losses, accuracies and disparities of each client."""
    rules = [rule for rule in found.rules if rule.scope == "client"] or unconstrained(found.rules)
    section = {}
    for client in found.train:
        train, test = found.train[client], found.test[client]
        section[client] = {
            "rows": {"train": train.n_rows, "test": test.n_rows},
            "train": part(train, rules, found.rates, client, found.reports[client].rates),
            "test": part(test, rules, found.rates, client),
        }
    return section


def global_section(found: Findings) -> dict[str, Any]:
    """The same for all clients' rows together."""
    rules = [rule for rule in found.rules if rule.scope == "global"] or unconstrained(found.rules)
    smooth = _pooled_rates(list(found.reports.values()))
    return {
        "train": part(pool_counts(found.train.values()), rules, found.rates, None, smooth),
        "test": part(pool_counts(found.test.values()), rules, found.rates, None),
    }


def unconstrained(rules: Sequence[Rule]) -> list[Rule]:
    """The same comparisons where no budget applies."""
    return list(dict.fromkeys(without_budgets(rules)))


def part(
    counts: Counts,
    rules: Sequence[Rule],
    rates: Sequence[RateId],
    client: ClientId | None,
    smooth_rates: Vector | None = None,
) -> dict[str, Any]:
    """One client's training or test rows."""
    return {
        "loss": counts.loss_sum / counts.n_rows if counts.n_rows else None,
        "accuracy": accuracy(counts),
        "balanced_accuracy": balanced_accuracy(counts),
        "disparities": [disparity(r, counts, rates, client, smooth_rates) for r in rules],
    }


def accuracy(counts: Counts) -> float | None:
    """Share of rows decided as labelled."""
    right = counts.true_positive + counts.true_negative
    return right / counts.n_rows if counts.n_rows else None


def balanced_accuracy(counts: Counts) -> float | None:
    """Mean of the shares right among positives and among negatives; of one where only one is."""
    positives = counts.true_positive + counts.false_negative
    negatives = counts.true_negative + counts.false_positive
    shares = [
        right / total
        for right, total in ((counts.true_positive, positives), (counts.true_negative, negatives))
        if total
    ]
    return sum(shares) / len(shares) if shares else None


def disparity(
    rule: Rule,
    counts: Counts,
    rates: Sequence[RateId],
    client: ClientId | None,
    smooth_rates: Vector | None,
) -> dict[str, Any]:
    """One entry D of the result: a rule's hard value, its smooth one, its budget and its groups."""
    return {
        "metric": rule.metric,
        "attribute": rule.attribute,
        "rule": rule.name,
        "value": _value(rule, counts.group_selected, counts.group_rows, rates),
        "smooth": None
        if smooth_rates is None
        else _value(rule, smooth_rates * counts.group_rows, counts.group_rows, rates),
        "low": None,
        "high": None,
        "budget": rule.budget_of(client),
        "verdict": None,
        "price": None,
        "smallest_verifiable": None,
        "groups": [
            {
                "rate": rate.kind,
                "group": rate.group,
                "rows": int(counts.group_rows[i]),
                "selected": int(counts.group_selected[i]),
            }
            for i, rate in enumerate(rates)
            if rate.attribute == rule.attribute and rate.kind in rule.kinds
        ],
    }


def _value(rule: Rule, selected: Vector, rows: Vector, rates: Sequence[RateId]) -> float | None:
    """The disparity between groups that have rows; ``None`` where fewer than two have."""
    values = []
    for kind in rule.kinds:
        present = [
            float(selected[i] / rows[i])
            for i, rate in enumerate(rates)
            if rate.kind == kind and rate.attribute == rule.attribute and rows[i] > 0
        ]
        if len(present) >= 2:
            values.append(rule.disparity(present))
    return rule.worst(values) if values else None


def _pooled_rates(reports: Sequence[Report]) -> Vector:
    """Smooth rates over all clients' rows together."""
    rows = np.array([report.group_rows for report in reports])
    rates = np.array([report.rates for report in reports])
    pooled: Vector = (rows * rates).sum(axis=0) / np.maximum(rows.sum(axis=0), 1.0)
    return pooled


def smooth_disparities(found: Findings, rule: Rule) -> dict[ClientId, float]:
    """Each client's smooth disparity on its training rows, where it has one."""
    values = {}
    for client, report in found.reports.items():
        selected = report.rates * report.group_rows
        value = _value(rule, selected, report.group_rows, found.rates)
        if value is not None:
            values[client] = value
    return values


def worst_client(section: Mapping[ClientId, Any]) -> dict[str, Any]:
    """Who is served worst: the largest training loss."""
    name = max(section, key=lambda client: section[client]["train"]["loss"])
    return {
        "name": name,
        "train_loss": section[name]["train"]["loss"],
        "test_accuracy": section[name]["test"]["accuracy"],
    }
