"""Audit the counts of every client, and of all rows together, by every rule.

An audit requires counts only, so rows can stay at their client.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import numpy as np

from fcfl._checks import check_choice, check_fraction, did_you_mean
from fcfl._types import ClientId, RateId, Vector
from fcfl.client.counts import Counts, pool_counts
from fcfl.rules import Rule, Scope, check_budget_clients, without_budgets

from .intervals import METHOD, Interval, balanced_accuracy_interval, proportion_interval
from .verdicts import Disparity, compare, judge

Simultaneous = Literal["bonferroni", "none"]
FailOn = Literal["exceeded", "undetermined"]
MAX_LINES = 20  # lines of a printed audit; `disparities` yields all of them


@dataclass(frozen=True, slots=True)
class Selections:
    """Counts of rows without labels: in total, and of each group (``group_counts``)."""

    n_rows: int
    n_selected: int
    group_counts: Vector
    group_selected: Vector


Counted: TypeAlias = Counts | Selections


@dataclass(frozen=True)
class GroupScores:
    """Histograms of a group's predicted probabilities by label, in equal bins from 0 to 1."""

    attribute: str
    group: str
    negatives: tuple[int, ...]
    positives: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """Performance and disparities on training rows or held-out rows; empty without rows.

    ``disparities`` are in the order of the rules. ``selected`` counts the rows that the model
    selects, ``positives`` the rows with the positive label. ``scores`` are given for all rows
    together if every client reports them.
    """

    loss: float | None = None
    accuracy: float | None = None
    accuracy_interval: Interval | None = None
    balanced_accuracy: float | None = None
    balanced_accuracy_interval: Interval | None = None
    disparities: tuple[Disparity, ...] = ()
    selected: int | None = None
    positives: int | None = None
    scores: tuple[GroupScores, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """Performance and verdicts of every client and of all rows together.

    ``client_rules`` apply to every client, ``global_rules`` to ``overall``. ``alpha`` is the
    level of each client's comparison after the Bonferroni correction. ``statement`` describes the
    method and whether the intervals hold simultaneously.
    """

    clients: Mapping[ClientId, Part]
    overall: Part
    client_rules: tuple[Rule, ...]
    global_rules: tuple[Rule, ...]
    confidence: float
    alpha: float
    statement: str

    def disparities(self) -> Iterator[tuple[ClientId | None, Disparity]]:
        """Yield (client, disparity) pairs; the client is None for all rows together."""
        for client, part in (*self.clients.items(), (None, self.overall)):
            for entry in part.disparities:
                yield client, entry

    def __repr__(self) -> str:
        """Return the number of budgets met and a line for each disparity.

        With a single client, omit the lines of all rows together that have no budget.
        """
        shown = [
            (client, entry)
            for client, entry in self.disparities()
            if client is not None or len(self.clients) > 1 or entry.budget is not None
        ]
        lines = [f"  {_sentence(*piece)}" for piece in shown[:MAX_LINES]]
        left = len(shown) - len(lines)
        more = [f"  … and {left} more, see `disparities()`."] if left else []
        return "\n".join([_counted(entry for _, entry in shown), *lines, *more])

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for every excluded group, without duplicates."""
        notes = {
            f"{_subject(client)}: {note}": None
            for client, entry in self.disparities()
            for note in entry.notes
        }
        return tuple(notes)


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
    """Apply the rules to the counts of every client, and to the pooled counts.

    With ``simultaneous="bonferroni"``, the intervals of all clients and rules hold simultaneously
    with probability ``confidence``, and so do the intervals for all rows together. With ``"none"``,
    each interval holds separately. Intervals of accuracies always hold separately. If no rule has
    the scope ``"client"`` (or ``"global"``), the other rules are measured there without budgets.

    Groups with fewer than ``min_group_rows`` rows are not compared; None uses each rule's default.
    If ``trained_counts`` gives each client's training rows by group, the minimum applies to them.
    ``noise_sd`` is the standard deviation of the noise that clients add to each counted cell.
    """
    check_fraction("confidence", confidence)
    check_choice("simultaneous", simultaneous, ("bonferroni", "none"))
    check_budget_clients(rules, list(counts))
    _check_counted(rules, rates, counts)
    trained: dict[ClientId | None, Vector] = {}
    if trained_counts:
        trained.update(trained_counts.items())
        trained[None] = np.sum(list(trained_counts.values()), axis=0)

    def audited(
        who: ClientId | None, found: Counted, rules: Sequence[Rule], alpha: float, sd: float
    ) -> Part:
        """Return the performance and disparities of one client, or of all rows together."""
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
        return _part(found, disparities, 1 - confidence, with_scores=who is None)

    def n_compared(who: ClientId | None, found: Counted, rules: Sequence[Rule]) -> int:
        """Return the number of rules with at least two groups to compare."""
        return sum(
            len(compare(rule, rates, found.group_counts, fewest, trained.get(who)).pairs) > 0
            for rule in rules
            for fewest in (rule.least_rows(who, min_group_rows),)
        )

    def level(count: int) -> float:
        """Return alpha for each of ``count`` comparisons."""
        return (1 - confidence) / (max(count, 1) if simultaneous == "bonferroni" else 1)

    client_rules, global_rules = _rules_at(rules, "client"), _rules_at(rules, "global")
    pooled, pooled_sd = pool(counts.values()), noise_sd * len(counts) ** 0.5
    count = sum(n_compared(who, found, client_rules) for who, found in counts.items())
    alpha, global_alpha = level(count), level(n_compared(None, pooled, global_rules))
    return Audit(
        {who: audited(who, one, client_rules, alpha, noise_sd) for who, one in counts.items()},
        audited(None, pooled, global_rules, global_alpha, pooled_sd),
        client_rules,
        global_rules,
        confidence,
        alpha,
        _statement(confidence, simultaneous, count, alpha),
    )


def pool(counts: Iterable[Counted]) -> Counted:
    """Return the sum of the counts of all clients."""
    of_clients = list(counts)
    if not any(isinstance(c, Selections) for c in of_clients):
        return pool_counts(cast(list[Counts], of_clients))
    return Selections(
        sum(c.n_rows for c in of_clients),
        sum(c.n_selected for c in of_clients),
        np.sum([c.group_counts for c in of_clients], axis=0),
        np.sum([c.group_selected for c in of_clients], axis=0),
    )


def _part(
    counts: Counted, disparities: tuple[Disparity, ...], alpha: float, *, with_scores: bool
) -> Part:
    """Return disparities and performance.

    If only one label has rows, balanced accuracy is the recall of that label.
    """
    if not counts.n_rows:
        return Part(disparities=disparities)
    if isinstance(counts, Selections):
        return Part(disparities=disparities, selected=counts.n_selected)
    n_rows, loss = counts.n_rows, counts.loss_sum / counts.n_rows
    correct = counts.true_positive + counts.true_negative
    positive = counts.true_positive, counts.n_positive
    negative = counts.true_negative, n_rows - counts.n_positive
    shares = [right / total for right, total in (positive, negative) if total]
    return Part(
        loss=None if math.isnan(loss) else loss,
        accuracy=correct / n_rows,
        accuracy_interval=proportion_interval(correct, n_rows, alpha),
        balanced_accuracy=sum(shares) / len(shares),
        balanced_accuracy_interval=balanced_accuracy_interval(*positive, *negative, alpha),
        disparities=disparities,
        selected=counts.n_selected,
        positives=counts.n_positive,
        scores=tuple(
            GroupScores(
                one.attribute,
                one.group,
                tuple(map(int, one.negatives)),
                tuple(map(int, one.positives)),
            )
            for one in counts.scores
            if with_scores and one.n_rows
        ),
    )


def gate(audit: Audit, fail_on: FailOn) -> tuple[str, ...]:
    """Return a sentence for every failing verdict, and an empty tuple if none fails.

    With ``"exceeded"``, budgets that are shown to be exceeded fail. ``"undetermined"`` also fails
    budgets that are not shown to be met. Disparities without a budget never fail.
    """
    check_choice("fail_on", fail_on, ("exceeded", "undetermined"))
    failing = {"exceeded"} if fail_on == "exceeded" else {"exceeded", "undetermined"}
    return tuple(
        _sentence(client, entry)
        for client, entry in audit.disparities()
        if entry.verdict in failing
    )


def _rules_at(rules: Sequence[Rule], scope: Scope) -> tuple[Rule, ...]:
    """Return the rules of a scope, or all rules without budgets if the scope has none."""
    in_scope = tuple(rule for rule in rules if rule.scope == scope)
    return in_scope or tuple(dict.fromkeys(without_budgets(rules)))


def _check_counted(
    rules: Sequence[Rule], rates: Sequence[RateId], counts: Mapping[ClientId, Counted]
) -> None:
    """Raise `ValueError` if there are no clients or if the rates of a rule were not counted."""
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
    """Return a sentence on the method and on simultaneous confidence."""
    head = f"Two-sided intervals ({METHOD})"
    if simultaneous == "none":
        return f"{head}, each with {_percent(confidence)} confidence separately, not jointly."
    if not count:
        return f"{head} with {_percent(confidence)} confidence; no client has groups to compare."
    if count == 1:
        return f"{head} with {_percent(confidence)} confidence; there is one comparison."
    return (
        f"{head} that hold jointly with {_percent(confidence)} confidence for all {count} "
        f"comparisons of clients and rules (Bonferroni: {_percent(1 - alpha)} for each)."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"


def _counted(found: Iterable[Disparity]) -> str:
    """Return the number of budgets with each verdict, as a sentence."""
    counts = Counter(entry.verdict for entry in found if entry.budget is not None)
    if not counts:
        return "Audit: no budget was set; disparities are measured, not judged."
    return (
        f"Audit: {counts['met']} of {counts.total()} budgets met, {counts['exceeded']} exceeded, "
        f"{counts['undetermined']} undetermined."
    )


def _sentence(client: ClientId | None, entry: Disparity) -> str:
    """Return one disparity with its budget and verdict, as a sentence."""
    measured = "cannot be measured"
    if entry.interval is not None:
        measured = f"is {entry.value:.3f} [{entry.low:.3f}, {entry.high:.3f}]"
    stated = f"{_subject(client)}: {entry.metric} {entry.rule} by {entry.attribute} {measured}"
    if entry.budget is None:
        return f"{stated}, no budget."
    bound = "at least" if entry.is_ratio else "at most"
    return f"{stated}, budget {bound} {entry.budget:g}: {entry.verdict}."


def _subject(client: ClientId | None) -> str:
    return "All clients together" if client is None else f"Client {client!r}"
