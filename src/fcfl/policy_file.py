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

    [limits]                         # a site's own: what it answers at most; all are optional
    counts-per-table = 100
    curvature = "masked"             # only as a sum over clients; or true, or false

    [masks]                          # a site's own: see docs/masked-sums.md
    least = 5                        # clients that a masked sum is over at least; default 3
    peers = { north = "…" }          # public keys of the others, as `fcfl site key` prints them

Of a rule only ``metric`` and ``attribute`` are required, and no rule at all beside a preference or
limits. Clients named under ``[rule.clients]`` of a rule without a ``budget`` are the only ones
bounded by it. A site's ``[privacy]`` table has ``epsilon``, ``delta`` and ``schema``, and stands
without the first two keys: see docs/privacy.md.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fcfl._checks import (
    check_budget,
    check_choice,
    check_count,
    check_fraction,
    check_keys,
    check_positive,
)
from fcfl.errors import DataError
from fcfl.limits import LEAST_IN_LEVEL, LEAST_ROWS, Limits
from fcfl.mask_policy import mask_policy_from_table
from fcfl.policy import Policy, PolicyRule, PrivacyBudget, identity, naming
from fcfl.preference import Preference, preference_from_table
from fcfl.rules import Difference, Ratio

_KINDS: dict[str, type[Difference] | type[Ratio]] = {"difference": Difference, "ratio": Ratio}
_SITE_KEYS = ("limits", "masks", "preference", "privacy")  # a site may have no rule beside these
_TOP_KEYS = ("min-group-rows", "withhold-below", "groups", "rule", *_SITE_KEYS)
_RULE_KEYS = ("metric", "attribute", "kind", "budget", "scope", "clients")


def read_policy(path: str | os.PathLike[str], *, of_site: bool = False) -> Policy:
    """Read and check a policy file; one of a site is closed where it says nothing."""
    least, in_level = (LEAST_ROWS, LEAST_IN_LEVEL) if of_site else (1, 1)
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
    if "privacy" in table:
        least, in_level = 1, 1  # what is withheld would depend on the rows
    return Policy(
        () if needs_no_rules else tuple(_read_rules(where, table.get("rule"))),
        _read_groups(where, table.get("groups", {})),
        _read_rows(where, "min-group-rows", table.get("min-group-rows", least)),
        str(path),
        hashlib.sha256(content).hexdigest(),
        _read_rows(where, "withhold-below", table.get("withhold-below", in_level)),
        _read_preference(where, table.get("preference")),
        _read_limits(where, table.get("limits", {})),
        mask_policy_from_table(table.get("masks", {}), where),
        *_read_privacy(where, table),
    )


def _read_rules(where: str, rules: object) -> Iterator[PolicyRule]:
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise DataError(f"{where}: `rule` must be one or more [[rule]] tables, got {rules!r}.")
    seen: dict[tuple[str, ...], int] = {}
    for number, table in enumerate(rules, start=1):
        place = f"{where}, rule {number}"
        found = _read_rule(place, table)
        first = seen.setdefault(identity(found.rule), number)
        if first != number:
            raise DataError(
                f"{place} compares the same as rule {first}. Join them; single clients have "
                "their budgets under [rule.clients]."
            )
        yield found


def _read_rule(where: str, table: Mapping[str, object]) -> PolicyRule:
    check_keys(table, _RULE_KEYS, where.replace("Policy", "policy", 1), DataError)
    for key in ("metric", "attribute"):
        if key not in table:
            raise DataError(f"{where}: `{key}` must be given, got only {', '.join(table)}.")
    metric, attribute = (_text(where, table, key) for key in ("metric", "attribute"))
    kind, scope = _text(where, table, "kind", "difference"), _text(where, table, "scope", "client")
    with naming(where):
        chosen = _KINDS[check_choice("kind", kind, _KINDS)]
        budget = _budget("budget", table["budget"]) if "budget" in table else None
        clients = _client_budgets(where, table.get("clients", {}))
        rule = chosen(metric, attribute, budget, scope)  # type: ignore[arg-type]
    if clients and rule.scope == "global":
        raise DataError(f"{where}: `clients` must be left out for scope 'global', got {clients!r}.")
    return PolicyRule(rule, clients)


def _text(where: str, table: Mapping[str, object], key: str, default: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise DataError(f"{where}: `{key}` must be text in quotes, got {value!r}.")
    return value


def _budget(key: str, value: object) -> float:
    return check_budget(key, value)  # type: ignore[arg-type]


def _client_budgets(where: str, clients: object) -> dict[str, float]:
    if not isinstance(clients, dict):
        raise DataError(f"{where}: `clients` must be a [rule.clients] table, got {clients!r}.")
    return {client: _budget(f"clients.{client!r}", value) for client, value in clients.items()}


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
    with naming(where):
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
    for key in ("min-group-rows", "withhold-below"):
        if key in policy:
            raise DataError(
                f"{where}: `{key}` must be left out beside [privacy]: what is withheld would "
                "depend on the rows, and noise does without."
            )
    with naming(where):
        budget = PrivacyBudget(table["epsilon"], table["delta"])
    return budget, _text(where, table, "schema")


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
    if key in ("seed", "test-size") and value == "any":
        return None
    if key == "curvature":
        if not isinstance(value, bool) and value != "masked":
            raise DataError(f"{where}: `{place}` must be true, false or 'masked', got {value!r}.")
        return value
    with naming(where):
        if key == "test-size":
            return check_fraction(place, value)  # type: ignore[arg-type]
        if key.startswith("largest-"):
            return check_positive(place, value)  # type: ignore[arg-type]
        return check_count(place, value)  # type: ignore[arg-type]
