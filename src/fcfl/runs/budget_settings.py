"""Settings of a run that say what is compared, and how much may differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fcfl._checks import check_positive
from fcfl._types import ClientId
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule, Scope
from fcfl.runs.budgets import check_budgets, check_ratio, for_every_client, parse_budget
from fcfl.runs.option_fields import SHARE, Kind, number, one_of, option

BUDGETS = "Budgets"  # heading in --help
_option = partial(option, group=BUDGETS)


@dataclass(frozen=True)
class BudgetSettings:
    """The metric and its budgets.

    ``budget`` is a number for every client or one per client, the key ``"*"`` standing for all
    others. ``relative_budget`` w gives every client w times the disparity it has without budgets.
    """

    metric: str = _option(
        "demographic_parity, equal_opportunity or equalized_odds.",
        one_of(*RATE_KINDS),
        default="demographic_parity",
        over_sites=True,
    )
    budget: float | Mapping[ClientId, float] | None = _option(
        "Largest difference of group rates: 0.05; by client: north=0.05,south=0.1; for all "
        "but one: 0.05,south=0.1.",
        Kind("BUDGET", parse_budget, check_budgets),
        default=None,
        over_sites=True,
    )
    relative_budget: float | None = _option(
        "Budgets as a share of the disparity each client has without budgets.",
        Kind("SHARE", number, check_positive),
        default=None,
    )
    ratio: float | None = _option(
        "Smallest ratio of group rates; 0.8 is the four-fifths rule.",
        Kind("RATIO", number, check_ratio),
        default=None,
        over_sites=True,
    )
    scope: Literal["client", "global", "both"] = _option(
        "client: budgets hold on each client's rows; global: on all rows together; both.",
        one_of("client", "global", "both"),
        default="client",
        over_sites=True,
    )
    policy: str | None = _option(
        "TOML file with rules and budgets, instead of --metric, --budget, --ratio and --scope.",
        Kind("FILE"),
        default=None,
        over_sites=True,
    )
    confidence: float | None = _option(
        "Train against tighter budgets, so that held-out disparities stay within the given "
        "ones with this probability: 0.9.",
        SHARE,
        default=None,
    )

    @property
    def is_constrained(self) -> bool:
        """Whether any budget is given."""
        return any(b is not None for b in (self.budget, self.relative_budget, self.ratio))

    def check_budgets_fit(self) -> None:
        """Refuse budgets that do not go together."""
        if self.relative_budget is not None:
            if self.budget is not None or self.ratio is not None:
                other = "budget" if self.budget is not None else "ratio"
                raise ValueError(f"Give `{other}` or `relative_budget`, not both.")
            if self.scope != "client":
                raise ValueError(f"`relative_budget` needs scope 'client', got {self.scope!r}.")
        if self.policy is not None and (self.is_constrained or self.scope != "client"):
            raise ValueError("Give a `policy` or budgets and scope, not both.")
        if self.confidence is not None and (self.ratio is not None or self.scope != "client"):
            raise ValueError("`confidence` needs difference budgets of scope 'client'.")
        if isinstance(self.budget, Mapping) and self.scope != "client":
            raise ValueError(f"Budgets by client need scope 'client', got {self.scope!r}.")

    def make_rules(
        self, attributes: Sequence[str], clients: Sequence[ClientId]
    ) -> tuple[Rule, ...]:
        """One rule per attribute and scope, and one more where a ratio is asked for."""
        rules: list[Rule] = []
        scopes: tuple[Scope, ...] = ("client", "global") if self.scope == "both" else (self.scope,)
        metric: Any = self.metric
        budget = self.budget
        if isinstance(budget, Mapping):
            budget = for_every_client(budget, clients)
        for attribute in attributes:
            for scope in scopes:
                if self.ratio is None or budget is not None:
                    rules.append(Difference(metric, attribute, budget, scope))
                if self.ratio is not None:
                    rules.append(Ratio(metric, attribute, self.ratio, scope))
        return tuple(rules)
