"""Policies: groups to compare, budgets, limits of sites, and preferences of clients.

A policy is a TOML file::

    min-group-rows = 20              # smaller groups are left out; default 1, at a site 20
    withhold-below = 10              # sites only: rarer levels are not named; default 10

    [groups]                         # groups to compare; default: all groups
    race = ["Black", "White"]

    [[rule]]
    metric = "demographic_parity"    # or "equal_opportunity", "equalized_odds"
    attribute = "race"
    kind = "difference"              # at most the budget; or "ratio": at least the budget
    budget = 0.05                    # of all clients; without it, measured but not bounded

    [rule.clients]                   # budgets of single clients for the rule above
    "Hospital 7" = 0.1

    [[rule]]
    metric = "equal_opportunity"
    attribute = "sex"
    kind = "ratio"
    budget = 0.8
    scope = "global"                 # over all clients' rows together; default "client"

    [preference]                     # of one client, for `fcfl negotiate`; all keys are optional
    disparity-per-accuracy = 2.0     # one point of accuracy is worth two points of disparity
    max-disparity = 0.1              # hard limits: models beyond them are never acceptable
    min-accuracy = 0.75
    tells-gains = false              # ballots have approvals and ranks only; default: also gains

    [limits]                         # sites only, for responses; all keys are optional
    largest-answer-mb = 64
    curvature = false                # send no second derivatives; default true

A rule requires only ``metric`` and ``attribute``. A file without rules is valid at a site, or if it
has preferences or limits. A rule without a ``budget`` bounds only the clients under
``[rule.clients]``. The ``[privacy]`` table of a site has ``epsilon``, ``delta`` and ``schema``, and
optionally ``after-exact-answers``. It excludes the first two keys: see docs/privacy.md.

A client does not send its preference, only ballots.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from fcfl import _checks as checks
from fcfl._files import parse_toml
from fcfl._types import ClientId, Vector
from fcfl.errors import DataError
from fcfl.privacy import check_privacy
from fcfl.rules import Difference, Ratio, Rule

T = TypeVar("T")

MIN_GROUP_ROWS = 20  # default of sites: smaller groups are neither named nor compared
WITHHOLD_BELOW = 10  # default of sites: rarer levels are not named
_KINDS: dict[str, type[Difference] | type[Ratio]] = {"difference": Difference, "ratio": Ratio}
_Rows = Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True)
class Figures:
    """A model's accuracy and disparity at a client."""

    accuracy: float
    disparity: float


@dataclass(frozen=True)
class Choices:
    """Offers to one client, and the models that it can train alone.

    ``alone`` has figures on held-out rows, and ``alone_trained`` figures of the same models on
    training rows. The client chooses its own model by the latter, to avoid selection bias.
    """

    offers: tuple[Figures, ...]
    alone: tuple[Figures, ...]
    alone_trained: tuple[Figures, ...]


@dataclass(frozen=True)
class Ballot:
    """Vote of a client on the offers, which is all it sends of its preference.

    ``ranks`` start at 1 for the best offer; ties share their mean rank. ``gains`` are relative to
    the client's own model and scaled to a largest magnitude of 1, with -1 for offers beyond a hard
    limit. They are empty if the client withholds them. ``walks_to`` is the index of the model that
    the client would choose alone.
    """

    approves: tuple[bool, ...]
    ranks: tuple[float, ...]
    gains: tuple[float, ...] = ()
    walks_to: int = 0


class Preference(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    r"""Utility :math:`w \cdot` accuracy − disparity, within hard limits.

    ``disparity_per_accuracy`` is w, the disparity that a point of accuracy is worth. It can be
    computed from the gains of a few offers. Set ``tells_gains`` to False to keep it secret; the
    Nash rule then has no winner.
    """

    disparity_per_accuracy: float = 1.0
    max_disparity: float | None = None
    min_accuracy: float | None = None
    tells_gains: bool = True

    def __post_init__(self) -> None:
        checks.check_positive("disparity-per-accuracy", self.disparity_per_accuracy)
        if self.max_disparity is not None:
            checks.check_budget("max-disparity", self.max_disparity)
        if self.min_accuracy is not None:
            checks.check_budget("min-accuracy", self.min_accuracy)
        if not isinstance(self.tells_gains, bool):
            raise ValueError(f"`tells-gains` must be true or false, got {self.tells_gains!r}.")

    def utility(self, given: Figures) -> float:
        """Return the utility of a model, in points of disparity."""
        return self.disparity_per_accuracy * given.accuracy - given.disparity

    def allows(self, given: Figures) -> bool:
        """Return whether a model satisfies the hard limits."""
        within = self.max_disparity is None or given.disparity <= self.max_disparity
        return within and (self.min_accuracy is None or given.accuracy >= self.min_accuracy)

    def cast_ballot(self, choices: Choices) -> Ballot:
        """Return a ballot that approves offers at least as good as the client's own model.

        Offers are ranked by utility, and offers beyond a hard limit below all others.
        """
        liked = [(self.allows(one), self.utility(one)) for one in choices.alone_trained]
        walks_to = liked.index(max(liked))
        gains = np.array([self.gain_over(choices.alone[walks_to], one) for one in choices.offers])
        allowed = np.array([self.allows(one) for one in choices.offers], bool)
        largest = max(np.abs(gains[allowed]).max(initial=0.0), np.finfo(float).tiny)
        told = np.where(allowed, gains / largest, -1.0)
        return Ballot(
            approves=tuple((allowed & (gains >= 0)).tolist()),
            ranks=tuple(places(np.where(allowed, gains, gains - 1e6)).tolist()),
            gains=tuple(told.tolist()) if self.tells_gains else (),
            walks_to=walks_to,
        )

    def gain_over(self, alone: Figures, offer: Figures) -> float:
        """Return the gain in utility of an offer over the client's own model.

        If its own model violates a hard limit, the gain is relative to the worst possible model.
        """
        walk_away = self.utility(alone if self.allows(alone) else Figures(0.0, 1.0))
        return self.utility(offer) - walk_away


def places(values: Vector) -> Vector:
    """Return the rank of each value, 1 for the largest; ties share their mean rank."""
    above = (values[None, :] > values[:, None]).sum(axis=1)
    level = (values[None, :] == values[:, None]).sum(axis=1)
    return np.asarray(above + (level + 1) / 2)


class Limits(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Limits on the responses of a site: the ``[limits]`` table of its policy.

    ``modules`` lists the networks that the site evaluates, as ``package.module:function``.
    """

    largest_answer_mb: float = 128.0
    curvature: bool = True
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.check_positive("largest-answer-mb", self.largest_answer_mb)


class PolicyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``[[rule]]`` table: a budget for all clients, and budgets of single ``clients``."""

    metric: str
    attribute: str
    kind: str = "difference"
    budget: float | None = None
    scope: str = "client"
    clients: dict[ClientId, float] = {}

    def __post_init__(self) -> None:
        checks.check_choice("kind", self.kind, _KINDS)
        for client, budget in self.clients.items():
            checks.check_budget(f"clients.{client!r}", budget)
        rule = self.rule  # checks its own fields
        if self.clients and rule.scope == "global":
            raise ValueError("`clients` must be left out for scope 'global'.")

    @property
    def rule(self) -> Rule:
        """Return the rule for clients that are not in ``clients``."""
        return _KINDS[self.kind](self.metric, self.attribute, self.budget, self.scope)  # type: ignore[arg-type]

    def for_clients(self, clients: Sequence[ClientId]) -> Rule:
        """Return the rule with one budget per client if their budgets differ."""
        if not self.clients:
            return self.rule
        checks.check_clients_known("clients", self.clients, clients)
        budgets = {c: self.clients.get(c, self.rule.budget_of(c)) for c in clients}
        return replace(self.rule, budget={c: b for c, b in budgets.items() if b is not None})


@dataclass(frozen=True)
class PrivacyBudget:
    """Maximum privacy loss of a row by all responses about a table, over all runs."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon, self.delta)


class _Privacy(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    epsilon: float
    delta: float
    schema: str
    after_exact_answers: bool = False


class _File(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    min_group_rows: _Rows | None = None
    withhold_below: _Rows | None = None
    groups: dict[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=2)]] = {}
    rule: Annotated[tuple[PolicyRule, ...], msgspec.Meta(min_length=1)] | None = None
    preference: Preference | None = None
    limits: Limits = Limits()
    privacy: _Privacy | None = None


@dataclass(frozen=True)
class Policy:
    """The content of a policy file.

    ``groups`` maps attributes to the groups to compare; other attributes compare all groups.
    ``withhold_below`` applies at sites only. ``sha256`` is the checksum of the file, or empty
    without a file. If ``after_exact``, noisy responses may follow exact responses.
    """

    policy_rules: tuple[PolicyRule, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    min_group_rows: int = MIN_GROUP_ROWS
    withhold_below: int = WITHHOLD_BELOW
    preference: Preference | None = None
    limits: Limits = field(default_factory=Limits)
    privacy: PrivacyBudget | None = None
    schema: str | None = None
    after_exact: bool = False
    source: str = ""
    sha256: str = ""

    def rules(self, clients: Sequence[ClientId]) -> tuple[Rule, ...]:
        """Return the rules for these clients; raise `DataError` for budgets of other clients."""
        with naming(f"policy {self.source!r}"):
            return tuple(rule.for_clients(clients) for rule in self.policy_rules)

    def levels(self, levels: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Return the groups to compare, given the groups in the data."""
        with naming(f"policy {self.source!r}"):
            return compare_only(levels, self.groups)


def read_policy(path: str | os.PathLike[str], *, of_site: bool = False) -> Policy:
    """Read and check a policy file.

    By default, a policy ``of_site`` withholds rare levels and small groups but allows curvature.
    """
    where = f"policy {str(path)!r}"
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"Cannot read the {where}: {why}. Check the path.") from None
    table = parse_toml(content, where)
    read = read_table(_File, table, where)
    needs_rules = not of_site and set(table) <= {"min-group-rows", "withhold-below", "groups"}
    if read.rule is None and needs_rules:
        raise DataError(f"In {where}: `rule` must be one or more [[rule]] tables, got none.")
    for attribute, names in read.groups.items():
        if len(set(names)) != len(names):
            raise DataError(f"In {where}: `groups.{attribute}` must have different names.")
    identities = [identity(one.rule) for one in read.rule or ()]
    for number, one in enumerate(identities, start=1):
        if one in identities[: number - 1]:
            raise DataError(
                f"In {where}: `rule {number}` compares the same rates as an earlier rule. Join "
                "them, with budgets of single clients under [rule.clients]."
            )
    privacy, given = read.privacy, (read.min_group_rows, read.withhold_below)
    if privacy is not None and any(given):
        raise DataError(
            f"In {where}: `min-group-rows` and `withhold-below` must be left out with [privacy], "
            "because private rows must not determine what is withheld."
        )
    withholds = of_site and privacy is None
    with naming(where):
        budget = None if privacy is None else PrivacyBudget(privacy.epsilon, privacy.delta)
    return Policy(
        policy_rules=read.rule or (),
        groups=read.groups,
        min_group_rows=read.min_group_rows or (MIN_GROUP_ROWS if withholds else 1),
        withhold_below=read.withhold_below or (WITHHOLD_BELOW if withholds else 1),
        preference=read.preference,
        limits=read.limits,
        privacy=budget,
        schema=None if privacy is None else privacy.schema,
        after_exact=privacy is not None and privacy.after_exact_answers,
        source=str(path),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def read_table(kind: type[T], table: Any, where: str) -> T:
    """Return a TOML table as a `msgspec` structure; raise `DataError` with the key and the file."""

    def as_path(_: type, value: object) -> Path:
        if not isinstance(value, str) or not Path(value).is_absolute():
            raise ValueError(f"it must be an absolute path in quotes, got {value!r}")
        return Path(value)

    try:
        return msgspec.convert(table, kind, dec_hook=as_path)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
    keys = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", place.strip(".`"))
    place = f"In {where}, `{keys}`" if keys else f"In {where}"
    unknown = re.match("Object contains unknown field `(.*)`", reason)
    if unknown is None:
        raise DataError(f"{place}: {reason.rstrip('.')}.")
    known: Any = _TABLES.get(keys.partition(" ")[0], kind)
    hint = checks.did_you_mean(
        unknown[1], [one.encode_name for one in msgspec.structs.fields(known)]
    )
    raise DataError(f"{place}: unknown key `{unknown[1]}`. {hint}")


_TABLES = {"rule": PolicyRule, "preference": Preference, "limits": Limits, "privacy": _Privacy}


def compare_only(
    levels: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return ``levels``, reduced to ``groups`` for the attributes in ``groups``."""
    for attribute, names in groups.items():
        if attribute not in levels:
            raise DataError(
                f"`groups` must be of sensitive columns, got {attribute!r}. "
                f"{checks.did_you_mean(attribute, levels)}"
            )
        for name in names:
            if name not in levels[attribute]:
                raise DataError(
                    f"`groups` of {attribute!r} must be in the data, got {name!r}. "
                    f"{checks.did_you_mean(name, levels[attribute])}"
                )
    return {name: tuple(groups.get(name, known)) for name, known in levels.items()}


def stricter(
    ours: Iterable[Rule], theirs: Iterable[Rule], clients: Sequence[ClientId]
) -> tuple[Rule, ...]:
    """Return the union of two sets of rules, with the tighter budget of each client.

    A smaller difference and a larger ratio are tighter. Any budget is tighter than none.
    """
    merged: dict[tuple[str, ...], Rule] = {}
    for rule in (*ours, *theirs):
        known = merged.get(identity(rule))
        merged[identity(rule)] = rule if known is None else _tighter_rule(known, rule, clients)
    return tuple(merged.values())


def identity(rule: Rule) -> tuple[str, ...]:
    """Return the key of a rule; two rules with the same key can differ in their budgets only."""
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
    """Raise `DataError` if the rules in force are looser for a client than its own rules."""
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
    """Raise `DataError` that names the file for a `ValueError` inside a ``with`` statement."""
    try:
        yield
    except ValueError as error:
        raise DataError(f"In {where}: {error}") from None
