"""A client's preference, the ``[preference]`` table of its policy file, and its ballot.

::

    [preference]
    disparity-per-accuracy = 2.0   # one point of accuracy is worth two points of disparity
    max-disparity = 0.1            # hard limits: what is beyond them is never acceptable
    min-accuracy = 0.75
    tells-gains = false            # its ballots have marks and places only; by default also gains

It stays with the client, wherever that is: what leaves it is a ballot.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from fcfl._checks import check_budget, check_positive
from fcfl._types import Vector


@dataclass(frozen=True)
class Figures:
    """A model's accuracy and disparity at a client."""

    accuracy: float
    disparity: float


@dataclass(frozen=True)
class Choices:
    """The offers to one client, and the models that it could have alone.

    ``alone_trained`` has the same models as ``alone`` on training rows: it chooses by those, so
    that what it would have is not judged by rows it was chosen by.
    """

    offers: tuple[Figures, ...]
    alone: tuple[Figures, ...]
    alone_trained: tuple[Figures, ...]


@dataclass(frozen=True)
class Ballot:
    """A client's vote on the offers; nothing else of its preference leaves it.

    ``ranks`` count from 1, the best; equal ones share the mean of their places. ``gains`` are over
    what it would have alone, scaled so that the largest is 1 in size; an offer beyond a hard limit
    has -1. There are none where a client does not tell them. ``walks_to`` is the position of the
    model it would have alone.
    """

    approves: tuple[bool, ...]
    ranks: tuple[float, ...]
    gains: tuple[float, ...] = ()
    walks_to: int = 0


class Preference(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    r"""Utility :math:`w \cdot` accuracy − disparity, within hard limits.

    ``disparity_per_accuracy`` is w, how much disparity a point of accuracy is worth; by default one
    for one, so that all clients are alike. From the gains of a few offers w can be computed:
    whoever keeps it to itself sets ``tells_gains`` to False, and Nash's rule then elects nobody.
    """

    disparity_per_accuracy: float = 1.0
    max_disparity: float | None = None
    min_accuracy: float | None = None
    tells_gains: bool = True

    def __post_init__(self) -> None:
        check_positive("disparity-per-accuracy", self.disparity_per_accuracy)
        if self.max_disparity is not None:
            check_budget("max-disparity", self.max_disparity)
        if self.min_accuracy is not None:
            check_budget("min-accuracy", self.min_accuracy)
        if not isinstance(self.tells_gains, bool):
            raise ValueError(f"`tells-gains` must be true or false, got {self.tells_gains!r}.")

    def utility(self, given: Figures) -> float:
        """Return the utility of a model, in points of disparity."""
        return self.disparity_per_accuracy * given.accuracy - given.disparity

    def allows(self, given: Figures) -> bool:
        """Return whether the hard limits are kept."""
        within = self.max_disparity is None or given.disparity <= self.max_disparity
        return within and (self.min_accuracy is None or given.accuracy >= self.min_accuracy)

    def cast_ballot(self, choices: Choices) -> Ballot:
        """Approve what is at least as good as going alone; rank by utility, limits first.

        What breaks a hard limit is ranked below everything that breaks none.
        """
        liked = [(self.allows(one), self.utility(one)) for one in choices.alone_trained]
        walks_to = liked.index(max(liked))
        gains = np.array([self.gain_over(choices.alone[walks_to], one) for one in choices.offers])
        allowed = np.array([self.allows(one) for one in choices.offers], bool)
        largest = max(np.abs(gains[allowed]).max(initial=0.0), np.finfo(float).tiny)
        told = np.where(allowed, gains / largest, -1.0)
        return Ballot(
            approves=tuple((allowed & (gains >= 0)).tolist()),
            ranks=tuple(places(np.where(allowed, gains, gains - 1e6)).tolist()),
            gains=tuple(told.tolist()) if self.tells_gains else (),
            walks_to=walks_to,
        )

    def gain_over(self, alone: Figures, offer: Figures) -> float:
        """Return by how much the client prefers an offer to the model it has alone.

        Where alone it breaks a hard limit of its own it has no acceptable model to walk away to,
        and anything within the limits is a gain: it counts from the worst model there is.
        """
        walk_away = self.utility(alone if self.allows(alone) else Figures(0.0, 1.0))
        return self.utility(offer) - walk_away


def places(values: Vector) -> Vector:
    """Return the place of each value, 1 for the largest; equal ones share the mean of theirs."""
    above = (values[None, :] > values[:, None]).sum(axis=1)
    level = (values[None, :] == values[:, None]).sum(axis=1)
    return np.asarray(above + (level + 1) / 2)
