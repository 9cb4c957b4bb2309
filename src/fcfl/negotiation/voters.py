"""Who votes: the clients of a federation, each with what it would have alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fcfl._types import ClientId
from fcfl.federation.federation import Federation
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.frontier import worth_a_vote
from fcfl.negotiation.memory import Alone, Free
from fcfl.negotiation.voting import elect_by_all, leaders
from fcfl.preference import Ballot, Choices
from fcfl.results.negotiation import Election, Offer, View, VotingRule

LEADERS = 8  # offers of each rule that must be trained, not predicted


@dataclass(frozen=True)
class Outcome:
    """Ballots on the offers at ``positions``, and what came of them by each rule."""

    positions: tuple[int, ...]
    ballots: Mapping[ClientId, Ballot]
    elections: tuple[Election, ...]

    def winner(self, rule: VotingRule) -> int | None:
        """Its place on the ballot."""
        return next(one.winner for one in self.elections if one.rule == rule)

    def agreed(self, by: VotingRule) -> tuple[VotingRule, int | None]:
        """The rule that decides, approval where ``by`` has no winner, and what it elects."""
        decided_by: VotingRule = "approval" if self.winner(by) is None else by
        winner = self.winner(decided_by)
        return decided_by, None if winner is None else self.positions[winner]

    @property
    def best(self) -> tuple[int, ...]:
        """Positions of the best few by each rule."""
        return tuple(self.positions[i] for i in leaders(self.ballots, LEADERS))


@dataclass(frozen=True)
class Voters:
    """Clients that are asked for ballots, and the models each could walk away to."""

    federation: Federation
    alone: Mapping[ClientId, tuple[Alone, ...]]

    @classmethod
    def meet(cls, bargain: Bargain, ladder: Sequence[float], free: Free) -> "Voters":
        """Train what every client could walk away to: its own model, with each budget."""
        clients = bargain.federation.names
        alone = {client: bargain.alone(client, ladder, free) for client in clients}
        return cls(bargain.federation, alone)

    def vote(self, offers: Sequence[Offer]) -> Outcome:
        """Let everybody vote on the offers that are worth it."""
        positions = worth_a_vote(offers)
        choices = {
            client: Choices(
                tuple(offers[i].views[client].figures for i in positions),
                tuple(one.view.figures for one in models),
                tuple(one.trained.figures for one in models),
            )
            for client, models in self.alone.items()
        }
        ballots = self.federation.vote(choices)
        return Outcome(positions, ballots, elect_by_all(ballots))

    def walk_away(self, ballots: Mapping[ClientId, Ballot]) -> dict[ClientId, View]:
        """What each would have alone, by its own choice."""
        return {client: self.alone[client][b.walks_to].view for client, b in ballots.items()}
