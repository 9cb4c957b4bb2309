"""Which combinations are trained, and that winners are found without training all."""

import numpy as np
import pytest
from benchmarks.negotiation import every_offer, found, table, utilities
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fcfl.negotiation.exploration import Exploration, Standing
from fcfl.negotiation.frontier import ALIKE, dominated, merits, worth_a_vote
from fcfl.negotiation.negotiating import Procedure, check_ladder, default_ladder, negotiate
from fcfl.results.negotiation_result import Offer, View

CLIENTS = ("a", "b", "c")
LADDER = (0.3, 0.1, 0.05, 0.01)


def explored(best, most=63, price=1.0, caps=None, winners=True):
    """Exploration of a hill with its top at ``best``; leaders are the highest so far."""
    seen = []

    def train(levels, why):
        seen.append(levels)
        height = -sum((a - b) ** 2 for a, b in zip(levels, best, strict=True)) / 100
        budgets = {c: LADDER[level] for c, level in zip(CLIENTS, levels, strict=True)}
        views = {c: View(0.8 + height, 0.5, 0.1) for c in CLIENTS}
        return Offer(budgets, views, dict.fromkeys(CLIENTS, price), True, why)

    def vote(offers):
        highest = int(np.argmax([o.views["a"].accuracy for o in offers]))
        return Standing((highest,) if winners else (), (highest,))

    walk = Exploration(CLIENTS, LADDER, train, vote, most, caps)
    walk.run(dict.fromkeys(CLIENTS, 0.2))
    return walk, seen


@given(st.tuples(*[st.integers(0, 3)] * 3))
def test_the_top_of_a_hill_is_found_and_not_everything_trained(best):
    walk, seen = explored(best)
    assert best in walk.known
    assert len(seen) == len(walk.known) < 40


def test_it_begins_with_the_same_for_all_and_with_shares_of_each_own_disparity():
    _, seen = explored((0, 0, 0), most=5)
    assert seen[:4] == [(i, i, i) for i in range(4)]
    assert len(seen) <= 5


def test_a_budget_without_a_price_is_not_relaxed():
    """Relaxing what does not bind changes nothing."""
    walk, _ = explored((0, 3, 3), price=0.0, winners=False)
    assert not any("looser" in offer.found_by for offer in walk.offers)
    walk, _ = explored((0, 3, 3), winners=False)
    assert any("looser" in offer.found_by for offer in walk.offers)


@given(st.tuples(*[st.integers(0, 3)] * 3), st.floats(0, 1))
def test_it_ends_where_no_single_clients_budget_changes_a_winner(best, price):
    walk, _ = explored(best, price=price)
    top = max(walk.known, key=lambda levels: walk.known[levels].views["a"].accuracy)
    for k in range(3):
        assert all((*top[:k], level, *top[k + 1 :]) in walk.known for level in range(4))


def test_few_combinations_are_all_trained():
    assert len(explored((0, 0, 0), most=64)[0].known) == 64
    capped = explored((0, 0, 0), most=32, caps={"b": 0.05})[0]
    assert len(capped.known) == capped.n_combinations == 32
    assert len(explored((0, 0, 0), most=31, caps={"b": 0.05})[0].known) < 31


def test_nobody_is_offered_more_than_it_insists_on():
    walk, _ = explored((0, 0, 0), caps={"b": 0.05})
    assert all(offer.budgets["b"] <= 0.05 for offer in walk.offers)


@given(arrays(float, (12, 4), elements=st.integers(0, 3)))
def test_what_is_dominated_is_what_brute_force_says(merit):
    for i, is_worse in enumerate(dominated(merit)):
        better = [
            all(merit[j, c] >= merit[i, c] for c in range(4))
            and any(merit[j, c] > merit[i, c] for c in range(4))
            for j in range(len(merit))
        ]
        assert is_worse == any(better)


def offer(*figures, is_met=True):
    views = {str(k): View(a, 0.5, d) for k, (a, d) in enumerate(figures)}
    return Offer({}, views, {}, is_met, "")


def test_votes_are_about_offers_that_are_kept_undominated_and_not_alike():
    offers = [
        offer((0.8, 0.1), (0.7, 0.1)),
        offer((0.7, 0.1), (0.7, 0.1)),  # dominated
        offer((0.6, 0.05), (0.9, 0.2)),
        offer((0.6 + ALIKE / 2, 0.05), (0.9 - ALIKE / 2, 0.2)),  # like the one before
        offer((0.9, 0.0), (0.9, 0.0), is_met=False),  # exceeds its budgets
    ]
    assert worth_a_vote(offers) == (0, 2)


@pytest.mark.parametrize("budgets", [(), (0.1,), (0.1, 0.1), (0.1, 1.5), (0.1, -0.1), (np.nan, 0)])
def test_a_ladder_needs_two_budgets(budgets):
    with pytest.raises(ValueError, match="`budgets` must be two or more numbers between 0 and 1"):
        check_ladder(budgets)


def test_ladders_are_the_loosest_first():
    assert check_ladder((0.05, 0.2, 0.05)) == (0.2, 0.05)
    assert default_ladder({"a": 0.2, "b": 0.1}) == (0.2, 0.1, 0.05, 0.02)
    assert default_ladder({"a": 0.0}) == (0.01, 0.005, 0.0025, 0.001)


@pytest.mark.parametrize("seed", [3])
def test_exploring_finds_what_training_all_27_combinations_would_elect(seed):
    """`python -m benchmarks negotiation` does this for ten tables of 64."""
    bargain, preferences = table(seed)
    ladder = (0.3, 0.1, 0.03)
    explored = negotiate(bargain, Procedure(ladder, most=26), table="simulated")
    assert len(explored.offers) < 27
    every = every_offer(table(seed)[0], ladder)  # trained anew
    assert len(every) == 27
    by_budgets = {tuple(offer.budgets.values()): offer.views for offer in every}
    for offer in explored.offers:  # what a combination gives does not depend on the way to it
        assert offer.views == by_budgets[tuple(offer.budgets.values())]
    assert all(found(explored, every, bargain).values())
    voted = [explored.offers[i] for i in explored.on_ballot]
    assert not dominated(merits(voted)).any()
    nash = explored.election("nash").winner
    if nash is not None:  # nobody has less than alone
        alone = Offer({}, explored.alone, {}, True, "")
        gained = utilities(voted[nash], preferences) - utilities(alone, preferences)
        assert (gained >= 0).all()
