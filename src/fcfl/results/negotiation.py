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
    """Results of one model for one client, with intervals.

    ``disparity`` is the client's largest difference, 0 if fewer than two groups can be compared.
    """

    accuracy: float
    loss: float
    disparity: float
    accuracy_interval: Interval | None = None
    disparity_interval: Interval | None = None

    @property
    def figures(self) -> Figures:
        """Accuracy and disparity, on which the client's vote depends."""
        return Figures(self.accuracy, self.disparity)


@dataclass(frozen=True)
class Offer:
    """A combination of budgets, and the results of its trained model for every client.

    ``prices`` are decreases of the objective per unit of a relaxed budget. An offer is dominated
    if another offer is at least as good for every client; dominated offers are not voted on.
    """

    budgets: Mapping[ClientId, float]
    views: Mapping[ClientId, View]
    prices: Mapping[ClientId, float]
    is_met: bool
    found_by: str
    is_dominated: bool = False


@dataclass(frozen=True)
class Election:
    """Outcome of one voting rule; ``winner`` indexes the offers voted on, None if none wins."""

    rule: VotingRule
    winner: int | None
    scores: tuple[float, ...]
    would_leave: tuple[ClientId, ...] = ()


@dataclass(frozen=True)
class Cost:
    """Effect on every client of relaxing one client's budget by one step.

    ``accuracy`` and ``loss`` are changes on the rows of the views. ``price`` is computed from the
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
    """All trained offers, the ballots of the clients, and the winner by each rule.

    ``on_ballot`` are the indices of the offers voted on. ``alone`` are the results of each client's
    own model, used if there is no agreement. ``agreed`` is the index of the offer elected by the
    rule ``decided_by``: the requested rule, or approval if that rule has no winner.
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
        """Return the outcome of one voting rule."""
        return next(one for one in self.elections if one.rule == rule)
