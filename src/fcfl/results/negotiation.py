"""The dataclasses of ``negotiation.json``: offers, ballots and winners."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fcfl._types import ClientId
from fcfl.audit.intervals import Interval
from fcfl.policy import Ballot, Figures

from .result import Objective, PartName

VotingRule = Literal["approval", "borda", "nash"]
VOTING_RULES: tuple[VotingRule, ...] = ("approval", "borda", "nash")


@dataclass(frozen=True)
class View:
    """A model's results for one client, with intervals.

    ``disparity`` is the largest of its differences, 0 where no two groups can be compared.
    """

    accuracy: float
    loss: float
    disparity: float
    accuracy_interval: Interval | None = None
    disparity_interval: Interval | None = None

    @property
    def figures(self) -> Figures:
        """The figures by which the client votes."""
        return Figures(self.accuracy, self.disparity)


@dataclass(frozen=True)
class Offer:
    """A combination of budgets with the trained model's results for every client.

    ``prices`` are the decreases of the objective per unit by which a budget is relaxed. An offer
    is dominated if another one is at least as good for every client; it is not voted on.
    """

    budgets: Mapping[ClientId, float]
    views: Mapping[ClientId, View]
    prices: Mapping[ClientId, float]
    is_met: bool
    found_by: str
    is_dominated: bool = False


@dataclass(frozen=True)
class Election:
    """The winner by one rule, its position among the offers voted on; None where nobody wins."""

    rule: VotingRule
    winner: int | None
    scores: tuple[float, ...]
    would_leave: tuple[ClientId, ...] = ()


@dataclass(frozen=True)
class Cost:
    """The effect on every client of relaxing one client's budget by a step.

    ``accuracy`` and ``loss`` are changes on the rows of the views; ``price`` comes from the
    multipliers.
    """

    client: ClientId
    budget: float
    relaxed: float
    price: float
    accuracy: Mapping[ClientId, float]
    loss: Mapping[ClientId, float]


@dataclass(frozen=True)
class Negotiation:
    """All offers that were trained, every client's ballot, and the winner by each rule.

    ``on_ballot`` are the positions of the offers voted on. ``alone`` is what each client has
    without an agreement. ``agreed`` is the position of the offer that ``decided_by`` elects: the
    requested rule, or approval where that has no winner.
    """

    table: str
    clients: tuple[ClientId, ...]
    budgets: tuple[float, ...]
    part: PartName
    metric: str
    attributes: tuple[str, ...]
    min_group_rows: float
    l2: float
    objective: Objective | None
    offers: tuple[Offer, ...]
    on_ballot: tuple[int, ...]
    alone: Mapping[ClientId, View]
    ballots: Mapping[ClientId, Ballot]
    elections: tuple[Election, ...]
    decided_by: VotingRule
    agreed: int | None
    costs: tuple[Cost, ...] = ()
    notes: tuple[str, ...] = ()
    loss: str = "cross-entropy"
    command: str = ""

    def election(self, rule: VotingRule) -> Election:
        """Return the election by one rule."""
        return next(one for one in self.elections if one.rule == rule)
