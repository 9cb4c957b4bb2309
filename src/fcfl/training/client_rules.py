"""Whose rules are in force: those of the run, and the stricter ones that clients insist on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fcfl._types import ClientId
from fcfl.client.questions import Introduction
from fcfl.errors import DataError
from fcfl.policy import stricter
from fcfl.problem.constraints import Constraints
from fcfl.rules import Rule, check_budget_clients


def rules_in_force(
    rules: Sequence[Rule], introductions: Mapping[ClientId, Introduction]
) -> tuple[Rule, ...]:
    """The stricter of the run's rules and each client's own."""
    names = list(introductions)
    check_budget_clients(rules, names)
    merged = tuple(rules)
    for name, said in introductions.items():
        for rule in said.rules:
            if rule.attribute not in said.levels:
                known = ", ".join(map(repr, said.levels))
                raise DataError(
                    f"Client {name!r} has a policy on {rule.attribute!r}, which must be one of the "
                    f"run's sensitive columns, got {known}."
                )
        own = tuple(rule if rule.scope == "global" else _only(rule, name) for rule in said.rules)
        merged = stricter(merged, own, names)
    return merged


def _only(rule: Rule, name: ClientId) -> Rule:
    """The rule where it binds this client and nobody else."""
    budget = rule.budget_of(name)
    return replace(rule, budget=None if budget is None else {name: budget})


def all_levels(introductions: Mapping[ClientId, Introduction]) -> dict[str, tuple[str, ...]]:
    """The groups of each attribute, of all clients together, in the order they are met."""
    found: dict[str, dict[str, None]] = {}
    for said in introductions.values():
        for attribute, levels in said.levels.items():
            found.setdefault(attribute, {}).update(dict.fromkeys(levels))
    return {attribute: tuple(levels) for attribute, levels in found.items()}


def check_comparable(
    bounded: Sequence[Rule],
    constraints: Constraints,
    introductions: Mapping[ClientId, Introduction],
) -> None:
    """Refuse budgets where no two groups can be compared: nothing would be held to them.

    ``constraints`` are those of the ``bounded`` rules.
    """
    if not bounded or constraints.rows:
        return
    attribute = bounded[0].attribute
    present = {g for said in introductions.values() for g in said.present.get(attribute, ())}
    way_out = "Name another column with `--sensitive`, or leave the budget out."
    if len(present) == 1:
        raise DataError(
            f"The only group of {attribute!r} among the training rows is {present.pop()!r}: a "
            f"budget needs two to compare. {way_out}"
        )
    where = "Among the training rows"
    if all(rule.scope == "client" for rule in bounded):
        where = "Among the training rows of each client with a budget"
        way_out = f"Compare all rows together with `--scope global`. {way_out}"
    if any(len(said.present.get(attribute, ())) > 1 for said in introductions.values()):
        way_out = f"Compare smaller groups with a lower `--min-group-rows`. {way_out}"
    raise DataError(
        f"{where} there are no two groups of {attribute!r} with the rows that "
        f"{bounded[0].metric} compares. {way_out}"
    )
