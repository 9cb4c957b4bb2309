"""Settings of a run that say what is compared, and how much may differ."""

# ruff: noqa: RUF009 - `option` makes a field, as `dataclasses.field` does

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fcfl._checks import check_confidence, check_count, check_positive, check_share
from fcfl._types import ClientId
from fcfl.models.group_thresholds import THRESHOLDS, Thresholds
from fcfl.models.linear import CONFIDENCE
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule, Scope
from fcfl.runs.budgets import check_budgets, check_ratio, for_every_client, parse_budget
from fcfl.runs.option_fields import Kind, number, one_of, option, whole_number
from fcfl.training.margins import MOST_CHANGE

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
        "How sure to be that each budget holds for new people, as far as a client's rows allow: "
        "training is held to tighter bounds. 0 trains with the budgets as they are. By default "
        f"{CONFIDENCE:g}.",
        Kind("SHARE", number, check_confidence),
        default=None,
        over_sites=True,
    )
    most_change: float = _option(
        "How far the share that a client selects may move for that.",
        Kind("SHARE", number, check_share),
        default=MOST_CHANGE,
        over_sites=True,
    )
    min_group_rows: int | None = _option(
        "Rows that a group needs at a client to be compared there. By default 30, more for a "
        "budget below 0.05, 100 at most.",
        Kind("N", whole_number, check_count),
        default=None,
        over_sites=True,
    )

    thresholds: Thresholds = _option(
        "group: one score for everybody, decision thresholds by client and group that keep the "
        "budgets. The attribute is then used for every decision, which some laws forbid. common: "
        "one threshold for everybody.",
        one_of(*THRESHOLDS),
        default="common",
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
        if self.thresholds == "group" and self.scope != "client":
            raise ValueError(f"`thresholds` 'group' needs scope 'client', got {self.scope!r}.")
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
