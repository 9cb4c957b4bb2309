"""The cohort rules on hand-made stays, each asked alone and then in order."""

import numpy as np
import pytest
from hand_made import DAY, charted, plan, stay, write_tables

from fcfl.errors import DataError
from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.prepare import gather, needed_tables
from fcfl_paper.eicu.stays import (
    RULES,
    failures,
    first_of_patient,
    follow,
    read_stays,
    small_clients,
)
from fcfl_paper.eicu.tables import find_tables

OPTIONS = Options(min_stays=1)


def rules_broken(folder, stays, options=OPTIONS, **rows):
    """For each stay the names of all rules it breaks."""
    write_tables(folder, stays, **rows)
    tables = find_tables(folder, needed_tables(options), ("carePlanGeneral",))
    found = failures(gather(tables, options))
    return [
        {name for name, mask in found.items() if mask is not None and mask[at]}
        for at in range(len(stays))
    ]


def beats(*minutes, number=1):
    return [charted("hr", minute, 80, number) for minute in minutes]


def test_a_sound_stay_breaks_no_rule(tmp_path):
    assert rules_broken(tmp_path, [stay()]) == [set()]


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"unittype": "Telemetry"}, {"unit"}),
        ({"unittype": "CCU-CTICU"}, set()),
        ({"age": "15"}, {"age"}),
        ({"age": "16"}, set()),
        ({"age": "> 89"}, set()),
        ({"age": ""}, set()),
        ({"hospitaldischargestatus": "", "unitdischargestatus": ""}, {"status"}),
        ({"hospitaldischargestatus": ""}, set()),
        ({"unitdischargestatus": ""}, set()),
        ({"hospitaldischargestatus": "Expired", "hospitaldischargeoffset": DAY - 1}, {"death"}),
        ({"hospitaldischargestatus": "Expired", "hospitaldischargeoffset": DAY}, set()),
        ({"hospitaldischargestatus": "Alive", "hospitaldischargeoffset": DAY - 1}, set()),
        ({"hospitaldischargeoffset": ""}, {"label"}),
        ({"hospitaladmitoffset": ""}, {"label"}),
    ],
)
def test_what_the_patient_table_says(tmp_path, change, broken):
    assert rules_broken(tmp_path, [stay(**change)]) == [broken]


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        (beats(0, DAY), set()),
        (beats(0, DAY - 1), {"short"}),
        (beats(50, DAY + 49), {"short"}),
        (beats(50, DAY + 50), set()),
        (beats(DAY + 50, 50), set()),
        ([], {"heart_rate"}),
        ([charted("rr", 0, 20), charted("rr", 2 * DAY, 20)], {"heart_rate"}),
        ([charted("hr", at, "999") for at in (0, 2 * DAY)], {"heart_rate"}),
        ([charted("hr", at, "fast") for at in (0, 2 * DAY)], {"heart_rate"}),
        ([charted("hr", -900, "24"), *beats(0, DAY - 1), charted("hr", 9000, 226)], {"short"}),
    ],
)
def test_a_stay_is_as_long_as_accepted_heart_rates_are_charted(tmp_path, rows, broken):
    assert rules_broken(tmp_path, [stay()], nurseCharting=rows) == [broken]


def test_death_in_the_unit_is_at_the_last_heart_rate(tmp_path):
    """The hospital's own discharge time does not count then."""
    dead = stay(unitdischargestatus="Expired", hospitaldischargeoffset=10 * DAY)
    assert rules_broken(tmp_path, [dead], nurseCharting=beats(0, DAY - 5)) == [{"death", "short"}]
    assert rules_broken(tmp_path, [dead], nurseCharting=beats(0, DAY)) == [set()]


@pytest.mark.parametrize(
    ("plans", "broken"),
    [
        ([plan("Do not resuscitate", DAY - 1)], {"limitation"}),
        ([plan("Do not resuscitate", DAY)], set()),
        ([plan("Do not resuscitate", -500)], {"limitation"}),
        ([plan("Comfort measures only", 10)], {"limitation"}),
        ([plan("No CPR", 5000), plan("No intubation", 10)], {"limitation"}),
        ([plan("No CPR", 5000), plan("Full therapy", 10)], set()),
        ([plan("Full therapy", 10)], set()),
        ([plan("Do not resuscitate", 10, group="Ventilation")], set()),
        ([plan("Do not resuscitate", 10, number=99)], set()),
    ],
)
def test_the_first_care_limitation_counts(tmp_path, plans, broken):
    assert rules_broken(tmp_path, [stay()], carePlanGeneral=plans) == [broken]


def test_a_care_limitation_counts_from_the_first_heart_rate(tmp_path):
    limit = [plan("No CPR", DAY + 30)]
    rows = beats(60, 3 * DAY)
    assert rules_broken(tmp_path, [stay()], nurseCharting=rows, carePlanGeneral=limit) == [
        {"limitation"}
    ]


@pytest.mark.parametrize(
    ("results", "broken"),
    [
        ([("IVa", 0.01)], set()),
        ([("IVa", 0)], {"apache"}),
        ([("IVa", -1)], {"apache"}),
        ([("IVa", "")], {"apache"}),
        ([("IV", 0.2)], {"apache"}),
        ([], {"apache"}),
        ([("IV", -1), ("IVa", 0.2)], set()),
    ],
)
def test_the_apache_prediction_must_be_above_zero(tmp_path, results, broken):
    rows = [
        {"patientunitstayid": 1, "apacheversion": version, "predictedhospitalmortality": value}
        for version, value in results
    ]
    assert rules_broken(tmp_path, [stay()], apachePatientResult=rows) == [broken]


@pytest.mark.parametrize(
    "later",
    [
        {"hospitaldischargeyear": 2015, "age": "59"},
        {"age": "61", "patienthealthsystemstayid": 1},
        {"age": "> 89", "patienthealthsystemstayid": 1},
        {"patienthealthsystemstayid": 11, "hospitaladmitoffset": -9000},
        {"patienthealthsystemstayid": 10, "hospitaladmitoffset": -99},
    ],
    ids=["year", "age", "age above 89", "hospital stay", "admission"],
)
def test_the_first_stay_is_the_first_in_the_published_order(tmp_path, later):
    """Year before age before hospital stay before admission, whatever the order of rows."""
    second = stay(2, uniquepid="p1", **{"patienthealthsystemstayid": 10} | later)
    for first, number in ((stay(3), 3), (stay(1, uniquepid="p1"), 1)):
        first = {**first, "uniquepid": "p1", "patienthealthsystemstayid": 10}
        write_tables(tmp_path, [second, first])
        table = find_tables(tmp_path, {"patient": ""})["patient"]
        stays = read_stays(table)
        kept = stays["patientunitstayid"][first_of_patient(stays)]
        assert kept.tolist() == [number]


def test_the_first_stay_counts_even_where_another_rule_removes_it(tmp_path):
    stays = [stay(1, age="60", unittype="Ward"), stay(2, uniquepid="p1", age="61")]
    assert rules_broken(tmp_path, stays) == [{"unit"}, {"first_stay"}]


def test_rules_follow_one_another_and_every_stay_is_removed_once(tmp_path):
    stays = [
        stay(1), stay(2, age="10"), stay(3, age="10", unittype="Ward"),
        stay(4, hospitaldischargestatus="", unitdischargestatus=""),
        stay(5, ethnicity=""), stay(6, hospitalid=8), stay(7),
    ]  # fmt: skip
    write_tables(tmp_path, stays)
    prepared = prepare(tmp_path, Options(min_stays=2))
    removed = {step.rule: step.removed for step in prepared.flow if step.removed}
    assert removed == {"unit": 1, "age": 1, "status": 1, "client": 1, "race": 1}
    assert [step.rule for step in prepared.flow] == [
        *(rule.name for rule in RULES), "client", "race",
    ]  # fmt: skip
    left = prepared.n_read
    for step in prepared.flow:
        left -= step.removed
        assert step.left == left
    assert left == len(prepared.frame) == 2


def test_a_client_is_large_enough_before_unknown_groups_are_left_out(tmp_path):
    write_tables(tmp_path, [stay(1), stay(2, ethnicity="")])
    prepared = prepare(tmp_path, Options(min_stays=2))
    assert len(prepared.frame) == 1
    assert "1 stay left out: ethnicity missing." in prepared.notes


def test_small_clients_are_counted_among_the_cohort():
    client = np.array(["a", "a", "a", "b", "b"], dtype=object)
    in_cohort = np.array([True, True, False, True, True])
    assert small_clients(client, in_cohort, 2).tolist() == [False] * 5
    assert small_clients(client, in_cohort, 3).tolist() == [True] * 5


def test_a_rule_that_cannot_be_applied_removes_nobody():
    mask = np.array([True, False])
    left, flow = follow(2, {"a": None, "b": mask}, {"a": "first", "b": "second"})
    assert left.tolist() == [False, True]
    assert [(step.removed, step.left) for step in flow] == [(None, 2), (1, 1)]


def test_apache_reads_no_heart_rates_and_says_so(tmp_path):
    options = Options(features="apache", min_stays=1)
    stays = [stay(1), stay(2, unitdischargeoffset=DAY - 1)]
    assert rules_broken(tmp_path, stays, options, nurseCharting=[]) == [set(), {"short"}]
    for name in ("nurseCharting", "lab", "intakeOutput", "carePlanGeneral"):
        (tmp_path / f"{name}.csv").unlink()
    prepared = prepare(tmp_path, options)
    not_applied = [step.rule for step in prepared.flow if step.removed is None]
    assert not_applied == ["heart_rate", "limitation"]
    assert any("reads no heart rates" in sentence for sentence in prepared.notes)
    assert any("no table carePlanGeneral" in sentence for sentence in prepared.notes)


def test_nobody_left_is_told_with_the_rule_or_the_largest_client(tmp_path):
    write_tables(tmp_path, [stay(1, age="3"), stay(2, age="4")])
    with pytest.raises(DataError, match=r"No stay is left after the rule 'younger than 16', which"):
        prepare(tmp_path, OPTIONS)
    write_tables(tmp_path, [stay(1), stay(2), stay(3, hospitalid=8)])
    with pytest.raises(DataError, match=r"at least 1500 stays left; the largest, '7', has 2"):
        prepare(tmp_path, Options())
