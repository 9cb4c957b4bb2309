"""Does exploring find what trying everything would? 3 clients × 4 budgets, all 64 combinations.

`python -m benchmarks.negotiation [TABLES [SEED [ROWS]]]` simulates tables whose clients differ in
size, groups and preferences, trains all 64 combinations of each, and holds the three votes over
them; then it negotiates, with default options, which train all 64 too, and exploring, with fewer
allowed. A winner is found when the very combination that a rule elects among all 64 was trained and
is elected. Exits 1 unless with default options that is so in nine of ten tables for each rule, and
no offer voted on is dominated by any of the 64. What exploring finds is printed.
"""

import sys
from collections import Counter
from itertools import product
from typing import TypeAlias

import numpy as np

from fcfl._types import ClientId
from fcfl.client.client import LocalClient
from fcfl.data.client_data import ClientData
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.negotiating import Procedure, negotiate
from fcfl.negotiation.voting import Voters, dominated, merits
from fcfl.policy import Preference
from fcfl.results.negotiation import VOTING_RULES, Negotiation, Offer
from fcfl.rules import Difference

LADDER = (0.3, 0.15, 0.08, 0.03)
FIRST = 200  # seed; how far to look around winners was settled on seeds 0 to 29
N_FEATURES = 20
LEVELS = {"group": ("a", "b")}


def simulated(
    seed: int, n_clients: int = 3, n_rows: int = 150, held_out: int = 3000
) -> tuple[dict[ClientId, ClientData], dict[ClientId, ClientData]]:
    """Training and held-out rows of clients that lean to their groups by different amounts.

    They have few training rows, so that training together pays, and many held-out ones.
    """
    rng = np.random.default_rng([7, seed])
    train, test = {}, {}
    shared = 0.5 * rng.standard_normal(N_FEATURES)
    shared[:2] = 1.0
    for k in range(n_clients):
        n = int(n_rows * rng.uniform(0.6, 1.6))
        total = n + held_out
        group = (rng.random(total) < rng.uniform(0.3, 0.7)).astype(np.int32)
        X = rng.standard_normal((total, N_FEATURES))
        X[:, 0] += rng.uniform(0.8, 1.5) * group
        X[:, 1] += rng.uniform(0.3, 0.8) * group
        weights = shared + 0.1 * rng.standard_normal(N_FEATURES)
        logits = X @ weights + rng.uniform(0.0, 0.5) * group - 0.5
        y = (rng.random(total) < 1 / (1 + np.exp(-logits))).astype(float)
        halves = (slice(None, n), slice(n, None))
        parts = [ClientData(X[h], y[h], {"group": group[h]}, LEVELS) for h in halves]
        train[f"client {k}"], test[f"client {k}"] = parts
    return train, test


Preferences: TypeAlias = dict[ClientId, Preference]


def table(seed: int, n_clients: int = 3, n_rows: int = 150) -> tuple[Bargain, Preferences]:
    """A simulated table as something to bargain about, and the clients' preferences."""
    train, test = simulated(seed, n_clients, n_rows)
    rng = np.random.default_rng([8, seed])
    preferences = {c: Preference(float(rng.uniform(0.5, 3.0))) for c in train}
    clients = {
        c: LocalClient(c, rows, test[c], preference=preferences[c]) for c, rows in train.items()
    }
    rules = (Difference("demographic_parity", "group"),)
    bargain = Bargain(Federation(clients), Linear(N_FEATURES), rules, 0.003, 1.0, 1.0)
    return bargain, preferences


def every_offer(bargain: Bargain, ladder: tuple[float, ...]) -> list[Offer]:
    """All combinations, each from the model without budgets."""
    settled, free = bargain.settled()
    names = bargain.federation.names
    return [
        settled.offer(dict(zip(names, budgets, strict=True)), free, "all")
        for budgets in product(ladder, repeat=len(names))
    ]


def utilities(offer: Offer, preferences: Preferences) -> np.ndarray:
    return np.array([preferences[c].utility(v.figures) for c, v in offer.views.items()])


def found(explored: Negotiation, offers: list[Offer], bargain: Bargain) -> dict[str, bool]:
    """For each rule whether it elects the same combination among those explored as among all."""
    settled, free = bargain.settled()
    outcome = Voters.meet(settled, explored.budgets, free).vote(offers)
    same = {}
    for rule in VOTING_RULES:
        best, here = outcome.winner(rule), explored.election(rule).winner
        wanted = None if best is None else offers[outcome.positions[best]].budgets
        elected = None if here is None else explored.offers[explored.on_ballot[here]].budgets
        same[rule] = wanted == elected
    return same


def n_dominated(explored: Negotiation, offers: list[Offer]) -> int:
    """How many offers voted on another one dominates, of those voted on or of all 64."""
    voted = [explored.offers[i] for i in explored.on_ballot]
    met = [offer for offer in offers if offer.is_met]
    return int(dominated(merits([*voted, *met]))[: len(voted)].sum())


def main(n_tables: int = 10, first: int = FIRST, n_rows: int = 150) -> int:
    """Both with default options, which train all 64, and with fewer allowed."""
    ways = {"default": Procedure(LADDER), "exploring": Procedure(LADDER, most=len(LADDER) ** 3 - 1)}
    elected, worse, trained = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for seed in range(first, first + n_tables):
        bargain, _ = table(seed, n_rows=n_rows)
        for way, procedure in ways.items():
            explored = negotiate(bargain, procedure, table="simulated")
            offers = every_offer(bargain, LADDER)
            same = found(explored, offers, bargain)
            elected.update((way, rule) for rule, is_same in same.items() if is_same)
            worse[way] += n_dominated(explored, offers)
            trained[way] += len(explored.offers)
            told = f"{len(explored.offers)} of 64 trained, same winner: {same}"
            print(f"table {seed}, {way}: {told}", flush=True)
    for way in ways:
        counts = ", ".join(f"{rule} {elected[way, rule]}" for rule in VOTING_RULES)
        print(
            f"{way}: the winner among all 64 is elected, of {n_tables} tables: {counts}; "
            f"{trained[way] / n_tables:.1f} of 64 trained; {worse[way]} dominated votes"
        )
    enough = all(elected["default", rule] >= 0.9 * n_tables for rule in VOTING_RULES)
    return int(not enough or worse["default"] > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
