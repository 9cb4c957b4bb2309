"""Train a combination of budgets, or one client alone, and return what every client gets.

`fcfl.training.train` trains every model with ``confidence=0``: no margin tightens the budgets.
``l2`` and ``objective`` are chosen once, without budgets. Every training starts from the model
without budgets: with budgets there are several optima, and an offer must not depend on what was
trained before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from fcfl._types import ClientId, Vector
from fcfl.federation.federation import Federation
from fcfl.federation.journal import Journal
from fcfl.models.model import Model
from fcfl.results.evaluations import row_sections
from fcfl.results.negotiation import Offer, View
from fcfl.results.result import ClientResult, PartName
from fcfl.rules import Difference
from fcfl.training.train import Trained, train

T = TypeVar("T")


@dataclass(frozen=True)
class Free:
    """The model trained without budgets, and its settings.

    ``own`` is each client's disparity under this model on training rows. ``part`` names the rows
    on which offers are compared.
    """

    l2: float
    objective: float | str | None
    params: tuple[float, ...]
    own: Mapping[ClientId, float]
    part: PartName


@dataclass(frozen=True)
class Alone:
    """The model that a client trains without the others.

    ``view`` is measured on the rows on which offers are compared, ``trained`` on training rows.
    """

    client: ClientId
    budget: float | None
    view: View
    trained: View


@dataclass(frozen=True)
class Bargain:
    """Clients, a model and rules: all that an offer depends on except its budgets.

    Models in the ``journal`` are not trained again. A journal is only valid for the rows and
    settings that it was written with.
    """

    federation: Federation
    model: Model
    rules: tuple[Difference, ...]
    l2: Any
    objective: Any
    min_group_rows: float
    seed: int = 0
    journal: Journal = field(default_factory=Journal)

    def settled(self) -> tuple["Bargain", Free]:
        """Train without budgets; return a copy with the chosen settings, and the model."""

        def train_free() -> Free:
            trained = self._train(self.federation, None, None)
            own = {client: view.disparity for client, view in views_of(trained, "train").items()}
            part = judged_part(row_sections(trained.evaluations).clients)
            params = tuple(trained.params.tolist())
            return Free(trained.l2, trained.objective, params, own, part)

        free = self._once(Free, lambda one: True, train_free)
        return replace(self, l2=free.l2, objective=free.objective), free

    def offer(self, budgets: Mapping[ClientId, float], free: Free, found_by: str) -> Offer:
        """Return what every client gets under these budgets."""

        def train_offer() -> Offer:
            trained = self._train(self.federation, dict(budgets), np.array(free.params))
            prices: dict[ClientId, float] = {}
            for price in trained.prices:
                if price.client is not None:
                    prices[price.client] = prices.get(price.client, 0.0) + price.value
            return Offer(dict(budgets), views_of(trained), prices, trained.budgets_met, found_by)

        found = self._once(Offer, lambda one: one.budgets == budgets, train_offer)
        return replace(found, found_by=found_by)  # why it was tried now, not in the stored run

    def alone(self, client: ClientId, budget: float | None, free: Free) -> Alone:
        """Return a client's own model, with a budget or without one."""

        def train_alone() -> Alone:
            budgets = None if budget is None else {client: budget}
            fit = self._train(self.federation.only(client), budgets, np.array(free.params))
            return Alone(client, budget, views_of(fit)[client], views_of(fit, "train")[client])

        return self._once(
            Alone, lambda one: (one.client, one.budget) == (client, budget), train_alone
        )

    def _once(self, kind: type[T], is_same: Callable[[T], bool], train: Callable[[], T]) -> T:
        """Return a model from the journal, or train and store it."""
        with self.journal.locked():
            known = [one for one in self.journal.read(kind) if is_same(one)]
        if not known:
            known = [train()]
            with self.journal.locked():
                self.journal.append(known[0])
        return known[0]

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
            verbose=False,  # a negotiation trains many models
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
