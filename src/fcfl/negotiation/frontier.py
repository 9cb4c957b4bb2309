"""Offers that are worth a vote: none that another one dominates for everybody, none twice."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Matrix, Vector
from fcfl.results.negotiation import Offer

ALIKE = 0.0025  # offers that differ by no more for anybody count as one


def merits(offers: Sequence[Offer]) -> Matrix:
    """Accuracy and minus disparity of every client, (offers, 2 · clients): more is better."""
    return np.array(
        [
            [x for view in offer.views.values() for x in (view.accuracy, -view.disparity)]
            for offer in offers
        ]
    )


def dominated(merit: Matrix) -> NDArray[np.bool_]:
    """Which rows have another one that is at least as good in everything and better in something.

    Whatever clients prefer, as long as they prefer accuracy and dislike disparity, nobody would
    vote for such an offer against the other one.
    """
    found = np.zeros(len(merit), dtype=bool)
    for i, row in enumerate(merit):
        others = (merit >= row).all(axis=1) & (merit > row).any(axis=1)
        found[i] = bool(others.any())
    return found


def worth_a_vote(offers: Sequence[Offer]) -> tuple[int, ...]:
    """Positions of offers that keep their budgets, dominated by none, the tightest of those alike.

    Where a budget is not reached, a looser one gives nearly the same model: left on the ballot,
    such clones would decide a vote by places. Which of them stays, and the order, do not depend on
    the order of training.
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
