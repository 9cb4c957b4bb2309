"""Which combinations of budgets are worth training: there are budgets ** clients of them.

Where they are few enough all are. Else it begins with the same budget for all, with budgets
relative to each client's own disparity, and with one client loose or tight alone. Then, round by
round, it predicts what the others may well give, holds a vote on trained and predicted ones
together, and trains those predicted ones that are among the best few of any rule. It ends when all
of these are trained: nothing that was left out is likely to win.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod

from fcfl._types import ClientId
from fcfl.negotiation.prediction import Levels, optimistic
from fcfl.results.negotiation import Offer

SHARES = (0.75, 0.5, 0.25)  # of the disparity that a client has without budgets
AT_ONCE = 4  # trained before the next vote
CANDIDATES = 500  # predicted at a time; sites vote on at most 1,000 offers


class Exploration:
    """Trains combinations on a ladder of budgets, and remembers them.

    Parameters
    ----------
    clients, ladder : who, and which budgets, the loosest first
    train : a combination, and why it is tried, to what everybody gets of it
    vote : positions of the best few offers by each rule, the best first
    most : combinations trained at most; where there are no more all are trained
    caps : budgets that a client insists on; it is never offered a looser one
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
        self._loosest = tuple(self._first_within((caps or {}).get(c)) for c in self.clients)
        self.known: dict[Levels, Offer] = {}

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All that was trained, in this order."""
        return tuple(self.known.values())

    @property
    def n_combinations(self) -> int:
        """How many there are."""
        return prod(len(self.ladder) - loosest for loosest in self._loosest)

    def run(self, own: Mapping[ClientId, float]) -> tuple[Offer, ...]:
        """Explore; ``own`` is what each client's disparity is without budgets."""
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
        """Combinations not trained yet that may be among the best by some rule."""
        unknown = list(islice(self._candidates(), CANDIDATES))
        if not unknown:
            return []
        both = [*self.offers, *optimistic(self.known, unknown, self.ladder)]
        positions = [position - len(self.known) for position in self._vote(both)]
        return [unknown[position] for position in positions if position >= 0]

    def _candidates(self) -> Iterator[Levels]:
        """What is not trained; of very many, what is next to the best."""
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
        """For each client the budget on the ladder that is nearest to a share of its own."""
        return tuple(
            min(range(len(self.ladder)), key=lambda i: abs(self.ladder[i] - share * own[client]))
            for client in self.clients
        )

    def _around(self, levels: Levels) -> Iterator[Levels]:
        """One client with every other budget, and one looser for another that is tighter."""
        last = len(self.ladder) - 1
        for k in range(len(self.clients)):
            for level in range(self._loosest[k], len(self.ladder)):
                yield _with(levels, k, level)
        for k in range(len(self.clients)):
            for j in range(len(self.clients)):
                if j != k and levels[k] > self._loosest[k] and levels[j] < last:
                    yield _with(_with(levels, k, levels[k] - 1), j, levels[j] + 1)

    def _try(self, levels: Levels, why: str) -> None:
        capped = tuple(max(level, most) for level, most in zip(levels, self._loosest, strict=True))
        if capped not in self.known and len(self.known) < self._most:
            self.known[capped] = self._train(capped, why)

    def _first_within(self, cap: float | None) -> int:
        if cap is None:
            return 0
        within = [i for i, budget in enumerate(self.ladder) if budget <= cap]
        return within[0] if within else len(self.ladder) - 1


def _with(levels: Levels, k: int, level: int) -> Levels:
    return (*levels[:k], level, *levels[k + 1 :])
