"""A policy as a TOML file: which groups are compared, and how much may differ.

::

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

    [preference]                     # a client's own, for `fcfl negotiate`: see `fcfl.preference`
    disparity-per-accuracy = 1.0
    max-disparity = 0.1

    [limits]                         # a site's own: what it answers; all are optional
    largest-answer-mb = 64
    curvature = false                # send no second derivatives; default true

Of a rule only ``metric`` and ``attribute`` are required, and no rule at all at a site, or beside a
preference or limits. Clients named under ``[rule.clients]`` of a rule without a ``budget`` are the
only ones bounded by it. A site's ``[privacy]`` table has ``epsilon``, ``delta`` and ``schema``,
optionally ``after-exact-answers``, and stands without the first two keys: see docs/privacy.md.
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from fcfl._checks import check_budget, check_choice, check_positive, did_you_mean
from fcfl.errors import DataError
from fcfl.policy import (
    MIN_GROUP_ROWS,
    WITHHOLD_BELOW,
    Limits,
    Policy,
    PolicyRule,
    PrivacyBudget,
    identity,
    naming,
)
from fcfl.preference import Preference
from fcfl.rules import Difference, Ratio

T = TypeVar("T")

_KINDS: dict[str, type[Difference] | type[Ratio]] = {"difference": Difference, "ratio": Ratio}
_Rows = Annotated[int, msgspec.Meta(ge=1)]


class _Table(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """A table of the file; its keys have hyphens."""


class _Rule(_Table):
    metric: str
    attribute: str
    kind: str = "difference"
    budget: float | None = None
    scope: str = "client"
    clients: dict[str, float] = {}


class _Preference(_Table):
    disparity_per_accuracy: float = 1.0
    max_disparity: float | None = None
    min_accuracy: float | None = None
    tells_gains: bool = True


class _Limits(_Table):
    largest_answer_mb: float = Limits.largest_answer_mb
    curvature: bool = True
    modules: tuple[str, ...] = ()


class _Privacy(_Table):
    epsilon: float
    delta: float
    schema: str
    after_exact_answers: bool = False


class _File(_Table):
    min_group_rows: _Rows | None = None
    withhold_below: _Rows | None = None
    groups: dict[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=2)]] = {}
    rule: Annotated[tuple[_Rule, ...], msgspec.Meta(min_length=1)] | None = None
    preference: _Preference | None = None
    limits: _Limits | None = None
    privacy: _Privacy | None = None


_TABLES: dict[str, type[_Table]] = {
    "": _File,
    "rule": _Rule,
    "preference": _Preference,
    "limits": _Limits,
    "privacy": _Privacy,
}


def read_policy(path: str | os.PathLike[str], *, of_site: bool = False) -> Policy:
    """Read and check a policy file. The policy of a site is closed where it sets nothing."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"Cannot read the policy {str(path)!r}: {why}. Check the path.") from None
    where = f"Policy {str(path)!r}"
    try:
        table = tomllib.loads(content.decode())
        read = msgspec.convert(table, _File)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{where} is not TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise DataError(_sentence(where, str(error))) from None
    privacy = read.privacy
    needs_rules = not of_site and set(table) <= {"min-group-rows", "withhold-below", "groups"}
    if read.rule is None and needs_rules:
        raise DataError(f"{where}: `rule` must be one or more [[rule]] tables, got none.")
    if privacy is not None and (read.min_group_rows or read.withhold_below):
        raise DataError(
            f"{where}: `min-group-rows` and `withhold-below` must be left out beside [privacy]: "
            "what is withheld would depend on the rows, and noise does without."
        )
    for attribute, names in read.groups.items():
        if len(set(names)) != len(names):
            raise DataError(f"{where}: `groups.{attribute}` must have different names.")
    is_closed = of_site and privacy is None
    limits = _like(Limits, read.limits) or Limits()
    with naming(where):
        preference = _like(Preference, read.preference)
        budget = None if privacy is None else PrivacyBudget(privacy.epsilon, privacy.delta)
        check_positive("limits.largest-answer-mb", limits.largest_answer_mb)
    return Policy(
        _rules(where, read.rule or ()),
        read.groups,
        read.min_group_rows or (MIN_GROUP_ROWS if is_closed else 1),
        str(path),
        hashlib.sha256(content).hexdigest(),
        read.withhold_below or (WITHHOLD_BELOW if is_closed else 1),
        preference,
        limits,
        budget,
        None if privacy is None else privacy.schema,
        privacy is not None and privacy.after_exact_answers,
    )


def _like(kind: Callable[..., T], table: _Table | None) -> T | None:
    """Return the checked class with the fields of a table."""
    return None if table is None else kind(**msgspec.structs.asdict(table))


def _rules(where: str, tables: tuple[_Rule, ...]) -> tuple[PolicyRule, ...]:
    found: dict[tuple[str, ...], PolicyRule] = {}
    for number, table in enumerate(tables, start=1):
        place = f"{where}, rule {number}"
        with naming(place):
            rule = _rule(table)
        if rule.clients and rule.rule.scope == "global":
            raise DataError(f"{place}: `clients` must be left out for scope 'global'.")
        if identity(rule.rule) in found:
            raise DataError(
                f"{place} compares the same as an earlier rule. Join them; single clients have "
                "their budgets under [rule.clients]."
            )
        found[identity(rule.rule)] = rule
    return tuple(found.values())


def _rule(table: _Rule) -> PolicyRule:
    kind = _KINDS[check_choice("kind", table.kind, _KINDS)]
    for client, budget in table.clients.items():
        check_budget(f"clients.{client!r}", budget)
    rule = kind(table.metric, table.attribute, table.budget, table.scope)  # type: ignore[arg-type]
    return PolicyRule(rule, table.clients)


def _sentence(where: str, reason: str) -> str:
    """Put the key before the reason for which `msgspec` rejects a file, and help with a typo."""
    reason, _, place = reason.partition(" - at `$")
    keys = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", place.strip(".`"))
    unknown = re.match("Object contains unknown field `(.*)`", reason)
    if unknown is not None:
        below = f", `{keys}`" if keys else ""
        table = _TABLES.get(keys.partition(" ")[0], _File)
        hint = did_you_mean(unknown[1], [f.encode_name for f in msgspec.structs.fields(table)])
        return f"Unknown key `{unknown[1]}` in {where[0].lower()}{where[1:]}{below}. {hint}"
    return f"{where}: `{keys}`: {reason}." if keys else f"{where}: {reason}."
