"""What a client's ballot says, and what it keeps to itself."""

import dataclasses

import pytest

from fcfl.errors import DataError, ReportError
from fcfl.federation.federation import Federation, check_ballot
from fcfl.negotiation.negotiating import caps_of
from fcfl.policy import Ballot, Choices, Figures, Preference, read_policy
from fcfl.rules import Difference
from fcfl.runs.many_runs import read_policies
from helpers import simulated_data

ALONE = Figures(0.80, 0.10)
OFFERS = (Figures(0.82, 0.10), Figures(0.80, 0.12), Figures(0.79, 0.02), Figures(0.90, 0.3))
CHOICES = Choices(OFFERS, (ALONE,), (ALONE,))


def cast(preference, choices=CHOICES):
    return preference.cast_ballot(choices)


def hospitals(names):
    return Federation.from_rows({name: simulated_data(k) for k, name in enumerate(names)})


def test_it_approves_what_is_worth_at_least_going_alone():
    assert cast(Preference()).approves == (True, False, True, False)


def test_ranks_follow_how_much_disparity_a_point_of_accuracy_is_worth():
    assert cast(Preference()).ranks == (2.0, 3.0, 1.0, 4.0)
    keen = Preference(disparity_per_accuracy=20.0)
    assert cast(keen).ranks == (2.0, 3.0, 4.0, 1.0)


def test_hard_limits_come_before_any_utility():
    strict = Preference(disparity_per_accuracy=10.0, max_disparity=0.11, min_accuracy=0.795)
    ballot = cast(strict)
    assert ballot.approves == (True, False, False, False)
    assert ballot.ranks[0] == 1.0
    assert ballot.gains[1:] == (-1.0, -1.0, -1.0)


def test_whoever_has_nothing_acceptable_alone_gains_from_anything_within_its_limits():
    strict = Preference(max_disparity=0.05)
    assert cast(strict).approves == (False, False, True, False)


def test_a_ballot_holds_nothing_but_marks_places_and_scaled_gains():
    """Preferences stay: the same ballot comes from preferences that differ in scale."""
    assert {field.name for field in dataclasses.fields(Ballot)} == {
        "approves",
        "ranks",
        "gains",
        "walks_to",
    }
    ballot = cast(Preference())
    assert max(map(abs, ballot.gains)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("disparity-per-accuracy = 0", "`disparity-per-accuracy` must be a positive number"),
        ("max-disparity = 2.0", "`max-disparity` must"),
        ("min-accuracy = -0.5", "`min-accuracy` must"),
        ("worth = 1", "unknown key `worth`"),
        ("tells-gains = 3", "tells-gains"),
    ],
)
def test_a_preference_that_makes_no_sense_is_rejected(tmp_path, text, sentence):
    path = tmp_path / "north.toml"
    path.write_text(f"[preference]\n{text}\n")
    with pytest.raises(DataError, match=sentence):
        read_policy(path)


def test_policy_files_hold_preferences_and_budgets_insisted_on(tmp_path):
    (tmp_path / "north.toml").write_text(
        "[preference]\ndisparity-per-accuracy = 2\nmax-disparity = 0.2\n"
    )
    (tmp_path / "south.toml").write_text(
        '[[rule]]\nmetric = "demographic_parity"\nattribute = "race"\nbudget = 0.05\n'
    )
    names = ("north", "south", "west")
    policies = read_policies(tmp_path, names)
    assert policies["north"].preference == Preference(2, 0.2)
    assert policies["south"].preference is None and "west" not in policies
    rules = (Difference("demographic_parity", "race"),)
    introductions = hospitals(names).under(policies).introduce()
    assert caps_of(introductions, rules) == {"south": 0.05}
    assert caps_of(introductions, (Difference("equal_opportunity", "race"),)) == {}
    (tmp_path / "eats.toml").write_text("[preference]\n")
    with pytest.raises(DataError, match=r"eats\.toml'"):
        read_policies(tmp_path, names)
    with pytest.raises(DataError, match="`policies` must be a folder"):
        read_policies(tmp_path / "none", ("north",))


def test_rules_may_only_be_left_out_beside_a_preference(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("min-group-rows = 3\n")
    with pytest.raises(DataError, match="`rule` must be one or more"):
        read_policy(path)
    path.write_text("preference = 3\n")
    with pytest.raises(DataError, match="`preference`"):
        read_policy(path)


def test_what_it_would_have_alone_is_chosen_by_training_rows_and_judged_by_the_others():
    alone = (Figures(0.9, 0.3), Figures(0.7, 0.1))
    trained = (Figures(0.8, 0.3), Figures(0.8, 0.1))
    ballot = cast(Preference(), Choices((Figures(0.72, 0.1), Figures(0.69, 0.1)), alone, trained))
    assert ballot.walks_to == 1 and ballot.approves == (True, False)


def test_a_preference_can_be_computed_from_gains_and_not_from_a_ballot_without():
    """What docs/negotiation.md says of gains: two of them tell disparity-per-accuracy."""
    kept = Preference(2.7, tells_gains=False)
    assert cast(kept).gains == ()
    first, second = cast(Preference(2.7)).gains[:2]
    a, b = OFFERS[:2]
    share = first / second  # (w Δa1 - Δd1) / (w Δa2 - Δd2), solved for w
    w = (share * (b.disparity - ALONE.disparity) - (a.disparity - ALONE.disparity)) / (
        share * (b.accuracy - ALONE.accuracy) - (a.accuracy - ALONE.accuracy)
    )
    assert w == pytest.approx(2.7)


@pytest.mark.parametrize(
    ("spoilt", "what"),
    [
        ({"approves": (True, False, True)}, "marks"),
        ({"approves": (1, 0, 1, 0)}, "marks"),
        ({"ranks": (1.0, 2.0, 3.0)}, "places"),
        ({"ranks": (1.0, 1.0, 3.0, 4.0)}, "places"),  # equal places are shared: 1.5 each
        ({"ranks": (1.0, 2.0, 3.0, float("nan"))}, "places"),
        ({"ranks": (2.0, 3.0, 4.0, 5.0)}, "places"),
        ({"gains": (0.5, -0.5, 1.0)}, "gains"),
        ({"gains": (0.5, -0.5, float("inf"), -1.0)}, "gains"),
        ({"gains": (0.5, -0.5, 7.0, -1.0)}, "gains"),
        ({"gains": (0.5, 0.5, 1.0, -1.0)}, "gains"),  # a gain that is not approved
        ({"walks_to": 1}, "a model it would have alone"),
        ({"walks_to": -1}, "a model it would have alone"),
    ],
)
def test_a_ballot_is_checked_where_it_arrives(spoilt, what):
    ballot = cast(Preference())
    check_ballot("north", ballot, CHOICES)
    check_ballot("north", dataclasses.replace(ballot, gains=()), CHOICES)
    with pytest.raises(ReportError, match=f"Client 'north' sent invalid {what}"):
        check_ballot("north", dataclasses.replace(ballot, **spoilt), CHOICES)


def test_what_is_no_ballot_is_rejected():
    with pytest.raises(ReportError, match="Client 'north' sent Preference instead of a ballot"):
        check_ballot("north", Preference(), CHOICES)
