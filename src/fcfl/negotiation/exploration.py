"""Which combinations of budgets are worth training: all of them would be budgets ** clients.

It begins with the same budget for all, with budgets relative to each client's own disparity, and
with one client loose or tight alone.
Then, round by round, it looks at the offers that lead by some voting rule and trains what is one
step away from them: one client looser where its budget has a price, one client tighter. It ends
when everything next to the leaders is known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from fcfl._types import ClientId
from fcfl.results.negotiation_result import Offer

Levels = tuple[int, ...]
"""A combination: for each client the position of its budget on the ladder, the loosest first."""

SHARES = (0.75, 0.5, 0.25)  # of the disparity that a client has without budgets
_FREE = 1e-9  # a price below this is none


class Exploration:
    """Trains combinations on a ladder of budgets, and remembers them.

    Parameters
    ----------
    clients, ladder : who, and which budgets, the loosest first
    train : a combination, and why it is tried, to what everybody gets of it
    leading : offers so far to the positions of those that lead by some rule
    most : combinations trained at most
    caps : budgets that a client insists on; it is never offered a looser one
    """

    def __init__(
        self,
        clients: Sequence[ClientId],
        ladder: Sequence[float],
        train: Callable[[Levels, str], Offer],
        leading: Callable[[Sequence[Offer]], Sequence[int]],
        most: int,
        caps: Mapping[ClientId, float] | None = None,
    ) -> None:
        self.clients, self.ladder = tuple(clients), tuple(ladder)
        self._train, self._leading, self._most = train, leading, most
        self._loosest = tuple(self._first_within((caps or {}).get(c)) for c in self.clients)
        self.known: dict[Levels, Offer] = {}

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All that was trained, in this order."""
        return tuple(self.known.values())

    def run(self, own: Mapping[ClientId, float]) -> tuple[Offer, ...]:
        """Explore; ``own`` is what each client's disparity is without budgets."""
        last = len(self.ladder) - 1
        for level in range(len(self.ladder)):
            self._try((level,) * len(self.clients), "the same for all")
        for share in SHARES:
            self._try(self._relative(own, share), f"{share:g} of each client's own disparity")
        for k, client in enumerate(self.clients):
            for level, others in ((0, last), (last, 0)):
                mixed = _with((others,) * len(self.clients), k, level)
                self._try(mixed, f"only {client} {'loose' if level == 0 else 'tight'}")
        while True:
            before = len(self.known)
            combinations = list(self.known)
            for position in self._leading(self.offers):
                for levels, why in self._next_to(combinations[position]):
                    self._try(levels, why)
            if len(self.known) == before:
                return self.offers

    def _relative(self, own: Mapping[ClientId, float], share: float) -> Levels:
        """For each client the budget on the ladder that is nearest to a share of its own."""
        return tuple(
            min(range(len(self.ladder)), key=lambda i: abs(self.ladder[i] - share * own[client]))
            for client in self.clients
        )

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
