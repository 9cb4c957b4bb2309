"""Settings of a run that say what is compared, and how much may differ."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from fcfl._checks import check_confidence, check_count, check_positive, check_share
from fcfl._types import ClientId
from fcfl.models.group_thresholds import Thresholds
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule, Scope
from fcfl.runs.budgets import check_budgets, check_ratio, for_every_client, parse_budget
from fcfl.runs.options import Written, one_of
from fcfl.training.open_settings import MAX_ACCURACY_LOSS

BUDGETS = "Budgets"  # heading in --help

Metric = Annotated[str, one_of(RATE_KINDS)]
Budget = Annotated[
    float | Mapping[ClientId, float], Written("BUDGET", read=parse_budget), check_budgets
]
RateRatio = Annotated[float, Written("RATIO"), check_ratio]


@dataclass(frozen=True)
class BudgetSettings:
    """The metric and its budgets.

    ``budget`` is a number for every client or one per client, the key ``"*"`` standing for all
    others. ``relative_budget`` w gives every client w times the disparity it has without budgets.
    """

    GROUP: ClassVar = BUDGETS

    _: KW_ONLY
    metric: Metric = "demographic_parity"
    """Rates that are compared."""
    budget: Budget | None = None
    """Largest difference of group rates: 0.05 or 5%; by client: north=0.05,south=0.1; for all
    but one: 0.05,south=0.1."""
    relative_budget: Annotated[float | None, Written("SHARE"), check_positive] = None
    """Budgets as a share of the disparity each client has without budgets."""
    ratio: RateRatio | None = None
    """Smallest ratio of group rates; 0.8 is the four-fifths rule."""
    scope: Literal["client", "global", "both"] = "client"
    """client: budgets hold on each client's rows; global: on all rows together."""
    policy: Annotated[str | None, Written("FILE")] = None
    """TOML file with rules and budgets, instead of --metric, --budget, --ratio and --scope."""
    confidence: Annotated[float | None, Written("SHARE"), check_confidence] = None
    """How sure to be that each budget holds for new people, as far as a client's rows allow:
    training uses tighter bounds. 0 trains with the budgets as they are. Default: 0.9."""
    max_accuracy_loss: Annotated[float, Written("X"), check_share] = MAX_ACCURACY_LOSS
    """Accuracy on training rows that margins may cost beside the budgets."""
    max_rate_shift: Annotated[float | None, Written("X"), check_share] = None
    """How far the rate of all clients together may shift from the model without budgets.
    Default: 0.05; no limit with --confidence 0."""
    pooling: Literal["auto", "none"] = "auto"
    """auto: with eight clients or more, a client with few rows keeps its budget by an estimate
    that borrows from the others. none: always by its own rows."""
    new_rows: Annotated[float | None, Written("N"), check_positive] = None
    """Keep budgets on samples of N rows of each client. Default: in its population."""
    min_group_rows: Annotated[int | None, check_count] = None
    """Rows that a group needs at a client to be compared there. Default: 30, more for a
    budget below 0.05, 100 at most."""
    thresholds: Thresholds = "common"
    """group: one score for everybody, decision thresholds by client and group that keep the
    budgets. The attribute is then used for every decision, which some laws forbid. common:
    one threshold for everybody."""

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
