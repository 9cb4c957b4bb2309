"""Which step lengths are taken, and under which penalties."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl.methods.sqp.augmented import Augmented
from fcfl.methods.sqp.merit import Search, least_penalty, lowered_penalties, merit_of_rows, weigh


def search(**changes):
    given = {
        "lengths": (1.0, 0.5),
        "settled": False,
        "merits": ((2.0, np.array([0.0, 0.1])), (1.0, np.array([0.3, 0.0]))),
        "predicted_decrease": (0.5, np.array([0.2, 0.0])),
        "penalties": np.array([10.0, 1.0]),
    }
    return Search(**(given | changes))


def rows(objective, violations):
    return np.array([objective, objective - 1.0]), np.asarray(violations)


def test_every_violation_has_its_own_penalty():
    assert weigh((2.0, np.array([0.1, 3.0])), np.array([10.0, 0.5])) == pytest.approx(4.5)


def test_a_point_must_come_below_the_worst_of_the_last_merits():
    none = np.zeros(2)
    assert search().accepts(0, rows(3.9, none))  # the merits were 2.1 and 4
    assert not search().accepts(0, rows(4.0, none))
    assert not search().accepts(1, rows(3.5, [0.1, 0.0]))


def test_a_longer_step_must_deliver_more():
    """A ten-thousandth of the length times the predicted decrease, which is 2.5 here."""
    just = rows(4.0 - 2e-4, np.zeros(2))
    assert search().accepts(1, just)
    assert not search().accepts(0, just)


def test_past_merits_are_weighed_under_the_present_penalties():
    lower = search(penalties=np.array([1.0, 1.0]))
    assert not lower.accepts(0, rows(3.9, np.zeros(2)))
    assert lower.accepts(0, rows(2.0, np.zeros(2)))


def test_a_settled_step_is_taken_whatever_its_merit():
    assert search(settled=True).accepts(0, rows(99.0, np.ones(2)))


def test_penalties_move_halfway_to_twice_the_multipliers_after_a_shortened_step():
    multipliers = np.array([1.0, 0.0])
    np.testing.assert_allclose(search().next_penalties(multipliers), [10.0, 1.0])
    short = search().ended(0.5)
    for _ in range(60):
        lower = short.next_penalties(multipliers)
        assert (lower <= short.penalties).all()
        short = search(penalties=lower).ended(0.5)
    np.testing.assert_allclose(short.penalties, [2.0, 0.1])


@pytest.mark.parametrize("length", [1.0, 0.5])
def test_a_penalty_below_twice_its_multiplier_rises_at_once(length):
    raised = search().ended(length).next_penalties(np.array([50.0, 7.0]))
    np.testing.assert_allclose(raised, [100.0, 14.0])


def test_a_violation_without_a_multiplier_weighs_no_more_than_others_do():
    known = np.full(3, 0.1)
    for largest, least in ((1.0, 0.1), (0.02, 0.04), (0.0, 0.01)):
        multipliers = np.array([largest, largest / 2, 0.0])
        assert least_penalty(multipliers) == pytest.approx(least)
        for _ in range(60):
            known = lowered_penalties(known, multipliers, least_penalty(multipliers))
        np.testing.assert_allclose(known, np.maximum(2 * multipliers, least))


def along_a_bent_budget(excess, gain):
    """A search whose full step lowers the loss by ``gain`` and leaves the budget as it is."""
    here = np.array([1.0]), np.array([0.0])
    predicted = np.array([1.0 - 2 * gain]), np.array([0.0])
    penalties = np.array([0.2])
    weights = np.array([1.0]), np.array([0.1])
    given = Search(
        (1.0,), False, (merit_of_rows(here),), (2 * gain, np.zeros(1)), penalties, gain,
        Augmented(here, predicted, weights, penalties, gain),
    )  # fmt: skip
    return given, (np.array([1.0 - gain - 0.1 * excess]), np.array([excess]))


def test_a_step_that_follows_a_bent_budget_is_taken():
    """The Lagrangian falls as predicted; the merit, which weighs the excess twice, rises."""
    search_along, there = along_a_bent_budget(excess=4e-4, gain=1e-5)
    assert not replace(search_along, augmented=None).accepts(0, there)
    assert search_along.accepts(0, there)
    assert search_along.ratio(0, there) == pytest.approx(1.0, abs=0.3)
    assert replace(search_along, augmented=None).ratio(0, there) < -2


def test_a_step_that_leaves_a_budget_by_much_is_refused():
    search_along, there = along_a_bent_budget(excess=2e-2, gain=1e-5)
    assert not search_along.accepts(0, there)


def test_with_large_violations_the_merit_alone_says_how_well_a_step_was_predicted():
    search_along, there = along_a_bent_budget(excess=2e-3, gain=1e-3)
    assert search_along.accepts(0, there)
    assert search_along.ratio(0, there) == replace(search_along, augmented=None).ratio(0, there)
    small, there = along_a_bent_budget(excess=9e-4, gain=1e-3)
    assert small.ratio(0, there) > replace(small, augmented=None).ratio(0, there)
