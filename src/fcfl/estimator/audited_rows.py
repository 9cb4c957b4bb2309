"""A fitted classifier held against its budgets on other rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fcfl._types import ClientId, Vector
from fcfl.audit import Audit, audit_clients
from fcfl.client.counts import count_rows
from fcfl.estimator.inputs import client_column, sensitive_as_in_fit, split_by_client
from fcfl.estimator.row_thresholds import cut_of
from fcfl.models.loss import as_loss
from fcfl.rules import Rule, rates_needed


def audit_rows(
    classifier: Any,
    logits: Vector,
    y: Any,
    clients: Any,
    sensitive_features: Any,
    confidence: float,
) -> Audit:
    """Rates, intervals and verdicts of rows with these logits, against the budgets of `fit`."""
    found = np.isin(y, classifier.classes_)
    if not np.all(found):
        strange = str(np.asarray(y)[~found][0])
        raise ValueError(f"`y` must hold the classes of `fit`, got {strange!r}.")
    labels = (np.asarray(y) == classifier.classes_[1]).astype(np.float64)
    levels = classifier.levels_
    sensitive = sensitive_as_in_fit(sensitive_features, labels.size, levels)
    column = client_column(clients, labels.size)
    parts = split_by_client(logits[:, None], labels, column, sensitive, None, levels)
    rules = [_for_clients(rule, parts) for rule in classifier.rules_]
    rates = rates_needed(rules, levels)
    loss = as_loss("loss", classifier.loss)
    thresholds, cut = classifier.thresholds_, cut_of(classifier)
    counts = {
        client: count_rows(
            data.X[:, 0],
            data,
            rates,
            cut if thresholds is None else cut + thresholds.of_data(client, data),
            loss,
        )
        for client, data in parts.items()
    }
    # Intervals say what few rows support; a minimum is only for what steers training.
    least = 1.0 if classifier.min_group_rows is None else classifier.min_group_rows
    return audit_clients(rules, rates, counts, confidence=confidence, min_group_rows=least)


def _for_clients(rule: Rule, clients: Iterable[ClientId]) -> Rule:
    """The rule without budgets of clients that have no rows here."""
    if not isinstance(rule.budget, Mapping):
        return rule
    kept = {client: rule.budget[client] for client in clients if client in rule.budget}
    return replace(rule, budget=kept)
