"""Policies: which groups are compared, how much may differ, and whose rule is the stricter.

`fcfl.policy_file` reads them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fcfl._checks import check_clients_known, did_you_mean
from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.preference import Preference
from fcfl.privacy import check_privacy
from fcfl.rules import Difference, Rule

MIN_GROUP_ROWS = 20  # of a site: smaller groups are not named, and not compared
WITHHOLD_BELOW = 10  # of a site: rarer levels are not named


@dataclass(frozen=True)
class Limits:
    """What a site answers, whoever sends the request: the ``[limits]`` table of its policy.

    ``modules`` are the networks that it reports on, as ``package.module:function``.
    """

    largest_answer_mb: float = 128.0
    curvature: bool = True
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class PolicyRule:
    """A rule with the budget of every client, and the budgets of clients with their own."""

    rule: Rule
    clients: Mapping[ClientId, float]

    def for_clients(self, clients: Sequence[ClientId]) -> Rule:
        """The rule with one budget per client, where they differ."""
        if not self.clients:
            return self.rule
        check_clients_known("clients", self.clients, clients)
        budgets = {c: self.clients.get(c, self.rule.budget_of(c)) for c in clients}
        return replace(self.rule, budget={c: b for c, b in budgets.items() if b is not None})


@dataclass(frozen=True)
class PrivacyBudget:
    """How much the answers about one table may disclose of a row, over all runs: see docs."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon, self.delta)


@dataclass(frozen=True)
class Policy:
    """A policy file, checked.

    ``groups`` are the groups to compare of the attributes that name them. ``withhold_below``
    matters where a site keeps its rows to itself. ``sha256`` is that of the file, for the record
    of a run; empty without one. ``after_exact`` says that noisy answers may follow exact ones.
    """

    policy_rules: tuple[PolicyRule, ...]
    groups: Mapping[str, tuple[str, ...]]
    min_group_rows: int
    source: str
    sha256: str
    withhold_below: int = 1
    preference: Preference | None = None
    limits: Limits = field(default_factory=Limits)
    privacy: PrivacyBudget | None = None
    schema: str | None = None
    after_exact: bool = False

    def rules(self, clients: Sequence[ClientId]) -> tuple[Rule, ...]:
        """The rules for these clients; a budget for anybody else is refused."""
        with naming(f"Policy {self.source!r}"):
            return tuple(rule.for_clients(clients) for rule in self.policy_rules)

    def levels(self, levels: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """The groups to compare, out of those the data has."""
        with naming(f"Policy {self.source!r}"):
            return compare_only(levels, self.groups)


def compare_only(
    levels: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """``levels``, reduced to the named ``groups`` of the attributes that ``groups`` has."""
    for attribute, names in groups.items():
        if attribute not in levels:
            raise DataError(
                f"`groups` must be of sensitive columns, got {attribute!r}. "
                f"{did_you_mean(attribute, levels)}"
            )
        for name in names:
            if name not in levels[attribute]:
                raise DataError(
                    f"`groups` of {attribute!r} must be in the data, got {name!r}. "
                    f"{did_you_mean(name, levels[attribute])}"
                )
    return {name: tuple(groups.get(name, known)) for name, known in levels.items()}


def stricter(
    ours: Iterable[Rule], theirs: Iterable[Rule], clients: Sequence[ClientId]
) -> tuple[Rule, ...]:
    """All rules of both, and where both have one, for each client the tighter budget.

    The tighter difference is the smaller one, the tighter ratio the larger one. No budget at all
    is the loosest.
    """
    merged: dict[tuple[str, ...], Rule] = {}
    for rule in (*ours, *theirs):
        known = merged.get(identity(rule))
        merged[identity(rule)] = rule if known is None else _tighter_rule(known, rule, clients)
    return tuple(merged.values())


def identity(rule: Rule) -> tuple[str, ...]:
    """Return what identifies a rule: two with the same identity differ in their budgets only."""
    return rule.name, rule.metric, rule.attribute, rule.scope


def _tighter_rule(one: Rule, other: Rule, clients: Sequence[ClientId]) -> Rule:
    if not isinstance(one.budget, Mapping) and not isinstance(other.budget, Mapping):
        return replace(one, budget=_tighter(one, one.budget, other.budget))
    budgets = {c: _tighter(one, one.budget_of(c), other.budget_of(c)) for c in clients}
    return replace(one, budget={c: b for c, b in budgets.items() if b is not None})


def _tighter(rule: Rule, one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other) if isinstance(rule, Difference) else max(one, other)


def check_rules_kept(name: ClientId, own: Sequence[Rule], in_force: Sequence[Rule]) -> None:
    """Raise `DataError` if the rules in force are looser for this client than its own."""
    who = [name]
    known = {identity(rule): _budget(rule, name) for rule in in_force}
    for rule in stricter(in_force, own, who):
        wanted = _budget(rule, name)
        if identity(rule) not in known or known[identity(rule)] != wanted:
            raise DataError(
                f"The rules in force must be at least as strict as this client's policy: "
                f"{rule.metric} of {rule.attribute!r} as a {rule.name} with a budget of {wanted}, "
                f"got {known.get(identity(rule), 'no such rule')}."
            )


def _budget(rule: Rule, name: ClientId) -> float | None:
    return rule.budget_of(None if rule.scope == "global" else name)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Put the place in the file before the sentence of a check."""
    try:
        yield
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
