"""Disparity rules: rates compared between groups, and bounds on their differences or ratios.

>>> rule = Difference("demographic_parity", "race", 0.05)
>>> round(rule.disparity([0.30, 0.24]), 3)
0.06
>>> rule.budget_of("phd")
0.05
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from fcfl._checks import check_budget, check_choice, check_clients_known
from fcfl._types import LABEL_OF, ClientId, RateId, RateKind

Metric = Literal["demographic_parity", "equal_opportunity", "equalized_odds"]
Scope = Literal["client", "global"]
Budget: TypeAlias = float | Mapping[ClientId, float] | None


def with_label(kind: RateKind) -> str:
    """Return a suffix for the word "rows" that describes the rows a rate counts."""
    label = LABEL_OF[kind]
    return "" if label is None else f" with label {label}"


ROWS_PER_BUDGET = 1.5
LEAST_ROWS = (30.0, 100.0)

RATE_KINDS: dict[str, tuple[RateKind, ...]] = {
    "demographic_parity": ("selection",),
    "equal_opportunity": ("true_positive",),
    "equalized_odds": ("true_positive", "false_positive"),
}


@dataclass(frozen=True)
class _Rule:
    """Metric, attribute, budget and scope of a rule.

    ``budget`` is one number for all clients, or a mapping from clients to numbers in which missing
    clients are not constrained. With ``budget=None``, disparities are measured but not constrained.
    ``scope="global"`` compares groups over the rows of all clients together.
    """

    metric: Metric
    attribute: str
    budget: Budget = None
    scope: Scope = "client"

    @staticmethod
    def allowed(budget: float) -> float:
        """Return the difference that the budget allows between rates near one."""
        raise TypeError("A rule is a `Difference` or a `Ratio`.")

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, RATE_KINDS)
        check_choice("scope", self.scope, ("client", "global"))
        if isinstance(self.budget, Mapping):
            if self.scope == "global":
                raise ValueError("`budget` must be one number for scope 'global', got a mapping.")
            for client, value in self.budget.items():
                check_budget(f"budget[{client!r}]", value)
        elif self.budget is not None:
            check_budget("budget", self.budget)

    @property
    def kinds(self) -> tuple[RateKind, ...]:
        """Return the kinds of rates that the metric compares."""
        return RATE_KINDS[self.metric]

    def budget_of(self, client: ClientId | None) -> float | None:
        """Return the budget of a client, or of the rows of all clients if ``client`` is None."""
        if isinstance(self.budget, Mapping):
            return None if client is None else self.budget.get(client)
        return self.budget

    def least_rows(self, client: ClientId | None, given: float | None = None) -> float:
        """Return the minimum number of rows of a group that a client compares.

        By default, it is 1.5 divided by the budget, so that one more selected row changes a rate by
        less than the budget, but at least 30 and at most 100. It is 1 without a budget, and
        ``given`` if that is not None.
        """
        if given is not None:
            return given
        budget = self.budget_of(client)
        if budget is None:
            return 1.0
        allowed = self.allowed(budget)
        most = LEAST_ROWS[1] if allowed == 0 else ROWS_PER_BUDGET / allowed
        return float(min(max(most, LEAST_ROWS[0]), LEAST_ROWS[1]))


@dataclass(frozen=True)
class Difference(_Rule):
    """Rule that the largest minus the smallest group rate is at most the budget."""

    name: ClassVar[str] = "difference"

    @staticmethod
    def disparity(rates: Sequence[float]) -> float:
        """Return the largest minus the smallest rate."""
        return max(rates) - min(rates)

    @staticmethod
    def worst(disparities: Iterable[float]) -> float:
        """Return the largest of several differences."""
        return max(disparities)

    @staticmethod
    def allowed(budget: float) -> float:
        """Return the difference that the budget allows between rates near one."""
        return budget

    @staticmethod
    def pair_row(budget: float) -> tuple[float, float, float]:
        """Return the row ``r_a - r_b <= budget`` as (weight of a, weight of b, bound)."""
        return 1.0, -1.0, budget


@dataclass(frozen=True)
class Ratio(_Rule):
    """Rule that the smallest divided by the largest group rate is at least the budget."""

    name: ClassVar[str] = "ratio"

    @staticmethod
    def disparity(rates: Sequence[float]) -> float:
        """Return the smallest divided by the largest rate, or 1 if no row is selected."""
        return min(rates) / max(rates) if max(rates) > 0 else 1.0

    @staticmethod
    def worst(disparities: Iterable[float]) -> float:
        """Return the smallest of several ratios."""
        return min(disparities)

    @staticmethod
    def allowed(budget: float) -> float:
        """Return the difference that the budget allows between rates near one."""
        return 1.0 - budget

    @staticmethod
    def pair_row(budget: float) -> tuple[float, float, float]:
        """Return the row ``budget * r_a - r_b <= 0`` as (weight of a, weight of b, bound)."""
        return budget, -1.0, 0.0


Rule: TypeAlias = Difference | Ratio


def rates_needed(
    rules: Iterable[Rule], levels: Mapping[str, Sequence[str]], also: Iterable[RateKind] = ()
) -> tuple[RateId, ...]:
    """Return the distinct rates that the rules compare, in a stable order.

    They are followed by rates of the kinds in ``also``, which some methods need.
    """
    needed: dict[RateId, None] = {}
    rules = list(rules)
    for rule in rules:
        if rule.attribute not in levels:
            raise ValueError(
                f"`attribute` must be one of the sensitive columns "
                f"{', '.join(map(repr, levels))}, got {rule.attribute!r}."
            )
        for kind in rule.kinds:
            for group in levels[rule.attribute]:
                needed[RateId(kind, rule.attribute, group)] = None
    more = [
        RateId(kind, attribute, group)
        for attribute in dict.fromkeys(rule.attribute for rule in rules)
        for kind in also
        for group in levels[attribute]
    ]
    return tuple(needed | dict.fromkeys(more))


def check_budget_clients(rules: Iterable[Rule], clients: Sequence[ClientId]) -> None:
    """Raise `ValueError` if a budget names an unknown client."""
    for rule in rules:
        if isinstance(rule.budget, Mapping):
            check_clients_known("budget", rule.budget, clients)


def without_budgets(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules without budgets, so that disparities are only measured."""
    return tuple(replace(rule, budget=None) for rule in rules)
