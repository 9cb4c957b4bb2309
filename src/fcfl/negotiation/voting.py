"""Three ways to count ballots. All take the same ballots; none sees a preference."""

from collections.abc import Mapping, Sequence

import numpy as np

from fcfl._types import ClientId
from fcfl.preference import Ballot
from fcfl.results.negotiation import VOTING_RULES, Election, VotingRule

_TIE = 1e-12


def approval_scores(ballots: Sequence[Ballot]) -> tuple[float, ...]:
    """How many approve each offer."""
    return tuple(float(sum(column)) for column in zip(*(b.approves for b in ballots), strict=True))


def borda_scores(ballots: Sequence[Ballot]) -> tuple[float, ...]:
    """From each ballot one point for every offer ranked below, half a point for an equal one."""
    size = len(ballots[0].ranks)
    points = [[size - rank for rank in ballot.ranks] for ballot in ballots]
    return tuple(float(sum(column)) for column in zip(*points, strict=True))


def nash_scores(ballots: Sequence[Ballot]) -> tuple[float, ...]:
    r"""The product of gains :math:`\prod_k (u_k - u_k^{alone})` where nobody loses, else -1.

    Scaling anybody's gains scales all products alike: the winner does not depend on units. Whoever
    gains nothing anywhere, such as a client that the others' rows teach nothing, is left out: it
    would make every product 0. Where somebody does not tell its gains there are no products: -1
    everywhere.
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
    """The winner by a rule: the highest score.

    Of equal ones that with more Borda points, then that with the larger product of gains: with few
    clients points are often level, and the order of training must decide nothing. Nobody wins by
    "nash" where every offer leaves somebody worse off than alone, or where somebody does not tell
    its gains.
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
    return Election(rule, winner, scores, _would_leave(ballots, winner))


def elect_by_all(ballots: Mapping[ClientId, Ballot]) -> tuple[Election, ...]:
    """One election by each rule."""
    return tuple(elect(rule, ballots) for rule in VOTING_RULES)


def leaders(ballots: Mapping[ClientId, Ballot], count: int) -> tuple[int, ...]:
    """The best ``count`` offers by each rule, each once: worth looking around."""
    cast = list(ballots.values())
    points = borda_scores(cast)
    found: list[int] = []
    for score in _SCORES.values():
        pairs = zip(score(cast), points, strict=True)
        ranked = sorted((-first, -second, i) for i, (first, second) in enumerate(pairs))
        found += [i for _, _, i in ranked[:count]]
    return tuple(dict.fromkeys(found))


def _would_leave(ballots: Mapping[ClientId, Ballot], winner: int) -> tuple[ClientId, ...]:
    """Who has more alone, or a hard limit broken."""
    return tuple(client for client, ballot in ballots.items() if not ballot.approves[winner])
