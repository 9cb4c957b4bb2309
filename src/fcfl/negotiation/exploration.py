"""Choose which combinations of budgets to train: there are budgets ** clients of them.

1. If there are few combinations, train all of them.
2. Otherwise begin with three kinds of combinations: the same budget for all; budgets relative to
   each client's own disparity; one client with the loosest budget and all others with the
   tightest, or the reverse.
3. Repeat: predict what the other combinations may give, hold a vote on trained and predicted
   offers, and train those predicted ones that are among the best few by any rule. Stop when all of
   these are trained: no combination left out is likely to win.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, permutations, product
from math import prod

import numpy as np

from fcfl._types import ClientId, Matrix
from fcfl.negotiation.voting import merits
from fcfl.results.negotiation import Offer, View

Levels = tuple[int, ...]
"""A combination: for each client the position of its budget on the ladder, the loosest first."""

SHARES = (0.75, 0.5, 0.25)  # of the disparity that a client has without budgets
AT_ONCE = 4  # trained before the next vote
CANDIDATES = 500  # predicted at a time; sites vote on at most 1,000 offers
_LENGTH = 1.5  # length scale of the Gaussian process, in steps of the ladder
_NOISE = 0.5  # noise variance / process variance; a fit with several optima is not smooth
_RIDGE = 1e-3


class Exploration:
    """Trains combinations of budgets and stores their offers.

    Parameters
    ----------
    clients, ladder : clients, and budgets with the loosest first
    train : function of a combination and the reason for trying it; returns the offer
    vote : positions of the best few offers by each rule, the best first
    most : largest number of combinations to train; up to this number, all are trained
    caps : budgets that a client insists on; it never gets a looser one
    """

    def __init__(
        self,
        clients: Sequence[ClientId],
        ladder: Sequence[float],
        train: Callable[[Levels, str], Offer],
        vote: Callable[[Sequence[Offer]], Sequence[int]],
        most: int,
        caps: Mapping[ClientId, float] | None = None,
    ) -> None:
        self.clients, self.ladder = tuple(clients), tuple(ladder)
        self._train, self._vote, self._most = train, vote, most
        last, most_loose = len(self.ladder) - 1, caps or {}
        self._loosest = tuple(
            next((i for i, b in enumerate(ladder) if b <= most_loose.get(c, 1.0)), last)
            for c in self.clients
        )
        self.known: dict[Levels, Offer] = {}

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All offers in the order of training."""
        return tuple(self.known.values())

    @property
    def n_combinations(self) -> int:
        """The number of combinations."""
        return prod(len(self.ladder) - loosest for loosest in self._loosest)

    def run(self, own: Mapping[ClientId, float]) -> tuple[Offer, ...]:
        """Explore; ``own`` is each client's disparity without budgets."""
        if self.n_combinations <= self._most:
            for levels in self._every():
                self._try(levels, "every combination")
            return self.offers
        self._begin(own)
        while len(self.known) < self._most:
            promising = self._promising()
            if not promising:
                break
            for levels in promising[:AT_ONCE]:
                self._try(levels, "predicted to be among the best")
        return self.offers

    def _promising(self) -> list[Levels]:
        """Return untrained combinations that may be among the best by some rule."""
        unknown = list(islice(self._candidates(), CANDIDATES))
        if not unknown:
            return []
        both = [*self.offers, *optimistic(self.known, unknown, self.ladder)]
        positions = [position - len(self.known) for position in self._vote(both)]
        return [unknown[position] for position in positions if position >= 0]

    def _candidates(self) -> Iterator[Levels]:
        """Yield untrained combinations; above `CANDIDATES` only neighbours of the best offers."""
        if self.n_combinations <= CANDIDATES:
            found: Iterator[Levels] = self._every()
        else:
            trained = list(self.known)
            best = [trained[position] for position in self._vote(self.offers)]
            found = iter(dict.fromkeys(levels for one in best for levels in self._around(one)))
        return (one for one in found if one not in self.known)

    def _every(self) -> Iterator[Levels]:
        return product(*(range(first, len(self.ladder)) for first in self._loosest))

    def _begin(self, own: Mapping[ClientId, float]) -> None:
        last = len(self.ladder) - 1
        for level in range(len(self.ladder)):
            self._try((level,) * len(self.clients), "the same for all")
        for share in SHARES:
            self._try(self._relative(own, share), f"{share:g} of each client's own disparity")
        for k, client in enumerate(self.clients):
            for level, others in ((0, last), (last, 0)):
                mixed = _with((others,) * len(self.clients), k, level)
                self._try(mixed, f"only {client} {'loose' if level == 0 else 'tight'}")

    def _relative(self, own: Mapping[ClientId, float], share: float) -> Levels:
        """Return for each client the budget nearest to a share of its own disparity."""
        return tuple(
            min(range(len(self.ladder)), key=lambda i: abs(self.ladder[i] - share * own[client]))
            for client in self.clients
        )

    def _around(self, levels: Levels) -> Iterator[Levels]:
        """Yield neighbours: one client with another budget, or one looser and another tighter."""
        last = len(self.ladder) - 1
        for k in range(len(self.clients)):
            for level in range(self._loosest[k], len(self.ladder)):
                yield _with(levels, k, level)
        for k, j in permutations(range(len(self.clients)), 2):
            if levels[k] > self._loosest[k] and levels[j] < last:
                yield _with(_with(levels, k, levels[k] - 1), j, levels[j] + 1)

    def _try(self, levels: Levels, why: str) -> None:
        capped = tuple(max(level, most) for level, most in zip(levels, self._loosest, strict=True))
        if capped not in self.known and len(self.known) < self._most:
            self.known[capped] = self._train(capped, why)


def _with(levels: Levels, k: int, level: int) -> Levels:
    return (*levels[:k], level, *levels[k + 1 :])


def optimistic(
    known: Mapping[Levels, Offer], unknown: Sequence[Levels], ladder: Sequence[float]
) -> list[Offer]:
    """Return predicted offers, a standard deviation better than the mean for every client.

    Each client's accuracy and disparity are modelled as a linear function of the levels plus a
    Gaussian process. The variance of the process is estimated from the residuals.
    """
    clients = tuple(next(iter(known.values())).views)
    at, wanted = np.array(list(known), float), np.array(unknown, float)
    mean, deviation = _regress(at, merits(list(known.values())), wanted)
    guesses = (mean + deviation).reshape(len(unknown), len(clients), 2)
    accuracies = np.clip(guesses[:, :, 0], 0.0, 1.0).tolist()
    disparities = np.clip(-guesses[:, :, 1], 0.0, 1.0).tolist()
    offers = []
    for levels, *figures in zip(unknown, accuracies, disparities, strict=True):
        budgets = {c: ladder[level] for c, level in zip(clients, levels, strict=True)}
        rows = zip(clients, *figures, strict=True)
        views = {c: View(accuracy, 0.0, disparity) for c, accuracy, disparity in rows}
        offers.append(Offer(budgets, views, {}, True, "predicted"))
    return offers


def _regress(at: Matrix, values: Matrix, wanted: Matrix) -> tuple[Matrix, Matrix]:
    """Return means and standard deviations of the columns of ``values`` at other points."""
    lines, new_lines = (np.column_stack([np.ones(len(x)), x]) for x in (at, wanted))
    normal = lines.T @ lines + _RIDGE * np.eye(lines.shape[1])
    weights = np.linalg.solve(normal, lines.T @ values)
    left = values - lines @ weights
    covariance = _kernel(at, at) + _NOISE * np.eye(len(at))
    across = _kernel(wanted, at)
    solved = np.linalg.solve(covariance, np.column_stack([left, across.T]))
    by_left, by_across = solved[:, : left.shape[1]], solved[:, left.shape[1] :]
    scale = np.einsum("ij,ij->j", left, by_left) / len(at)
    variance = 1.0 + _NOISE - np.einsum("ij,ji->i", across, by_across)
    return new_lines @ weights + across @ by_left, np.sqrt(np.outer(variance, scale))


def _kernel(a: Matrix, b: Matrix) -> Matrix:
    squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * squares / _LENGTH**2))
