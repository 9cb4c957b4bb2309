"""Does exploring find what trying everything would? 3 clients × 4 budgets, all 64 combinations.

`python -m benchmarks.negotiation [TABLES]` simulates tables whose clients differ in size, groups
and preferences, trains all 64 combinations of each, and holds the three votes over them; then it
explores and votes. A winner is found when some offer that was explored gives every client the
utility of the one elected among all 64, to `CLOSE`; whether it also wins is printed too, since
places on a ballot depend on who else stands. Exits 1 unless each rule's winner is found in nine of
ten tables, and no offer voted on is dominated by another.
"""

import sys
from collections import Counter
from itertools import product

import numpy as np

from fcfl._types import ClientId
from fcfl.data.client_data import ClientData
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.negotiation.ballots import cast_ballot
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.frontier import dominated, merits, worth_a_vote
from fcfl.negotiation.negotiating import Wishes, negotiate
from fcfl.negotiation.voting import elect_by_all
from fcfl.preference import Preference
from fcfl.results.negotiation_result import VOTING_RULES, Negotiation, Offer, View
from fcfl.rules import Difference

LADDER = (0.3, 0.15, 0.08, 0.03)
FIRST = 100  # seed; how far to look around leaders was settled on seeds 0 to 7
CLOSE = 0.01  # of utility: a point of disparity
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


def table(seed: int, n_clients: int = 3, n_rows: int = 150) -> tuple[Bargain, Wishes]:
    """A simulated table as something to bargain about, with preferences of its own."""
    train, test = simulated(seed, n_clients, n_rows)
    rules = (Difference("demographic_parity", "group"),)
    bargain = Bargain(Federation.from_rows(train, test), Linear(N_FEATURES), rules, 0.003, 1.0, 1.0)
    rng = np.random.default_rng([8, seed])
    preferences = {c: Preference(float(rng.uniform(0.5, 3.0))) for c in train}
    return bargain, Wishes(preferences, {})


def every_offer(bargain: Bargain, ladder: tuple[float, ...]) -> list[Offer]:
    """All combinations, each from the model without budgets."""
    settled, free = bargain.settled()
    names = bargain.federation.names
    return [
        settled.offer(dict(zip(names, budgets, strict=True)), free.params, "all")
        for budgets in product(ladder, repeat=len(names))
    ]


def utilities(offer: Offer, wishes: Wishes) -> np.ndarray:
    return np.array(
        [wishes.preference_of(c).utility(v.accuracy, v.disparity) for c, v in offer.views.items()]
    )


def winners_among(
    offers: list[Offer], wishes: Wishes, alone: dict[ClientId, View]
) -> dict[str, Offer | None]:
    """The offer that each rule elects among all that are worth a vote."""
    voted = worth_a_vote(offers)
    ballots = {
        client: cast_ballot(
            wishes.preference_of(client), [offers[i].views[client] for i in voted], alone[client]
        )
        for client in alone
    }
    return {
        election.rule: None if election.winner is None else offers[voted[election.winner]]
        for election in elect_by_all(ballots)
    }


def found(
    explored: Negotiation, offers: list[Offer], wishes: Wishes
) -> dict[str, tuple[bool, bool]]:
    """For each rule whether the winner among all was trained, and whether it is elected."""
    answer = {}
    for rule, best in winners_among(offers, wishes, dict(explored.alone)).items():
        winner = explored.election(rule).winner
        if best is None:
            answer[rule] = (True, winner is None)
            continue
        wanted = utilities(best, wishes)

        def is_it(offer: Offer, wanted: np.ndarray = wanted) -> bool:
            return bool(np.abs(utilities(offer, wishes) - wanted).max() <= CLOSE)

        elected = winner is not None and is_it(explored.offers[explored.on_ballot[winner]])
        answer[rule] = (any(map(is_it, explored.offers)), elected)
    return answer


def main(n_tables: int = 10) -> int:
    trained, among, elected = [], Counter[str](), Counter[str]()
    dominated_votes = 0
    for seed in range(FIRST, FIRST + n_tables):
        bargain, wishes = table(seed)
        explored = negotiate(bargain, wishes, table="simulated", budgets=LADDER)
        offers = every_offer(bargain, LADDER)
        answer = found(explored, offers, wishes)
        among.update(rule for rule, (is_there, _) in answer.items() if is_there)
        elected.update(rule for rule, (_, wins) in answer.items() if wins)
        voted = [explored.offers[i] for i in explored.on_ballot]
        dominated_votes += int(dominated(merits(voted)).sum())
        trained.append(len(explored.offers))
        print(f"table {seed}: {trained[-1]} of 64 trained, (found, elected): {answer}", flush=True)
    print(f"the winner among all 64 was trained, of {n_tables} tables: {dict(among)}")
    print(f"and elected: {dict(elected)}; {np.mean(trained):.1f} of 64 trained on average")
    enough = all(among[rule] >= 0.9 * n_tables for rule in VOTING_RULES)
    return int(not enough or dominated_votes > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
