"""What a client's ballot says, and what it keeps to itself."""

import dataclasses

import pytest

from fcfl.errors import DataError
from fcfl.negotiation.ballots import cast_ballot
from fcfl.negotiation.negotiating import read_wishes
from fcfl.policy_file import read_policy
from fcfl.preference import Preference
from fcfl.results.negotiation_result import Ballot, View

ALONE = View(0.80, 0.4, 0.10)
VIEWS = [View(0.82, 0.4, 0.10), View(0.80, 0.4, 0.12), View(0.79, 0.4, 0.02), View(0.90, 0.4, 0.3)]


def test_it_approves_what_is_worth_at_least_going_alone():
    assert cast_ballot(Preference(), VIEWS, ALONE).approves == (True, False, True, False)


def test_ranks_follow_how_much_disparity_a_point_of_accuracy_is_worth():
    assert cast_ballot(Preference(), VIEWS, ALONE).ranks == (2.0, 3.0, 1.0, 4.0)
    keen = Preference(disparity_per_accuracy=20.0)
    assert cast_ballot(keen, VIEWS, ALONE).ranks == (2.0, 3.0, 4.0, 1.0)


def test_hard_limits_come_before_any_utility():
    strict = Preference(disparity_per_accuracy=10.0, max_disparity=0.11, min_accuracy=0.795)
    ballot = cast_ballot(strict, VIEWS, ALONE)
    assert ballot.approves == (True, False, False, False)
    assert ballot.ranks[0] == 1.0
    assert ballot.gains[1:] == (-1.0, -1.0, -1.0)


def test_whoever_has_nothing_acceptable_alone_gains_from_anything_within_its_limits():
    strict = Preference(max_disparity=0.05)
    assert cast_ballot(strict, VIEWS, ALONE).approves == (False, False, True, False)


def test_a_ballot_holds_nothing_but_marks_places_and_scaled_gains():
    """Preferences stay: the same ballot comes from preferences that differ in scale."""
    assert {field.name for field in dataclasses.fields(Ballot)} == {"approves", "ranks", "gains"}
    ballot = cast_ballot(Preference(), VIEWS, ALONE)
    assert max(map(abs, ballot.gains)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("disparity-per-accuracy = 0", "`disparity-per-accuracy` must be a positive number"),
        ("max-disparity = 2.0", "`max-disparity` must"),
        ("min-accuracy = -0.5", "`min-accuracy` must"),
        ("worth = 1", "Unknown key `worth`"),
    ],
)
def test_a_preference_that_makes_no_sense_is_refused(tmp_path, text, sentence):
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
    wishes = read_wishes(tmp_path, ("north", "south", "west"))
    assert wishes.preference_of("north") == Preference(2, 0.2)
    assert wishes.preference_of("south") == wishes.preference_of("west") == Preference()
    assert wishes.caps == {"south": 0.05}
    (tmp_path / "eats.toml").write_text("[preference]\n")
    with pytest.raises(DataError, match=r"eats\.toml' is of no client"):
        read_wishes(tmp_path, ("north", "south", "west"))
    with pytest.raises(DataError, match="is not a folder"):
        read_wishes(tmp_path / "none", ("north",))


def test_rules_may_only_be_left_out_beside_a_preference(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("min-group-rows = 3\n")
    with pytest.raises(DataError, match="`rule` must be one or more"):
        read_policy(path)
    path.write_text("preference = 3\n")
    with pytest.raises(DataError, match=r"`preference` must be a \[preference\] table"):
        read_policy(path)
