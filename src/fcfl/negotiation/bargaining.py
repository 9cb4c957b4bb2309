"""Train a combination of budgets, or one client alone, and return what every client gets.

Everything goes through `fcfl.training.train`, with plain budgets; ``l2`` and ``objective`` are
chosen once, without budgets. Every training starts from the model without budgets: with budgets
there are several optima, and an offer must not depend on what was trained before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fcfl._types import ClientId, Vector
from fcfl.federation.federation import Federation
from fcfl.models.model import Model
from fcfl.negotiation.memory import Alone, Free, Memory
from fcfl.results.evaluations import row_sections
from fcfl.results.negotiation import Offer, View
from fcfl.results.result import ClientResult, PartName
from fcfl.rules import Difference
from fcfl.training.train import train
from fcfl.training.trained import Trained


@dataclass(frozen=True)
class Bargain:
    """Clients, a model and rules: all that an offer depends on except its budgets.

    Models in the ``memory`` are not trained again.
    """

    federation: Federation
    model: Model
    rules: tuple[Difference, ...]
    l2: Any
    objective: Any
    min_group_rows: float
    seed: int = 0
    memory: Memory = field(default_factory=Memory)

    def settled(self) -> tuple["Bargain", Free]:
        """Return the same with ``l2`` and ``objective`` chosen, and the model without budgets."""
        free = self.memory.free
        if free is None:
            trained = self._train(self.federation, None, None)
            own = {client: view.disparity for client, view in views_of(trained, "train").items()}
            part = judged_part(row_sections(trained.evaluations).clients)
            params = tuple(trained.params.tolist())
            free = Free(trained.l2, trained.objective, params, own, part)
            self.memory.add(free)
        return replace(self, l2=free.l2, objective=free.objective), free

    def offer(self, budgets: Mapping[ClientId, float], free: Free, found_by: str) -> Offer:
        """Return what every client gets under these budgets."""
        known = self.memory.offer(budgets, found_by)
        if known is not None:
            return known
        trained = self._train(self.federation, dict(budgets), np.array(free.params))
        prices: dict[ClientId, float] = {}
        for price in trained.prices:
            if price.client is not None:
                prices[price.client] = prices.get(price.client, 0.0) + price.value
        offer = Offer(dict(budgets), views_of(trained), prices, trained.budgets_met, found_by)
        self.memory.add(offer)
        return offer

    def alone(self, client: ClientId, ladder: Sequence[float], free: Free) -> tuple[Alone, ...]:
        """Return a client's own models, without a budget and with each of the ladder."""
        return tuple(self._alone(client, budget, free) for budget in (None, *ladder))

    def _alone(self, client: ClientId, budget: float | None, free: Free) -> Alone:
        known = self.memory.alone(client, budget)
        if known is not None:
            return known
        budgets = None if budget is None else {client: budget}
        fit = self._train(self.federation.only(client), budgets, np.array(free.params))
        alone = Alone(client, budget, views_of(fit)[client], views_of(fit, "train")[client])
        self.memory.add(alone)
        return alone

    def _train(
        self, federation: Federation, budgets: dict[ClientId, float] | None, start: Vector | None
    ) -> Trained:
        return train(
            federation,
            self.model,
            [replace(rule, budget=budgets) for rule in self.rules],
            l2=self.l2,
            objective=self.objective,
            confidence=0.0,
            starts=1,
            min_group_rows=self.min_group_rows,
            seed=self.seed,
            start=start,
            verbose=False,  # one of many
        )


def judged_part(clients: Mapping[ClientId, ClientResult]) -> PartName:
    """Return "test", or "train" if a client has no held-out rows."""
    return "test" if all(client.rows.test for client in clients.values()) else "train"


def views_of(trained: Trained, part: PartName | None = None) -> dict[ClientId, View]:
    """Return what every client gets, by default on held-out rows if there are any."""
    clients = row_sections(trained.evaluations).clients
    part = part or judged_part(clients)
    return {name: _view(client, part) for name, client in clients.items()}


def _view(client: ClientResult, part: PartName) -> View:
    found = client.part(part)
    measured = [entry for entry in found.disparities if entry.value is not None]
    worst = max(measured, key=lambda entry: entry.value or 0.0, default=None)
    known = worst is not None and worst.low is not None and worst.high is not None
    return View(
        accuracy=found.accuracy or 0.0,
        loss=found.loss or 0.0,
        disparity=0.0 if worst is None else float(worst.value or 0.0),
        accuracy_interval=found.accuracy_interval,
        disparity_interval=(worst.low, worst.high) if known else None,  # type: ignore[union-attr,arg-type]
    )
