"""Policies: which groups are compared, and how much may differ, as a TOML file.

::

    min-group-rows = 20              # smaller groups are left out, and named; default 1
    withhold-below = 10              # a site's own: rarer levels are not named to the server

    [groups]                         # compare only these; by default all groups
    race = ["Black", "White"]

    [[rule]]
    metric = "demographic_parity"    # or "equal_opportunity", "equalized_odds"
    attribute = "race"
    kind = "difference"              # at most the budget; or "ratio": at least the budget
    budget = 0.05                    # of every client; without it, measured but not bounded

    [rule.clients]                   # clients with a budget of their own for the rule above
    "Hospital 7" = 0.1

    [[rule]]
    metric = "equal_opportunity"
    attribute = "sex"
    kind = "ratio"
    budget = 0.8
    scope = "global"                 # over all clients' rows together; default "client"

    [preference]                     # a client's own, for `fcfl negotiate`: see `fcfl.preference`
    disparity-per-accuracy = 1.0
    max-disparity = 0.1

    [limits]                         # a site's own: what it answers at most; all are optional
    counts-per-table = 100

    [privacy]                        # a site's own: noise on all it says, and this much in all
    epsilon = 4.0
    delta = 1e-6
    schema = "/srv/fcfl/schema.toml" # declares labels, groups and columns: see docs/privacy.md

Of a rule only ``metric`` and ``attribute`` are required, and no rule at all beside a preference or
limits. Clients named under ``[rule.clients]`` of a rule without a ``budget`` are the only ones
bounded by it.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fcfl._checks import (
    check_budget,
    check_choice,
    check_clients_known,
    check_count,
    check_fraction,
    check_keys,
    check_positive,
    did_you_mean,
)
from fcfl._types import ClientId
from fcfl.accountant import check_privacy
from fcfl.errors import DataError
from fcfl.preference import Preference, preference_from_table
from fcfl.rules import Difference, Ratio, Rule

_KINDS: dict[str, type[Difference] | type[Ratio]] = {"difference": Difference, "ratio": Ratio}
_SITE_KEYS = ("limits", "preference", "privacy")  # a site may have these and no rule of its own
_TOP_KEYS = ("min-group-rows", "withhold-below", "groups", "rule", *_SITE_KEYS)
_RULE_KEYS = ("metric", "attribute", "kind", "budget", "scope", "clients")


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
class Limits:
    """What a site answers at most, over one run and about one table for good.

    A run is one agreement on columns and encoding; a question that is asked again does not count.
    ``counts`` are models whose decisions are counted, ``splits`` ways to hold out rows and ways to
    make folds, each. A ``seed`` and a ``test_size`` fix both; None leaves them to the server.
    ``modules`` are the networks it reports on, as ``package.module:function``.
    """

    questions_per_run: int = 5_000
    questions_per_table: int = 50_000
    points_per_run: int = 50_000
    points_per_table: int = 500_000
    counts_per_run: int = 200
    counts_per_table: int = 300
    runs_per_table: int = 100
    splits_per_table: int = 4
    largest_parameter: float = 1e4
    largest_sharpness: float = 100.0
    largest_answer_mb: float = 128.0
    curvature: bool = True
    seed: int | None = None
    test_size: float | None = None
    modules: tuple[str, ...] = ()


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
    of a run.
    """

    policy_rules: tuple[PolicyRule, ...]
    groups: Mapping[str, tuple[str, ...]]
    min_group_rows: int
    source: str
    sha256: str
    withhold_below: int = 1
    preference: Preference | None = None
    limits: Limits = Limits()
    privacy: PrivacyBudget | None = None
    schema: str | None = None

    def rules(self, clients: Sequence[ClientId]) -> tuple[Rule, ...]:
        """The rules for these clients; a budget for anybody else is refused."""
        with _naming(f"Policy {self.source!r}"):
            return tuple(rule.for_clients(clients) for rule in self.policy_rules)

    def levels(self, levels: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """The groups to compare, out of those the data has."""
        with _naming(f"Policy {self.source!r}"):
            return compare_only(levels, self.groups)


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Read and check a policy file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"Cannot read the policy {str(path)!r}: {why}. Check the path.") from None
    where = f"Policy {str(path)!r}"
    try:
        table = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{where} is not TOML: {error}.") from None
    check_keys(table, _TOP_KEYS, f"policy {str(path)!r}", DataError)
    needs_no_rules = "rule" not in table and not set(_SITE_KEYS).isdisjoint(table)
    return Policy(
        () if needs_no_rules else tuple(_read_rules(where, table.get("rule"))),
        _read_groups(where, table.get("groups", {})),
        _read_rows(where, "min-group-rows", table.get("min-group-rows", 1)),
        str(path),
        hashlib.sha256(content).hexdigest(),
        _read_rows(where, "withhold-below", table.get("withhold-below", 1)),
        _read_preference(where, table.get("preference")),
        _read_limits(where, table.get("limits", {})),
        *_read_privacy(where, table),
    )


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
        known = merged.get(_identity(rule))
        merged[_identity(rule)] = rule if known is None else _tighter_rule(known, rule, clients)
    return tuple(merged.values())


def _identity(rule: Rule) -> tuple[str, ...]:
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


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the place in the file before the sentence of a check."""
    try:
        yield
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


def _check_type(where: str, key: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise DataError(f"{where}: `{key}` must be {what}, got {value!r}.")


def _read_rules(where: str, rules: object) -> Iterator[PolicyRule]:
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise DataError(f"{where}: `rule` must be one or more [[rule]] tables, got {rules!r}.")
    seen: dict[tuple[str, ...], int] = {}
    for number, table in enumerate(rules, start=1):
        place = f"{where}, rule {number}"
        found = _read_rule(place, table)
        first = seen.setdefault(_identity(found.rule), number)
        if first != number:
            raise DataError(
                f"{place} compares the same as rule {first}. Join them; single clients have "
                "their budgets under [rule.clients]."
            )
        yield found


def _read_rule(where: str, table: Mapping[str, Any]) -> PolicyRule:
    check_keys(table, _RULE_KEYS, where.replace("Policy", "policy", 1), DataError)
    for key in ("metric", "attribute"):
        if key not in table:
            raise DataError(f"{where}: `{key}` must be given, got only {', '.join(table)}.")
    for key in ("metric", "attribute", "kind", "scope"):
        _check_type(where, key, table.get(key, ""), str, "text in quotes")
    clients = table.get("clients", {})
    _check_type(where, "clients", clients, dict, "a [rule.clients] table")
    scope = table.get("scope", "client")
    with _naming(where):
        kind = _KINDS[check_choice("kind", table.get("kind", "difference"), _KINDS)]
        if "budget" in table:
            check_budget("budget", table["budget"])
        for client, budget in clients.items():
            check_budget(f"clients.{client!r}", budget)
        rule = kind(table["metric"], table["attribute"], table.get("budget"), scope)
    if clients and rule.scope == "global":
        raise DataError(f"{where}: `clients` must be left out for scope 'global', got {clients!r}.")
    return PolicyRule(rule, clients)


def _read_groups(where: str, groups: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(groups, dict):
        raise DataError(f"{where}: `groups` must be a [groups] table, got {groups!r}.")
    for attribute, names in groups.items():
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not is_list or len(set(names)) != len(names) or len(names) < 2:
            raise DataError(
                f"{where}: `groups.{attribute}` must be a list of two or more different texts, "
                f"got {names!r}."
            )
    return {attribute: tuple(names) for attribute, names in groups.items()}


def _read_rows(where: str, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DataError(f"{where}: `{key}` must be a whole number from 1, got {value!r}.")
    return value


def _read_preference(where: str, table: object) -> Preference | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise DataError(f"{where}: `preference` must be a [preference] table, got {table!r}.")
    with _naming(where):
        return preference_from_table(table, "[preference]")


def _read_privacy(
    where: str, policy: Mapping[str, object]
) -> tuple[PrivacyBudget | None, str | None]:
    """The budget, and the file that declares columns."""
    table = policy.get("privacy")
    if table is None:
        return None, None
    if not isinstance(table, dict) or set(table) != {"epsilon", "delta", "schema"}:
        raise DataError(
            f"{where}: `privacy` must be a [privacy] table with epsilon, delta and schema, got "
            f"{table!r}."
        )
    _check_type(where, "privacy.schema", table["schema"], str, "the path of a file, in quotes")
    for key in ("min-group-rows", "withhold-below"):
        if key in policy:
            raise DataError(
                f"{where}: `{key}` must be left out beside [privacy]: what is withheld would "
                "depend on the rows, and noise does without."
            )
    with _naming(where):
        return PrivacyBudget(table["epsilon"], table["delta"]), table["schema"]


def _read_limits(where: str, limits: object) -> Limits:
    if not isinstance(limits, dict):
        raise DataError(f"{where}: `limits` must be a [limits] table, got {limits!r}.")
    known = {part.name.replace("_", "-"): part for part in fields(Limits)}
    check_keys(limits, known, f"{where.replace('Policy', 'policy', 1)}, limits", DataError)
    return Limits(
        **{known[key].name: _read_limit(where, key, value) for key, value in limits.items()}
    )


def _read_limit(where: str, key: str, value: object) -> Any:
    """A truth value, a share, a whole number or a number, as the limit wants it."""
    place = f"limits.{key}"
    if key == "modules":
        if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
            raise DataError(f"{where}: `{place}` must be a list of texts, got {value!r}.")
        return tuple(value)
    if key == "curvature":
        _check_type(where, place, value, bool, "true or false")
        return value
    with _naming(where):
        if key == "test-size":
            return check_fraction(place, value)  # type: ignore[arg-type]
        if key.startswith("largest-"):
            return check_positive(place, value)  # type: ignore[arg-type]
        return check_count(place, value)  # type: ignore[arg-type]


def check_rules_kept(name: ClientId, own: Sequence[Rule], in_force: Sequence[Rule]) -> None:
    """Refuse to take part when the rules in force are looser for this client than its own."""
    who = [name]
    known = {_identity(rule): _budget(rule, name) for rule in in_force}
    for rule in stricter(in_force, own, who):
        wanted = _budget(rule, name)
        if _identity(rule) not in known or known[_identity(rule)] != wanted:
            raise DataError(
                f"The rules in force must be at least as strict as this client's policy: "
                f"{rule.metric} of {rule.attribute!r} as a {rule.name} with a budget of {wanted}, "
                f"got {known.get(_identity(rule), 'no such rule')}."
            )


def _budget(rule: Rule, name: ClientId) -> float | None:
    return rule.budget_of(None if rule.scope == "global" else name)
