"""What sites agree on, from what each of them says of itself: columns, groups, and rules."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fcfl._types import ClientId
from fcfl.data import Columns, Schema
from fcfl.data.own_table import SITE
from fcfl.data.roles import label_pair
from fcfl.errors import DataError
from fcfl.federation.messages import Agreement, Introduction, Terms
from fcfl.policy import read_policy, stricter
from fcfl.rules import Rule, check_budget_clients, rates_needed
from fcfl.runs.settings import Experiment


def agree(
    experiment: Experiment, terms: Terms, introductions: Mapping[ClientId, Introduction]
) -> Agreement:
    """One encoding for all rows, the groups anybody named, and the stricter of all rules."""
    names = list(introductions)
    levels = _levels(terms, introductions.values())
    compared, min_group_rows = levels, 1
    if experiment.policy is None:
        rules = experiment.make_rules(terms.sensitive, names)
    else:
        policy = read_policy(experiment.policy)
        rules, compared = policy.rules(names), policy.levels(levels)
        min_group_rows = policy.min_group_rows
    check_budget_clients(rules, names)
    for name, said in introductions.items():
        rules = stricter(rules, _own_rules(name, said.rules, terms), names)
    schema = Schema.from_statistics({name: said.statistics for name, said in introductions.items()})
    if not schema.columns:
        raise DataError("The sites must share at least one feature column that varies, got none.")
    return Agreement(
        terms=terms,
        labels=_labels(terms, introductions),
        levels=levels,
        schema=schema,
        rates=rates_needed(rules, compared),
        rules=rules,
        min_group_rows=min_group_rows,
        checksums={name: said.checksum for name, said in introductions.items()},
    )


def _labels(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> tuple[str, str]:
    values = sorted({value for said in introductions.values() for value in said.labels})
    if len(values) > 2:
        by_site = ", ".join(
            f"{name!r} {' and '.join(map(repr, said.labels))}"
            for name, said in introductions.items()
        )
        raise DataError(
            f"Label column {terms.label!r} must have the same two values at all sites, got "
            f"{by_site}."
        )
    return label_pair(
        tuple(values), Columns(SITE, terms.label, terms.sensitive, terms.drop, terms.positive)
    )


def _levels(terms: Terms, said: Iterable[Introduction]) -> dict[str, tuple[str, ...]]:
    """Groups of each sensitive column, sorted as text."""
    named: dict[str, set[str]] = {attribute: set() for attribute in terms.sensitive}
    for introduction in said:
        for attribute, groups in named.items():
            groups.update(introduction.levels.get(attribute, ()))
    for attribute, groups in named.items():
        if not groups:
            raise DataError(
                f"No site named a group of {attribute!r}: the column is empty, or every group has "
                "fewer rows than the sites' `withhold-below`."
            )
    return {attribute: tuple(sorted(groups)) for attribute, groups in named.items()}


def _own_rules(name: ClientId, rules: Sequence[Rule], terms: Terms) -> tuple[Rule, ...]:
    """A site's rules, which bind at that site; one of scope global binds everybody's rows."""
    for rule in rules:
        if rule.attribute not in terms.sensitive:
            raise DataError(
                f"Site {name!r} has a policy on {rule.attribute!r}, which must be one of the "
                f"run's `sensitive` columns, got {', '.join(map(repr, terms.sensitive))}."
            )
    return tuple(rule if rule.scope == "global" else _only(rule, name) for rule in rules)


def _only(rule: Rule, name: ClientId) -> Rule:
    budget = rule.budget_of(name)
    return replace(rule, budget=None if budget is None else {name: budget})
