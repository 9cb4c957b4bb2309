"""The dataclasses of ``negotiation.json``: offers, ballots and winners."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fcfl._types import ClientId
from fcfl.preference import Ballot, Figures

from .result import Interval, PartName

VotingRule = Literal["approval", "borda", "nash"]
VOTING_RULES: tuple[VotingRule, ...] = ("approval", "borda", "nash")


@dataclass(frozen=True)
class View:
    """What one client gets of a model, with intervals.

    ``disparity`` is the largest of its differences, 0 where no two groups can be compared.
    """

    accuracy: float
    loss: float
    disparity: float
    accuracy_interval: Interval | None = None
    disparity_interval: Interval | None = None

    @property
    def figures(self) -> Figures:
        """What the client votes by."""
        return Figures(self.accuracy, self.disparity)


@dataclass(frozen=True)
class Offer:
    """A combination of budgets, trained: what every client gets, and what each budget costs.

    ``prices`` are the falls of the objective per unit by which a budget is relaxed. An offer that
    is dominated by another one is worse or equal for everybody in everything, and not voted on.
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
    """What changes for everybody where one client's budget is relaxed by a step.

    ``accuracy`` and ``loss`` are changes on the rows that views are about; ``price`` is what the
    multipliers say.
    """

    client: ClientId
    budget: float
    relaxed: float
    price: float
    accuracy: Mapping[ClientId, float]
    loss: Mapping[ClientId, float]


@dataclass(frozen=True)
class Negotiation:
    """Every offer that was trained, everybody's ballot, and who wins under which rule.

    ``offers`` are all; ``on_ballot`` the positions of those voted on. ``alone`` is what each client
    has if it walks away. ``agreed`` is the position of the offer that
    ``decided_by`` elects: the rule that was asked for, or approval where that has no winner.
    """

    table: str
    clients: tuple[ClientId, ...]
    budgets: tuple[float, ...]
    part: PartName
    metric: str
    attributes: tuple[str, ...]
    min_group_rows: float
    l2: float
    objective: float | str
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
        """What came of one rule."""
        return next(one for one in self.elections if one.rule == rule)
