"""Which combinations are trained, and that winners are found without training all."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from benchmarks.negotiation import every_offer, found, table, utilities
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fcfl.negotiation.exploration import Exploration, optimistic
from fcfl.negotiation.negotiating import Procedure, check_ladder, default_ladder, negotiate
from fcfl.negotiation.voting import ALIKE, dominated, merits, worth_a_vote
from fcfl.results.negotiation import Offer, View

CLIENTS = ("a", "b", "c")
LADDER = (0.3, 0.1, 0.05, 0.01)


def explored(best, most=63, caps=None, clients=CLIENTS):
    """Exploration of a hill with its top at ``best``; a vote is about height."""
    seen, voted = [], []

    def train(levels, why):
        seen.append(levels)
        height = -sum((a - b) ** 2 for a, b in zip(levels, best, strict=True)) / 100
        budgets = {c: LADDER[level] for c, level in zip(clients, levels, strict=True)}
        return Offer(budgets, {c: View(0.8 + height, 0.5, 0.1) for c in clients}, {}, True, why)

    def vote(offers):
        voted.append(len(offers))
        heights = [offer.views["a"].accuracy for offer in offers]
        return [int(i) for i in np.argsort(heights)[::-1][:3]]

    walk = Exploration(clients, LADDER, train, vote, most, caps)
    walk.run(dict.fromkeys(clients, 0.2))
    return walk, seen, voted


@given(st.tuples(*[st.integers(0, 3)] * 3))
def test_the_top_of_a_hill_is_found_and_not_everything_trained(best):
    walk, seen, _ = explored(best)
    assert best in walk.known
    assert len(seen) == len(walk.known) < 50


def test_it_begins_with_the_same_for_all_and_with_shares_of_each_own_disparity():
    _, seen, _ = explored((0, 0, 0), most=5)
    assert seen[:4] == [(i, i, i) for i in range(4)]
    assert len(seen) <= 5


@given(st.tuples(*[st.integers(0, 3)] * 3))
def test_it_ends_where_no_predicted_combination_is_among_the_best(best):
    walk, _, _ = explored(best)
    unknown = [levels for levels in product(range(4), repeat=3) if levels not in walk.known]
    predicted = optimistic(walk.known, unknown, LADDER)
    heights = sorted((offer.views["a"].accuracy for offer in walk.offers), reverse=True)
    assert all(offer.views["a"].accuracy <= heights[2] for offer in predicted)


def test_of_very_many_combinations_those_next_to_the_best_are_predicted():
    clients = ("a", "b", "c", "d", "e", "f")
    best = (0, 1, 2, 3, 1, 2)
    walk, seen, voted = explored(best, most=100, clients=clients)
    assert walk.n_combinations == 4096 and max(voted) <= 600
    assert best in walk.known and len(seen) <= 100


def test_few_combinations_are_all_trained():
    assert len(explored((0, 0, 0), most=64)[0].known) == 64
    capped = explored((0, 0, 0), most=32, caps={"b": 0.05})[0]
    assert len(capped.known) == capped.n_combinations == 32
    assert len(explored((0, 0, 0), most=31, caps={"b": 0.05})[0].known) < 31


def test_nobody_is_offered_more_than_it_insists_on():
    walk, _, _ = explored((0, 0, 0), caps={"b": 0.05})
    assert all(offer.budgets["b"] <= 0.05 for offer in walk.offers)


def line(levels, noise=0.0):
    """Figures that fall with every step, with a jump here and there."""
    jump = noise * ((levels[0] * 7 + levels[1] * 3) % 5 - 2)
    views = {"a": View(0.9 - 0.05 * levels[0] + jump, 0.5, 0.1), "b": View(0.7, 0.5, 0.3)}
    return Offer({"a": LADDER[levels[0]], "b": LADDER[levels[1]]}, views, {}, True, "")


def test_a_prediction_is_the_line_where_figures_lie_on_one_and_better_where_they_jump():
    known = [levels for levels in product(range(4), repeat=2) if sum(levels) % 2 == 0]
    unknown = [levels for levels in product(range(4), repeat=2) if sum(levels) % 2]
    for guess, levels in zip(
        optimistic({one: line(one) for one in known}, unknown, LADDER), unknown, strict=True
    ):
        assert guess.budgets == line(levels).budgets
        assert guess.views["a"].accuracy == pytest.approx(0.9 - 0.05 * levels[0], abs=1e-3)
        assert guess.views["b"].disparity == pytest.approx(0.3, abs=1e-3)
    jumping = optimistic({one: line(one, 0.02) for one in known}, unknown, LADDER)
    above = [g.views["a"].accuracy - line(u).views["a"].accuracy for g, u in zip(jumping, unknown)]  # noqa: B905
    assert 0 < np.mean(above) < 0.08


@given(arrays(float, (12, 4), elements=st.integers(0, 3)))
def test_what_is_dominated_is_what_brute_force_states(merit):
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


def test_of_those_alike_the_tightest_is_voted_on_in_whatever_order_they_were_trained():
    loose, tight = (replace(offer((0.8, 0.1)), budgets={"0": b}) for b in (0.2, 0.1))
    assert worth_a_vote([loose, tight]) == (1,) and worth_a_vote([tight, loose]) == (0,)


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


@pytest.mark.thorough
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
