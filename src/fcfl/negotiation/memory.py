"""The models that a negotiation has trained, in a journal, so that none is trained twice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fcfl._types import ClientId
from fcfl.federation.journal import Journal
from fcfl.results.negotiation import Offer, View
from fcfl.results.result import PartName


@dataclass(frozen=True)
class Free:
    """The model without budgets, and with which settings it was trained.

    ``own`` is each client's disparity on training rows; ``part``, the rows that offers are judged
    by.
    """

    l2: float
    objective: float | str | None
    params: tuple[float, ...]
    own: Mapping[ClientId, float]
    part: PartName


@dataclass(frozen=True)
class Alone:
    """A client's own model, on the rows that offers are judged by, and on its training rows."""

    client: ClientId
    budget: float | None
    view: View
    trained: View


class Memory:
    """Models by their budgets; with a ``path``, also those that an earlier process trained.

    Models depend on rows and settings, too: a file must be of the same ones.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.free: Free | None = None
        self._alone: dict[tuple[ClientId, float | None], Alone] = {}
        self._offers: dict[tuple[tuple[ClientId, float], ...], Offer] = {}
        self._journal = Journal(path)
        with self._journal.locked():
            read = self._journal.read
            trained: list[Free | Alone | Offer] = [*read(Free), *read(Alone), *read(Offer)]
        for entry in trained:
            self._take(entry)

    def alone(self, client: ClientId, budget: float | None) -> Alone | None:
        """Return a client's own model with a budget, or without one."""
        return self._alone.get((client, budget))

    def offer(self, budgets: Mapping[ClientId, float], found_by: str) -> Offer | None:
        """Return a combination of budgets; this time it may be found in another way."""
        known = self._offers.get(tuple(budgets.items()))
        return None if known is None else replace(known, found_by=found_by)

    def add(self, entry: Free | Alone | Offer) -> None:
        """Store a model, on disk too."""
        self._take(entry)
        with self._journal.locked():
            self._journal.append(entry)

    def _take(self, entry: Free | Alone | Offer) -> None:
        if isinstance(entry, Free):
            self.free = entry
        elif isinstance(entry, Alone):
            self._alone[entry.client, entry.budget] = entry
        else:
            self._offers[tuple(entry.budgets.items())] = entry
