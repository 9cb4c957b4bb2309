"""The three rules on elections whose winners are known, and on what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fcfl.negotiation.voting import approval_scores, borda_scores, elect, leaders, nash_scores
from fcfl.policy import Ballot, Choices, Figures, Preference


def ballot(ranks=(), approves=None, gains=None):
    n = len(ranks) or len(approves or gains)
    places = tuple(map(float, ranks or [1] * n))
    return Ballot(tuple(approves or [True] * n), places, tuple(gains or [1.0] * n))


def by_order(order, times):
    """Ballots of voters who rank candidates in this order."""
    return [ballot([order.index(c) + 1 for c in sorted(order)]) for _ in range(times)]


# Tennessee chooses its capital: Memphis 42, Nashville 26, Chattanooga 15, Knoxville 17 of 100.
TENNESSEE = [
    *by_order("MNCK", 42),
    *by_order("NCKM", 26),
    *by_order("CKNM", 15),
    *by_order("KCNM", 17),
]


def named(ballots):
    return {f"voter {i}": one for i, one in enumerate(ballots)}


def test_borda_elects_nashville():
    scores = dict(zip("CKMN", borda_scores(TENNESSEE), strict=True))
    assert scores == {"M": 126, "N": 194, "C": 173, "K": 107}
    assert "CKMN"[elect("borda", named(TENNESSEE)).winner] == "N"


def test_borda_may_differ_from_the_majoritys_first_choice():
    """Three of five have A first; B is second for them and first for the others."""
    ballots = [*by_order("ABC", 3), *by_order("BCA", 2)]
    assert borda_scores(ballots) == (6, 7, 2)


def test_level_points_are_decided_by_the_product_of_gains_and_not_by_order():
    """A and B have each a first and a second place; both gain from B, one loses from A."""
    gains = {"A": (1.0, 0.1), "B": (0.6, 0.5)}
    for order in ("AB", "BA"):
        ranks = [[1 + (c != first) for c in order] for first in "AB"]
        told = [[gains[c][voter] for c in order] for voter in (0, 1)]
        ballots = named([ballot(r, gains=g) for r, g in zip(ranks, told, strict=True)])
        assert [order[elect(rule, ballots).winner] for rule in ("approval", "borda")] == ["B", "B"]


def test_equal_places_share_their_points():
    """Two candidates level at the top of three: a point and a half each."""
    assert borda_scores([ballot([1.5, 1.5, 3])]) == (1.5, 1.5, 0)


def test_approval_elects_whom_most_can_live_with():
    """Brams and Fishburn's point: the broadly acceptable one wins, nobody's favourite."""
    votes = [[1, 1, 0], [0, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 1]]
    ballots = [ballot(approves=[bool(v) for v in one]) for one in votes]
    assert approval_scores(ballots) == (2, 4, 2)
    assert elect("approval", named(ballots)).winner == 1


def test_nash_divides_a_pie_evenly_and_a_kinked_frontier_at_the_known_point():
    shares = np.linspace(0, 1, 11)
    pie = [ballot(gains=shares.tolist()), ballot(gains=(1 - shares).tolist())]
    assert elect("nash", named(pie)).winner == 5
    # u + 2v = 2 for u <= 1, which is the textbook's (1, 1/2): the product u·v is largest there
    u = np.linspace(0, 2, 21)
    pair = [ballot(gains=(u / 2).tolist()), ballot(gains=((2 - u) / 2).tolist())]
    assert u[elect("nash", named(pair)).winner] == pytest.approx(1.0)


def test_nash_has_no_winner_where_everything_leaves_somebody_worse_off():
    ballots = [ballot(gains=[0.5, -0.1]), ballot(gains=[-0.2, 1.0])]
    election = elect("nash", named(ballots))
    assert election.winner is None and nash_scores(ballots) == (-1.0, -1.0)


def test_nash_has_no_winner_where_somebody_keeps_its_gains_to_itself():
    ballots = [ballot([1, 2]), Ballot((True, True), (1.0, 2.0))]
    assert elect("nash", named(ballots)).winner is None
    assert elect("borda", named(ballots)).winner == 0


def test_a_client_that_gains_nothing_anywhere_does_not_decide_by_nash():
    """Its gains are 0: all products would be, and the others' gains count for nothing."""
    told = ([0.2, 1.0, 0.5], [1.0, 0.1, 0.8], [0, 0, 0])
    ballots = [ballot(gains=gains) for gains in told]
    assert nash_scores(ballots) == pytest.approx((0.2, 0.1, 0.4))
    assert elect("nash", named(ballots)).winner == 2


def test_nash_prefers_a_small_gain_for_all_to_a_large_one_for_some():
    ballots = [ballot(gains=[0.2, 1.0]), ballot(gains=[0.2, -0.01])]
    assert elect("nash", named(ballots)).winner == 0


def test_who_would_leave_is_who_does_not_approve_the_winner():
    ballots = {"a": ballot([1, 2]), "b": ballot([1, 2]), "c": ballot([2, 1], [False, True])}
    assert elect("borda", ballots).would_leave == ("c",)


def test_an_election_without_candidates_has_no_winner():
    assert elect("borda", {"a": Ballot((), (), ())}).winner is None


FIGURES = arrays(float, (4, 6, 2), elements=st.floats(0, 1, width=16))


@given(FIGURES, st.permutations(range(4)), st.floats(0.25, 4))
def test_names_and_units_decide_nothing(figures, order, unit):
    """Anonymity, and invariance of ballots to the scale in which a client counts utility."""

    def cast(which):
        alone, *offers = (Figures(a, d) for a, d in figures[which])
        return Preference(unit).cast_ballot(Choices(tuple(offers), (alone,), (alone,)))

    ballots = {str(i): cast(i) for i in range(4)}
    shuffled = {str(i): ballots[str(i)] for i in order}
    for rule in ("approval", "borda", "nash"):
        assert elect(rule, ballots).winner == elect(rule, shuffled).winner
    for one in ballots.values():
        assert max(map(abs, one.gains)) <= 1 + 1e-12


@given(FIGURES)
def test_an_offer_that_everybody_prefers_wins_by_every_rule(figures):
    """Unanimity: better for all in accuracy and disparity."""
    ballots = {}
    for i, rows in enumerate(figures):
        alone, *offers = (Figures(a, d) for a, d in rows)
        choices = Choices((*offers, Figures(1.5, -0.5)), (alone,), (alone,))
        ballots[str(i)] = Preference().cast_ballot(choices)
    for rule in ("approval", "borda", "nash"):
        assert elect(rule, ballots).winner == 5
    assert 5 in leaders(ballots, 1)
