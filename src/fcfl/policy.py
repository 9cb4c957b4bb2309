"""Policies: which groups are compared, how much may differ, and what a client prefers.

A policy is a TOML file::

    min-group-rows = 20              # smaller groups are left out; default 1, of a site 20
    withhold-below = 10              # a site's own: rarer levels are not named; default 10

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

    [preference]                     # a client's own, for `fcfl negotiate`; all are optional
    disparity-per-accuracy = 2.0     # one point of accuracy is worth two points of disparity
    max-disparity = 0.1              # hard limits: what is beyond them is never acceptable
    min-accuracy = 0.75
    tells-gains = false              # its ballots have marks and places only; default: also gains

    [limits]                         # a site's own: what it answers; all are optional
    largest-answer-mb = 64
    curvature = false                # send no second derivatives; default true

Of a rule only ``metric`` and ``attribute`` are required, and no rule at all at a site, or beside a
preference or limits. Clients named under ``[rule.clients]`` of a rule without a ``budget`` are the
only ones bounded by it. A site's ``[privacy]`` table has ``epsilon``, ``delta`` and ``schema``,
optionally ``after-exact-answers``, and excludes the first two keys: see docs/privacy.md.

A preference stays with the client, wherever that is: what leaves it is a ballot.
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

MIN_GROUP_ROWS = 20  # of a site: smaller groups are not named, and not compared
WITHHOLD_BELOW = 10  # of a site: rarer levels are not named
_KINDS: dict[str, type[Difference] | type[Ratio]] = {"difference": Difference, "ratio": Ratio}
_Rows = Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True)
class Figures:
    """A model's accuracy and disparity at a client."""

    accuracy: float
    disparity: float


@dataclass(frozen=True)
class Choices:
    """The offers to one client, and the models that it could have alone.

    ``alone_trained`` has the same models as ``alone`` on training rows: it chooses by those, so
    that what it would have is not judged by rows it was chosen by.
    """

    offers: tuple[Figures, ...]
    alone: tuple[Figures, ...]
    alone_trained: tuple[Figures, ...]


@dataclass(frozen=True)
class Ballot:
    """A client's vote on the offers; nothing else of its preference leaves it.

    ``ranks`` count from 1, the best; equal ones share the mean of their places. ``gains`` are over
    what it would have alone, scaled so that the largest is 1 in size; an offer beyond a hard limit
    has -1. There are none where a client does not tell them. ``walks_to`` is the position of the
    model it would have alone.
    """

    approves: tuple[bool, ...]
    ranks: tuple[float, ...]
    gains: tuple[float, ...] = ()
    walks_to: int = 0


class Preference(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    r"""Utility :math:`w \cdot` accuracy − disparity, within hard limits.

    ``disparity_per_accuracy`` is w, how much disparity a point of accuracy is worth; by default one
    for one, so that all clients are alike. From the gains of a few offers w can be computed:
    whoever keeps it to itself sets ``tells_gains`` to False, and Nash's rule then elects nobody.
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
        """Return whether the hard limits are kept."""
        within = self.max_disparity is None or given.disparity <= self.max_disparity
        return within and (self.min_accuracy is None or given.accuracy >= self.min_accuracy)

    def cast_ballot(self, choices: Choices) -> Ballot:
        """Approve what is at least as good as going alone; rank by utility, limits first.

        What breaks a hard limit is ranked below everything that breaks none.
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
        """Return by how much the client prefers an offer to the model it has alone.

        Where alone it breaks a hard limit of its own it has no acceptable model to walk away to,
        and anything within the limits is a gain: it counts from the worst model there is.
        """
        walk_away = self.utility(alone if self.allows(alone) else Figures(0.0, 1.0))
        return self.utility(offer) - walk_away


def places(values: Vector) -> Vector:
    """Return the place of each value, 1 for the largest; equal ones share the mean of theirs."""
    above = (values[None, :] > values[:, None]).sum(axis=1)
    level = (values[None, :] == values[:, None]).sum(axis=1)
    return np.asarray(above + (level + 1) / 2)


class Limits(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """What a site answers, whoever sends the request: the ``[limits]`` table of its policy.

    ``modules`` are the networks that it reports on, as ``package.module:function``.
    """

    largest_answer_mb: float = 128.0
    curvature: bool = True
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.check_positive("largest-answer-mb", self.largest_answer_mb)


class PolicyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``[[rule]]`` table: a budget for every client, and the budgets of single ``clients``."""

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
        """The rule for clients without a budget of their own."""
        return _KINDS[self.kind](self.metric, self.attribute, self.budget, self.scope)  # type: ignore[arg-type]

    def for_clients(self, clients: Sequence[ClientId]) -> Rule:
        """Return the rule with one budget per client, where they differ."""
        if not self.clients:
            return self.rule
        checks.check_clients_known("clients", self.clients, clients)
        budgets = {c: self.clients.get(c, self.rule.budget_of(c)) for c in clients}
        return replace(self.rule, budget={c: b for c, b in budgets.items() if b is not None})


@dataclass(frozen=True)
class PrivacyBudget:
    """How much the answers about one table may disclose of a row, over all runs: see docs."""

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
    """A policy file, checked.

    ``groups`` are the groups to compare of the attributes that name them. ``withhold_below``
    matters where a site keeps its rows to itself. ``sha256`` is that of the file, for the record
    of a run; empty without one. With ``after_exact``, noisy answers may follow exact ones.
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
        """Return the rules for these clients; reject a budget for anybody else."""
        with naming(f"policy {self.source!r}"):
            return tuple(rule.for_clients(clients) for rule in self.policy_rules)

    def levels(self, levels: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Return the groups to compare, out of those the data has."""
        with naming(f"policy {self.source!r}"):
            return compare_only(levels, self.groups)


def read_policy(path: str | os.PathLike[str], *, of_site: bool = False) -> Policy:
    """Read and check a policy file. The policy of a site is closed where it sets nothing."""
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
                f"In {where}: `rule {number}` compares the same as an earlier rule. Join them; "
                "single clients have their budgets under [rule.clients]."
            )
    privacy, given = read.privacy, (read.min_group_rows, read.withhold_below)
    if privacy is not None and any(given):
        raise DataError(
            f"In {where}: `min-group-rows` and `withhold-below` must be left out beside [privacy]: "
            "what is withheld would depend on the rows, and noise does without."
        )
    is_closed = of_site and privacy is None
    with naming(where):
        budget = None if privacy is None else PrivacyBudget(privacy.epsilon, privacy.delta)
    return Policy(
        policy_rules=read.rule or (),
        groups=read.groups,
        min_group_rows=read.min_group_rows or (MIN_GROUP_ROWS if is_closed else 1),
        withhold_below=read.withhold_below or (WITHHOLD_BELOW if is_closed else 1),
        preference=read.preference,
        limits=read.limits,
        privacy=budget,
        schema=None if privacy is None else privacy.schema,
        after_exact=privacy is not None and privacy.after_exact_answers,
        source=str(path),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def read_table(kind: type[T], table: Any, where: str) -> T:
    """Return a TOML table as a `msgspec` structure; an error names the key and the file."""

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
    """``levels``, reduced to the named ``groups`` of the attributes that ``groups`` has."""
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
    """Put the file before the sentence of a check."""
    try:
        yield
    except ValueError as error:
        raise DataError(f"In {where}: {error}") from None
