"""Which rows are of which variable, and which values are accepted."""

import numpy as np
import pytest

from fcfl_paper.eicu.events import (
    CHART_LABELS,
    CHARTED,
    LAB_VARIABLES,
    LABS,
    VARIABLES,
    VITALS,
    chart_channel,
    lab_channel,
    preferred,
    urine_channel,
)

# As published (Johnson, Pollard, Naumann 2018), in the unit of the feature.
RANGES = [
    ("heart_rate", 25, 225), ("respiratory_rate", 0, 60), ("spo2", 0, 100),
    ("temperature_c", 25, 46), ("cuff_systolic", 25, 250), ("cuff_diastolic", 1, 200),
    ("cuff_mean", 1, 250), ("invasive_systolic", 1, 300), ("invasive_diastolic", 1, 200),
    ("invasive_mean", 1, 250), ("pao2", 15, 720), ("paco2", 5, 250), ("ph", 6.5, 8.5),
    ("albumin", 0.5, 6.5), ("bilirubin", 0.2, 70.175), ("bun", 1, 280),
    ("creatinine", 0.1, 28.28), ("glucose", 25, 1500), ("hematocrit", 5, 75), ("inr", 0.5, 15),
    ("lactate", 0.1, 30), ("potassium", 0.05, 12), ("sodium", 90, 215), ("wbc", 0, 100),
    ("bands", 0, 100), ("gcs", 3, 15),
]  # fmt: skip


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_the_ends_of_a_range_are_in_and_what_lies_beyond_is_missing(name, low, high):
    channel = {**CHARTED, **LABS}[name]
    values = np.array([low - 0.01, low, (low + high) / 2, high, high + 0.01])
    accepted = channel.accepted(values)
    assert np.isnan(accepted[[0, 4]]).all()
    assert accepted[1:4].tolist() == values[1:4].tolist()


def test_inspired_oxygen_is_a_share_or_a_percentage():
    accepted = LABS["fio2"].accepted(np.array([0.19, 0.2, 0.5, 1.0, 1.1, 19.0, 20.0, 45, 100, 101]))
    expected = [np.nan, 0.2, 0.5, 1.0, np.nan, np.nan, 0.2, 0.45, 1.0, np.nan]
    assert np.allclose(accepted, expected, equal_nan=True)


def test_fahrenheit_becomes_celsius_before_the_range_decides():
    accepted = CHARTED["temperature_f"].accepted(np.array([98.6, 37.0, 212.0]))
    assert accepted[0] == pytest.approx(37.0)
    assert np.isnan(accepted[1:]).all()


def test_charted_labels_in_any_letter_case():
    assert chart_channel("Heart Rate", "Heart Rate") == "heart_rate"
    assert chart_channel("Invasive BP", " invasive bp MEAN ") == "invasive_mean"
    assert chart_channel("MAP (mmHg)", "Value") == "invasive_mean"
    assert chart_channel("Score (Glasgow Coma Scale)", "Value") == "gcs"
    assert chart_channel("Glasgow coma score", "Motor") is None
    assert chart_channel("Heart Rate", "Value") is None
    assert {chart_channel(*pair) for pair in CHART_LABELS} == set(CHARTED)


def test_every_lab_has_a_published_name():
    names = [
        "paO2", "paCO2", "pH", "Base Excess", "FiO2", "albumin", "-bands", "bicarbonate",
        "total bilirubin", "BUN", "calcium", "creatinine", "glucose", "Hct", "Hgb", "PT - INR",
        "lactate", "platelets x 1000", "potassium", "sodium", "WBC x 1000",
    ]  # fmt: skip
    assert sorted(lab_channel(name) for name in names) == sorted(LABS)
    assert lab_channel("bedside glucose") == "glucose"
    assert lab_channel("urinary sodium") is None


def test_twenty_nine_variables():
    assert len(VITALS) == 7 and len(LAB_VARIABLES) == 21
    assert len(VARIABLES) == len(set(VARIABLES)) == 29


@pytest.mark.parametrize(
    ("label", "is_urine"),
    [
        ("Urine", True), ("URINE CATHETER", True), ("Foley cath", True), ("Voided Amount", True),
        ("Output (mL)-Urethral Catheter Non-latex 16 Fr.", True), ("Urine Output-Foley", True),
        ("Urine Count", False), ("Urine Occurrence", False), ("Mixed Urine/Stool Volume", False),
        ("Stool", False), ("Chest Tube", False), ("unmeasured voids", False),
    ],
)  # fmt: skip
def test_urine_is_told_from_other_output(label, is_urine):
    path = f"flowsheet|Flowsheet Cell Labels|I&O|Output (ml)|{label}"
    assert (urine_channel(path) == "urine") is is_urine
    assert urine_channel(path.replace("Output (ml)", "Intake (ml)")) is None


def test_gaps_are_filled_from_the_next_best():
    gap = np.nan
    filled = preferred(np.array([1, gap, gap]), np.array([9, 2, gap]), np.array([9, 9, 3]))
    assert filled.tolist() == [1, 2, 3]
