"""Which combinations of budgets are worth training: there are budgets ** clients of them.

Where they are few enough all are. Else it begins with the same budget for all, with budgets
relative to each client's own disparity, and with one client loose or tight alone. Then, round by
round, it holds a vote on what is known so far: of every rule's winner each client's budget is moved
along the whole ladder, and one client's loosened while another's is tightened; of the next best
ones single budgets by one step, looser only where they have a price. It ends when no such move is
unknown: then no single client's budget changes a winner.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fcfl._types import ClientId
from fcfl.results.negotiation_result import Offer

Levels = tuple[int, ...]
"""A combination: for each client the position of its budget on the ladder, the loosest first."""

SHARES = (0.75, 0.5, 0.25)  # of the disparity that a client has without budgets
_FREE = 1e-9  # a price below this is none


@dataclass(frozen=True)
class Standing:
    """Positions of offers: of every rule's winner, and of the best few by each rule."""

    winners: tuple[int, ...]
    leaders: tuple[int, ...]


class Exploration:
    """Trains combinations on a ladder of budgets, and remembers them.

    Parameters
    ----------
    clients, ladder : who, and which budgets, the loosest first
    train : a combination, and why it is tried, to what everybody gets of it
    vote : how the offers so far stand
    most : combinations trained at most; where there are no more all are trained
    caps : budgets that a client insists on; it is never offered a looser one
    """

    def __init__(
        self,
        clients: Sequence[ClientId],
        ladder: Sequence[float],
        train: Callable[[Levels, str], Offer],
        vote: Callable[[Sequence[Offer]], Standing],
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
            for levels in product(*(range(first, len(self.ladder)) for first in self._loosest)):
                self._try(levels, "every combination")
            return self.offers
        self._begin(own)
        while True:
            before = list(self.known)
            standing = self._vote(self.offers)
            for position in standing.winners:
                for levels, why in self._around(before[position]):
                    self._try(levels, why)
            for position in standing.leaders:
                for levels, why in self._next_to(before[position]):
                    self._try(levels, why)
            if len(self.known) == len(before):
                return self.offers

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

    def _around(self, levels: Levels) -> Iterator[tuple[Levels, str]]:
        """One client with every other budget, and one looser for another that is tighter.

        Not a step at a time: figures jump where a fit has several optima.
        """
        last = len(self.ladder) - 1
        for k, client in enumerate(self.clients):
            for level in range(len(self.ladder)):
                yield _with(levels, k, level), f"a winner, with another budget for {client}"
        for k, client in enumerate(self.clients):
            for j, other in enumerate(self.clients):
                if j != k and levels[k] > 0 and levels[j] < last:
                    moved = _with(_with(levels, k, levels[k] - 1), j, levels[j] + 1)
                    yield moved, f"a winner, with {client} looser and {other} tighter"

    def _next_to(self, levels: Levels) -> Iterator[tuple[Levels, str]]:
        """One client a step looser or tighter, where that can change anything."""
        offer = self.known[levels]
        for k, client in enumerate(self.clients):
            level = levels[k]
            if level > 0 and offer.prices.get(client, 0.0) > _FREE:
                yield _with(levels, k, level - 1), f"{client} looser: its budget has a price"
            if level + 1 < len(self.ladder):
                yield _with(levels, k, level + 1), f"{client} tighter"

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
