"""Features, labels, groups and clients on hand-made rows."""

import numpy as np
import pytest
from hand_made import DAY, charted, lab, stay, urine, write_tables

from fcfl.data import Columns, federate
from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.events import VARIABLES

ALL = Options(features="day1-all", min_stays=1)
BEATS = [charted("hr", 0, 80), charted("hr", 2 * DAY, 99)]


def features(folder, stays=None, options=ALL, **rows):
    """The first stay's features."""
    rows.setdefault("nurseCharting", BEATS)
    write_tables(folder, stays or [stay()], **rows)
    return prepare(folder, options).frame.iloc[0]


def test_eighty_two_features_and_fifty_three_inputs(tmp_path):
    write_tables(tmp_path, [stay()])
    every = prepare(tmp_path, ALL).features
    assert every[:29] == [f"{name}_first" for name in VARIABLES]
    assert every[29:58] == [f"{name}_last" for name in VARIABLES]
    removed_for_race, removed_for_gender = 4, 1
    assert len(every) == 82 - removed_for_race
    inputs = prepare(tmp_path, Options(min_stays=1)).features
    assert len(inputs) == 53 - removed_for_race
    assert inputs == [name for name in every if not name.endswith("_first")]
    by_gender = prepare(tmp_path, Options(min_stays=1, sensitive=("gender",))).features
    assert len(by_gender) == 53 - removed_for_gender
    assert {"black", "hispanic", "asian", "other_race"} <= set(by_gender)
    assert "female" not in by_gender and "female" in inputs
    both = prepare(tmp_path, Options(min_stays=1, sensitive=("race", "gender")))
    assert len(both.features) == 53 - removed_for_race - removed_for_gender
    assert list(both.frame.columns[:4]) == ["hospital", "los7", "race", "gender"]


def test_no_id_time_or_other_label_is_left_in_the_table(tmp_path):
    write_tables(tmp_path, [stay()])
    columns = set(prepare(tmp_path, ALL).frame.columns)
    for word in ("id", "offset", "year", "status", "mortality", "uniquepid", "ethnicity", "unit"):
        assert not [name for name in columns if name == word or name.endswith(word)]


def test_first_last_smallest_and_largest_hour(tmp_path):
    rows = [
        charted("hr", 0, 80),
        charted("hr", 61, 120), charted("hr", 90, 100),  # hour 2: 110
        charted("hr", 200, 60), charted("hr", 210, "300"), charted("hr", 220, "n/a"),  # hour 4
        charted("hr", DAY, 90), charted("hr", DAY + 1, 222), charted("hr", 2 * DAY, 99),
    ]  # fmt: skip
    found = features(tmp_path, nurseCharting=rows)
    summary = [found[f"heart_rate_{kind}"] for kind in ("first", "last", "min", "max")]
    assert summary == [80, 90, 60, 110]


def test_vitals_before_the_first_heart_rate_count_from_the_same_hour_only(tmp_path):
    rows = [charted("rr", -61, 40), charted("rr", -30, 12), *BEATS]
    assert features(tmp_path, nurseCharting=rows)["respiratory_rate_first"] == 12


def test_the_coma_score_of_an_hour_is_rounded_up(tmp_path):
    rows = [charted("gcs", 10, 14), charted("gcs", 20, 13), charted("gcs", 90, 9), *BEATS]
    found = features(tmp_path, nurseCharting=rows)
    assert [found[f"gcs_{kind}"] for kind in ("first", "last", "min", "max")] == [14, 9, 9, 14]


def test_invasive_pressure_is_preferred_hour_by_hour(tmp_path):
    rows = [
        charted("cuff", 10, 100), charted("line", 20, 140),
        charted("cuff", 70, 90),
        charted("cuff", 130, 95), charted("line", 140, 0),  # out of range: the cuff counts
        *BEATS,
    ]  # fmt: skip
    found = features(tmp_path, nurseCharting=rows)
    assert found["systolic_first"] == 140
    assert found["systolic_min"] == 90
    assert found["systolic_last"] == 95


def test_fahrenheit_counts_where_celsius_is_missing(tmp_path):
    rows = [
        charted("temp", 10, 38.0), charted("temp_f", 10, 99.0), charted("temp_f", 70, 98.6), *BEATS,
    ]  # fmt: skip
    found = features(tmp_path, nurseCharting=rows)
    assert found["temperature_first"] == 38.0
    assert found["temperature_last"] == pytest.approx(37.0)


def test_labs_look_back_a_day_and_vitals_do_not(tmp_path):
    drawn = [
        lab("lactate", -DAY - 60, 9.0), lab("lactate", -DAY - 59, 4.0), lab("lactate", 30, 3.0),
        lab("lactate", DAY, 2.0), lab("lactate", DAY + 1, 8.0), lab("lactate", 100, 31.0),
    ]  # fmt: skip
    rows = [charted("spo2", -DAY, 80), charted("spo2", 30, 97), *BEATS]
    found = features(tmp_path, nurseCharting=rows, lab=drawn)
    assert (found["lactate_first"], found["lactate_last"]) == (4.0, 2.0)
    assert (found["spo2_first"], found["spo2_min"]) == (97, 97)


def test_labs_of_an_hour_are_averaged_and_a_blank_is_missing(tmp_path):
    drawn = [
        lab("glucose", 10, 100), lab("bedside glucose", 50, 120), lab("glucose", 40, ""),
        lab("unknown test", 10, 5),
    ]  # fmt: skip
    found = features(tmp_path, lab=drawn)
    assert found["glucose_last"] == 110
    assert np.isnan(found["sodium_last"])


def test_oxygenation_is_the_ratio_within_an_hour(tmp_path):
    drawn = [
        lab("paO2", 10, 90), lab("FiO2", 40, 50), lab("paO2", 100, 80), lab("FiO2", 130, 0.4),
        lab("FiO2", 200, 0.21),
    ]  # fmt: skip
    found = features(tmp_path, lab=drawn)
    assert found["pao2_fio2_first"] == found["pao2_fio2_last"] == 180
    assert (found["pao2_first"], found["pao2_last"]) == (90, 80)


def test_urine_of_day_one_is_summed(tmp_path):
    other = "flowsheet|Flowsheet Cell Labels|I&O|Output (ml)|Stool"
    volumes = [
        urine(-60, 500), urine(10, 200), urine(20, 100), urine(DAY, 50), urine(DAY + 1, 900),
        urine(30, 70, path=other), urine(40, ""), urine(50, 11, number=9),
    ]  # fmt: skip
    assert features(tmp_path, intakeOutput=volumes)["urine_sum"] == 350
    assert np.isnan(features(tmp_path)["urine_sum"])


def test_rows_of_two_stays_do_not_mix_wherever_they_lie(tmp_path):
    rows = [
        charted("hr", 2 * DAY, 99, 2), charted("hr", 0, 80, 1), charted("rr", 10, 30, 2),
        charted("hr", 0, 70, 2), charted("rr", 10, 15, 1), charted("hr", 2 * DAY, 99, 1),
    ]  # fmt: skip
    write_tables(tmp_path, [stay(2), stay(1)], nurseCharting=rows)
    frame = prepare(tmp_path, ALL).frame
    assert frame["respiratory_rate_last"].tolist() == [15, 30]
    assert frame["heart_rate_first"].tolist() == [80, 70]


@pytest.mark.parametrize(
    ("ethnicity", "column", "group"),
    [
        ("African American", "black", "not Caucasian"),
        ("Hispanic", "hispanic", "not Caucasian"),
        ("Asian", "asian", "not Caucasian"),
        ("Caucasian", "other_race", "Caucasian"),
        ("Native American", "other_race", "not Caucasian"),
        ("Other/Unknown", "other_race", "not Caucasian"),
    ],
)
def test_race_as_inputs_and_as_groups(tmp_path, ethnicity, column, group):
    someone = [stay(ethnicity=ethnicity, gender="Male")]
    by_gender = features(tmp_path, someone, Options(min_stays=1, sensitive=("gender",)))
    race = by_gender[["black", "hispanic", "asian", "other_race"]]
    assert race[race == 1].index.tolist() == [column]
    assert by_gender["gender"] == "Male"
    by_race = features(tmp_path, someone, Options(min_stays=1))
    assert by_race["race"] == group and by_race["female"] == 0


def test_age_and_elective_surgery(tmp_path):
    stays = [stay(1, age="> 89"), stay(2, age="44"), stay(3, age="")]
    surgery = [
        {"patientunitstayid": 1, "electivesurgery": 1},
        {"patientunitstayid": 2, "electivesurgery": ""},
    ]
    write_tables(tmp_path, stays, apachePredVar=surgery)
    frame = prepare(tmp_path, ALL).frame
    assert frame["age"].tolist()[:2] == [90, 44] and np.isnan(frame["age"][2])
    assert frame["elective_surgery"].tolist() == [1, 0, 0]


def test_a_missing_gender_is_left_out_when_it_is_asked_for(tmp_path):
    stays = [stay(1), stay(2, gender=""), stay(3, gender="Unknown"), stay(4, gender="Male")]
    write_tables(tmp_path, stays)
    prepared = prepare(tmp_path, Options(min_stays=1, sensitive=("gender",)))
    assert prepared.frame["gender"].tolist() == ["Female", "Male"]
    assert "2 stays left out: gender not known." in prepared.notes
    assert len(prepare(tmp_path, Options(min_stays=1)).frame) == 4


@pytest.mark.parametrize(
    ("change", "los7", "mortality"),
    [
        ({}, 0, 0),
        ({"hospitaldischargeoffset": 7 * DAY - 100}, 0, 0),
        ({"hospitaldischargeoffset": 7 * DAY - 99}, 1, 0),
        ({"unitdischargestatus": "Expired"}, 0, 1),
        ({"hospitaldischargestatus": "Expired", "unitdischargestatus": ""}, 0, 1),
    ],
)
def test_labels(tmp_path, change, los7, mortality):
    """A hospital stay of exactly seven days is not above seven days."""
    write_tables(tmp_path, [stay(**change)])
    for label, expected in (("los7", los7), ("mortality", mortality)):
        frame = prepare(tmp_path, Options(label=label, min_stays=1)).frame
        assert frame[label].tolist() == [expected]
        assert len({"los7", "mortality"} & set(frame.columns)) == 1


def test_regions_and_hospitals_as_clients(tmp_path):
    stays = [stay(1), stay(2, hospitalid=8), stay(3, hospitalid=9)]
    hospitals = [{"hospitalid": 7, "region": "South"}, {"hospitalid": 8, "region": ""}]
    write_tables(tmp_path, stays, hospital=hospitals)
    by_region = prepare(tmp_path, Options(client="region"))
    assert by_region.frame["region"].tolist() == ["South", "unknown", "unknown"]
    assert any("client 'unknown'" in sentence for sentence in by_region.notes)
    assert prepare(tmp_path, ALL).frame["hospital"].tolist() == ["7", "8", "9"]


def test_apache_takes_minus_one_as_missing(tmp_path):
    worst = [{"patientunitstayid": 1, "heartrate": 120, "albumin": -1, "urine": "", "vent": 1}]
    results = [
        {"patientunitstayid": 1, "apacheversion": version, "apachescore": score,
         "predictedhospitalmortality": 0.1}
        for version, score in (("IV", 70), ("IVa", 71))
    ]  # fmt: skip
    chronic = [{"patientunitstayid": 1, "diabetes": 1, "diedinhospital": 1}]
    options = Options(features="apache", min_stays=1)
    rows = {"apacheApsVar": worst, "apachePatientResult": results, "apachePredVar": chronic}
    found = features(tmp_path, options=options, **rows)
    assert (found["heartrate"], found["vent"], found["diabetes"]) == (120, 1, 1)
    assert found["apachescore"] == 71
    assert np.isnan(found["albumin"]) and np.isnan(found["urine"])
    outcomes = {"diedinhospital", "dischargelocation", "predictedhospitalmortality"}
    assert not outcomes & set(found.index)


def test_features_nobody_has_are_named(tmp_path):
    write_tables(tmp_path, [stay()])
    notes = prepare(tmp_path, Options(min_stays=1)).notes
    assert any(note.startswith("No stay has a value of systolic_last, ") for note in notes)


def test_gaps_are_filled_and_scaled_from_training_rows_only(tmp_path):
    """The prepared table keeps its gaps; what fills them does not know the test rows."""
    stays = [stay(n, hospitaldischargeoffset=(5 + n % 4) * DAY) for n in range(1, 41)]
    for number, each in enumerate(stays):
        each["ethnicity"] = ("Caucasian", "Asian")[number % 2]
    drawn = [lab("sodium", 30, 120 + n, n) for n in range(1, 31)]
    write_tables(tmp_path, stays, lab=drawn)
    frame = prepare(tmp_path, Options(min_stays=1)).frame
    assert frame["sodium_last"].isna().sum() == 10
    columns = Columns("hospital", "los7", ("race",))
    before = federate(frame, columns, test_size=0.33, seed=0)
    sodium = next(column for column in before.schema.columns if column.name == "sodium_last")
    at = before.schema.feature_names.index("sodium_last")
    train = before.train["7"].X[:, at] * sodium.scale + sodium.mean
    known = before.train["7"].X[:, at + 1] == 0
    assert known.sum() < 30
    assert sodium.mean == pytest.approx(train[known].mean())
    assert sodium.scale == pytest.approx(train[known].std())
    assert np.allclose(train[~known], sodium.mean)
    assert sodium.mean != pytest.approx(frame["sodium_last"].mean())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"features": "day2"}, "`features` must be one of day1, day1-all, apache, got 'day2'."),
        ({"label": "los3"}, "`label` must be one of los7, mortality, got 'los3'."),
        ({"client": "ward"}, "`client` must be one of hospital, region, got 'ward'."),
        ({"min_stays": -1}, "`min_stays` must be a whole number, 0 or more, got -1."),
        ({"sensitive": ("age",)}, "`sensitive` must be one of race, gender, got 'age'."),
        ({"sensitive": ()}, "`sensitive` must be race, gender or both, got ()."),
        ({"sensitive": ("race", "race")}, "`sensitive` must be race, gender or both, got "),
    ],
)
def test_options_that_do_not_exist(arguments, sentence):
    with pytest.raises(ValueError) as caught:
        Options(**arguments)
    assert str(caught.value).startswith(sentence)
