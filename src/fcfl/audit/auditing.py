"""Audits: the counts of every client, and of all rows together, compared with every rule.

An audit needs counts only, so it works where rows never leave their client.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fcfl._checks import check_choice, check_fraction, did_you_mean
from fcfl._types import ClientId, RateId, Vector
from fcfl.rules import Rule, Scope, check_budget_clients, without_budgets

from .intervals import METHOD
from .performance import Counted, Estimate, accuracy, balanced_accuracy, pool
from .verdicts import Evidence, compare, judge

Simultaneous = Literal["bonferroni", "none"]
FailOn = Literal["exceeded", "undetermined"]
MOST_SHOWN = 20  # lines of an audit that is printed; `evidence` has all


@dataclass(frozen=True, slots=True)
class PartAudit:
    """One client's rows, or all rows together; ``disparities`` in the order of the rules."""

    n_rows: int
    accuracy: Estimate | None
    balanced_accuracy: Estimate | None
    disparities: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """Evidence of every client and of all rows together.

    ``client_rules`` apply to every client, ``global_rules`` to ``overall``. ``alpha`` is the
    level of each comparison of clients, after the split. ``statement`` is a sentence on
    method and simultaneity.
    """

    clients: Mapping[ClientId, PartAudit]
    overall: PartAudit
    client_rules: tuple[Rule, ...]
    global_rules: tuple[Rule, ...]
    confidence: float
    alpha: float
    statement: str

    def evidence(self) -> Iterator[tuple[ClientId | None, Rule, Evidence]]:
        """Yield every piece of evidence with its client (``None``: all rows together) and rule."""
        for client, part in self.clients.items():
            for rule, found in zip(self.client_rules, part.disparities, strict=True):
                yield client, rule, found
        for rule, found in zip(self.global_rules, self.overall.disparities, strict=True):
            yield None, rule, found

    def __repr__(self) -> str:
        """Return how many budgets are met, and a line for each; one client's rows are all rows."""
        shown = [
            (client, rule, found)
            for client, rule, found in self.evidence()
            if client is not None or len(self.clients) > 1 or found.budget is not None
        ]
        lines = [f"  {_sentence(*piece)}" for piece in shown[:MOST_SHOWN]]
        left = len(shown) - len(lines)
        more = [f"  … and {left} more, see `evidence()`."] if left else []
        return "\n".join([_counted(found for _, _, found in shown), *lines, *more])

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for every group that was left out, each once."""
        found = {
            f"{_subject(client)}: {note}": None
            for client, _, evidence in self.evidence()
            for note in evidence.notes
        }
        return tuple(found)


def audit_clients(
    rules: Sequence[Rule],
    rates: Sequence[RateId],
    counts: Mapping[ClientId, Counted],
    *,
    confidence: float = 0.95,
    simultaneous: Simultaneous = "bonferroni",
    min_group_rows: float | None = 1.0,
    trained_counts: Mapping[ClientId, Vector] | None = None,
    noise_sd: float = 0.0,
) -> Audit:
    """Compare every client's counts with the rules, and all counts together.

    With ``simultaneous="bonferroni"`` the intervals of all clients and rules hold together with
    probability ``confidence``, and so do those over all rows together; with ``"none"`` each holds
    on its own. Intervals of accuracies hold each on their own. Where no rule has the scope
    ``"client"`` (or ``"global"``), the others are measured there without a budget.

    Groups with fewer than ``min_group_rows`` rows are not compared, None leaves their number to the
    rule; with ``trained_counts``, the clients' training rows of each group, those decide. Where
    clients counted with noise, ``noise_sd`` is its standard deviation in each of their cells.
    """
    check_fraction("confidence", confidence)
    check_choice("simultaneous", simultaneous, ("bonferroni", "none"))
    check_budget_clients(rules, list(counts))
    _check_counted(rules, rates, counts)
    trained: dict[ClientId | None, Vector] = {}
    if trained_counts:
        trained.update(trained_counts.items())
        trained[None] = np.sum(list(trained_counts.values()), axis=0)

    def level(rules: Sequence[Rule], parts: Mapping[Any, Counted]) -> tuple[int, float]:
        """Return how many parts and rules have groups to compare, and the level of each."""
        n_compared = 0
        for who, found in parts.items():
            for rule in rules:
                least = rule.least_rows(who, min_group_rows)
                compared = compare(rule, rates, found.group_counts, least, trained.get(who))
                n_compared += len(compared.pairs) > 0
        is_split = simultaneous == "bonferroni"
        return n_compared, (1 - confidence) / (max(n_compared, 1) if is_split else 1)

    def part(
        who: ClientId | None, found: Counted, rules: Sequence[Rule], alpha: float, sd: float
    ) -> PartAudit:
        disparities = tuple(
            judge(
                rule,
                rates,
                found.group_counts,
                found.group_selected,
                rule.budget_of(who),
                alpha,
                min_group_rows=rule.least_rows(who, min_group_rows),
                trained_counts=trained.get(who),
                noise_sd=sd,
            )
            for rule in rules
        )
        shares = accuracy(found, 1 - confidence), balanced_accuracy(found, 1 - confidence)
        return PartAudit(found.n_rows, *shares, disparities)

    client_rules, global_rules = _rules_at(rules, "client"), _rules_at(rules, "global")
    everybody, pooled_sd = pool(counts.values()), noise_sd * len(counts) ** 0.5
    n_compared, alpha = level(client_rules, counts)
    _, global_alpha = level(global_rules, {None: everybody})
    return Audit(
        {who: part(who, found, client_rules, alpha, noise_sd) for who, found in counts.items()},
        part(None, everybody, global_rules, global_alpha, pooled_sd),
        client_rules,
        global_rules,
        confidence,
        alpha,
        _statement(confidence, simultaneous, n_compared, alpha),
    )


def gate(audit: Audit, fail_on: FailOn) -> tuple[str, ...]:
    """Return a sentence for every verdict that fails; none when the gate is passed.

    ``"exceeded"`` fails where a budget is shown to be exceeded, ``"undetermined"`` also where it
    is not shown to be met. What has no budget never fails.
    """
    check_choice("fail_on", fail_on, ("exceeded", "undetermined"))
    failing = {"exceeded"} if fail_on == "exceeded" else {"exceeded", "undetermined"}
    return tuple(
        _sentence(client, rule, evidence)
        for client, rule, evidence in audit.evidence()
        if evidence.verdict in failing
    )


def _rules_at(rules: Sequence[Rule], scope: Scope) -> tuple[Rule, ...]:
    here = tuple(rule for rule in rules if rule.scope == scope)
    return here or tuple(dict.fromkeys(without_budgets(rules)))


def _check_counted(
    rules: Sequence[Rule], rates: Sequence[RateId], counts: Mapping[ClientId, Counted]
) -> None:
    """Raise `ValueError` for an audit of no clients, or by rates that were not counted."""
    if not counts:
        raise ValueError("`counts` must have at least one client, got none.")
    counted = {(rate.kind, rate.attribute) for rate in rates}
    for rule in rules:
        absent = [kind for kind in rule.kinds if (kind, rule.attribute) not in counted]
        if absent and ("selection", rule.attribute) in counted:
            raise ValueError(
                "`metric` must be 'demographic_parity' where rows have no label, "
                f"got {rule.metric!r}. Name the label column."
            )
        if absent:
            raise ValueError(
                f"`attribute` must be one that was counted, got {rule.attribute!r}. "
                f"{did_you_mean(rule.attribute, dict.fromkeys(name for _, name in counted))}"
            )


def _statement(confidence: float, simultaneous: Simultaneous, count: int, alpha: float) -> str:
    head = f"Two-sided intervals ({METHOD})"
    if simultaneous == "none":
        return f"{head}, each with {_percent(confidence)} confidence on its own, not together."
    if not count:
        return f"{head} with {_percent(confidence)} confidence; no client has groups to compare."
    if count == 1:
        return f"{head} with {_percent(confidence)} confidence; there is one comparison."
    return (
        f"{head} that hold together, with {_percent(confidence)} confidence, for all {count} "
        f"comparisons of clients and rules (Bonferroni: each with {_percent(1 - alpha)})."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"


def _counted(found: Iterable[Evidence]) -> str:
    counts = Counter(evidence.verdict for evidence in found if evidence.budget is not None)
    if not counts:
        return "Audit: no budget was set, disparities are measured and not judged."
    return (
        f"Audit: {counts['met']} of {counts.total()} budgets met, {counts['exceeded']} exceeded, "
        f"{counts['undetermined']} undetermined."
    )


def _sentence(client: ClientId | None, rule: Rule, evidence: Evidence) -> str:
    what = f"{_subject(client)}: {rule.metric} {rule.name} by {rule.attribute}"
    if evidence.value is None or evidence.low is None or evidence.high is None:
        found = "cannot be measured"
    else:
        found = f"is {evidence.value:.3f} [{evidence.low:.3f}, {evidence.high:.3f}]"
    if evidence.budget is None:
        return f"{what} {found}, no budget."
    bound = "at most" if rule.name == "difference" else "at least"
    return f"{what} {found}, budget {bound} {evidence.budget:g}: {evidence.verdict}."


def _subject(client: ClientId | None) -> str:
    return "All clients together" if client is None else f"Client {client!r}"
