"""Select the offers on the ballot, request votes, and count them by three rules.

An offer is not on the ballot if another one is at least as good for every client and better for
one. Of several offers that are nearly equal, one is on the ballot.
All three rules count the same ballots; none sees a preference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Matrix, Vector
from fcfl.federation.federation import Federation
from fcfl.negotiation.bargaining import Alone, Bargain, Free
from fcfl.policy import Ballot, Choices
from fcfl.results.negotiation import VOTING_RULES, Election, Offer, View, VotingRule

ALIKE = 0.0025  # offers are nearly equal if no figure of any client differs by more
LEADERS = 8  # offers of each rule that must be trained, not predicted
_TIE = 1e-12


def merits(offers: Sequence[Offer]) -> Matrix:
    """Return accuracy and minus disparity of every client, (offers, 2 · clients)."""
    return np.array(
        [
            [x for view in offer.views.values() for x in (view.accuracy, -view.disparity)]
            for offer in offers
        ]
    )


def dominated(merit: Matrix) -> NDArray[np.bool_]:
    """Return which rows are dominated: another row is nowhere lower and somewhere higher.

    A client that prefers accuracy and dislikes disparity never prefers such an offer to the other.
    """
    found = np.zeros(len(merit), dtype=bool)
    for i, row in enumerate(merit):
        others = (merit >= row).all(axis=1) & (merit > row).any(axis=1)
        found[i] = bool(others.any())
    return found


def worth_a_vote(offers: Sequence[Offer]) -> tuple[int, ...]:
    """Return positions of undominated offers that meet their budgets, without near-duplicates.

    If a budget does not bind, a looser one gives nearly the same model. Such clones on the ballot
    would decide a vote by ranks, so only the one with the tightest budgets stays. Which one stays,
    and the order, do not depend on the order of training.
    """
    kept = [i for i, offer in enumerate(offers) if offer.is_met] or list(range(len(offers)))
    kept.sort(key=lambda i: list(offers[i].budgets.values()))
    merit = merits([offers[i] for i in kept])
    is_dominated = dominated(merit)
    positions: list[int] = []
    rows: list[Vector] = []
    for i, row, worse in zip(kept, merit, is_dominated, strict=True):
        if not worse and not any((np.abs(row - other) <= ALIKE).all() for other in rows):
            positions.append(i)
            rows.append(row)
    return tuple(positions)


def approval_scores(ballots: Sequence[Ballot]) -> tuple[float, ...]:
    """Return how many clients approve each offer."""
    return tuple(float(sum(column)) for column in zip(*(b.approves for b in ballots), strict=True))


def borda_scores(ballots: Sequence[Ballot]) -> tuple[float, ...]:
    """Return Borda points: one for every offer ranked below, half for an equal one."""
    size = len(ballots[0].ranks)
    points = [[size - rank for rank in ballot.ranks] for ballot in ballots]
    return tuple(float(sum(column)) for column in zip(*points, strict=True))


def nash_scores(ballots: Sequence[Ballot]) -> tuple[float, ...]:
    r"""Return the product of gains :math:`\prod_k (u_k - u_k^{alone})` if no client loses, else -1.

    Scaling a client's gains scales all products alike: the winner does not depend on units. A
    client without a gain under any offer is left out, since it would make every product 0. If a
    client does not report its gains, all products are -1.
    """
    if not all(ballot.gains for ballot in ballots):
        return (-1.0,) * len(ballots[0].ranks)
    gains = np.array([ballot.gains for ballot in ballots])
    acceptable = (gains >= 0).all(axis=0)
    can_gain = (gains[:, acceptable] > 0).any(axis=1)
    products = np.prod(np.abs(gains[can_gain]), axis=0)
    return tuple(np.where(acceptable, products, -1.0).tolist())


_SCORES = {"approval": approval_scores, "borda": borda_scores, "nash": nash_scores}


def elect(rule: VotingRule, ballots: Mapping[ClientId, Ballot]) -> Election:
    """Return the winner by a rule: the offer with the highest score.

    Ties are broken by Borda points, then by the product of gains, so that the order of training
    decides nothing. There is no winner by "nash" if every offer leaves a client worse off than
    alone, or if a client does not report its gains.
    """
    cast = list(ballots.values())
    if not cast or not cast[0].ranks:
        return Election(rule, None, ())
    scores = _SCORES[rule](cast)
    best = max(scores)
    if rule == "nash" and best < 0:
        return Election(rule, None, scores)
    points, products = borda_scores(cast), nash_scores(cast)
    level = [i for i, score in enumerate(scores) if score >= best - _TIE * max(abs(best), 1.0)]
    winner = max(level, key=lambda i: (points[i], products[i], -i))
    would_leave = tuple(c for c, ballot in ballots.items() if not ballot.approves[winner])
    return Election(rule, winner, scores, would_leave)


def elect_by_all(ballots: Mapping[ClientId, Ballot]) -> tuple[Election, ...]:
    """Return one election by each rule."""
    return tuple(elect(rule, ballots) for rule in VOTING_RULES)


def leaders(ballots: Mapping[ClientId, Ballot], count: int) -> tuple[int, ...]:
    """Return the positions of the best ``count`` offers by each rule, without duplicates."""
    cast = list(ballots.values())
    points = borda_scores(cast)
    found: list[int] = []
    for score in _SCORES.values():
        pairs = zip(score(cast), points, strict=True)
        ranked = sorted((-first, -second, i) for i, (first, second) in enumerate(pairs))
        found += [i for _, _, i in ranked[:count]]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Outcome:
    """Ballots on the offers at ``positions``, and the election by each rule."""

    positions: tuple[int, ...]
    ballots: Mapping[ClientId, Ballot]
    elections: tuple[Election, ...]

    def winner(self, rule: VotingRule) -> int | None:
        """Return the position of the winner on the ballot."""
        return next(one.winner for one in self.elections if one.rule == rule)

    def agreed(self, by: VotingRule) -> tuple[VotingRule, int | None]:
        """Return the deciding rule and its winner: ``by``, or approval if ``by`` has no winner."""
        decided_by: VotingRule = "approval" if self.winner(by) is None else by
        winner = self.winner(decided_by)
        return decided_by, None if winner is None else self.positions[winner]

    @property
    def best(self) -> tuple[int, ...]:
        """Positions of the best few offers by each rule."""
        return tuple(self.positions[i] for i in leaders(self.ballots, LEADERS))


@dataclass(frozen=True)
class Voters:
    """The clients of a federation, with the models that each could train alone."""

    federation: Federation
    alone: Mapping[ClientId, tuple[Alone, ...]]

    @classmethod
    def meet(cls, bargain: Bargain, ladder: Sequence[float], free: Free) -> "Voters":
        """Train the models each client could have alone: without a budget and with each budget."""
        alone = {
            client: tuple(bargain.alone(client, budget, free) for budget in (None, *ladder))
            for client in bargain.federation.names
        }
        return cls(bargain.federation, alone)

    def vote(self, offers: Sequence[Offer]) -> Outcome:
        """Request every client's ballot on the offers worth a vote, and count them."""
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
        """Return each client's figures under the model it would choose without an agreement."""
        return {client: self.alone[client][b.walks_to].view for client, b in ballots.items()}
