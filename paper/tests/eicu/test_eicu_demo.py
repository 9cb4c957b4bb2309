"""The open demo's real rows: its published counts, and the flow through the rules."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.events import INTAKE_OUTPUT, Events, Window, hour_sums, read_events
from fcfl_paper.eicu.stays import (
    DAY,
    first_care_limitation,
    first_of_patient,
    los7,
    mortality,
    predicted_mortality,
    read_stays,
    region,
    stay_ids,
)
from fcfl_paper.eicu.tables import find_tables

ROOT = Path(__file__).parents[3]
DEMO = Path(os.environ.get("FCFL_EICU_DEMO") or ROOT.parent / "shared" / "data" / "eicu-demo")
TABLES = ("patient", "hospital", "carePlanGeneral", "apachePatientResult", "intakeOutput")

pytestmark = pytest.mark.skipif(
    not (DEMO / "patient.csv.gz").is_file(),
    reason="needs the open eICU demo: name its folder in FCFL_EICU_DEMO",
)


@pytest.fixture(scope="module")
def tables():
    return find_tables(DEMO, dict.fromkeys(TABLES, "which the test needs"))


@pytest.fixture(scope="module")
def stays(tables):
    return read_stays(tables["patient"])


def test_the_published_counts(stays):
    assert len(stays) == 2520
    assert stays["uniquepid"].nunique() == 1841
    sizes = stays["hospitalid"].value_counts()
    assert (len(sizes), sizes.max(), (sizes >= 20).sum()) == (186, 40, 11)
    assert stays["ethnicity"].isna().sum() == 39
    assert stays["ethnicity"].value_counts().to_dict() == {
        "Caucasian": 2010, "African American": 231, "Hispanic": 115, "Other/Unknown": 83,
        "Asian": 30, "Native American": 12,
    }  # fmt: skip
    assert stays["gender"].value_counts().to_dict() == {"Male": 1508, "Female": 1008}


def test_the_published_rates(stays):
    in_unit = stays["unitdischargeoffset"] / DAY
    assert round(100 * (in_unit > 7).mean(), 1) == 5.8
    assert round(100 * (in_unit > 3).mean(), 1) == 21.8
    assert round(100 * los7(stays).mean(), 1) == 32.1
    assert round(100 * mortality(stays).mean(), 1) == 8.6


def test_the_published_regions(stays, tables):
    caucasian = (stays["ethnicity"] == "Caucasian").groupby(region(stays, tables["hospital"]))
    found = {name: (len(rows), round(rows.mean(), 2)) for name, rows in caucasian}
    assert found == {
        "Midwest": (807, 0.87), "South": (738, 0.67), "West": (606, 0.82),
        "Northeast": (159, 0.97), "unknown": (210, 0.79),
    }  # fmt: skip


def test_first_stays_predictions_and_care_limitations(stays, tables):
    assert first_of_patient(stays).sum() == stays["uniquepid"].nunique()
    predicted = predicted_mortality(tables["apachePatientResult"], stays)
    assert np.isfinite(predicted).sum() == 1838
    limit = first_care_limitation(tables["carePlanGeneral"], stays)
    assert 0 < np.isfinite(limit).sum() < 400


def test_urine_is_found_in_the_real_labels(stays, tables):
    stream = read_events(tables["intakeOutput"], INTAKE_OUTPUT, stay_ids(stays))
    values = np.concatenate([events.value for events in stream])
    assert values.size > 35_000 and (values >= 0).all()
    assert 50 < np.median(values) < 500


def test_the_cohort_flow_of_the_demo():
    prepared = prepare(DEMO, Options(features="apache", client="region"))
    assert prepared.n_read == 2520
    assert {step.rule: step.removed for step in prepared.flow} == {
        "unit": 0, "age": 1, "heart_rate": None, "status": 0, "first_stay": 679, "apache": 559,
        "death": 23, "short": 329, "limitation": 103, "label": 0, "client": 0, "race": 10,
    }  # fmt: skip
    frame = prepared.frame
    assert len(frame) == 816 and len(prepared.features) == 42
    assert frame["region"].value_counts().to_dict() == {
        "Midwest": 283, "South": 266, "West": 150, "Northeast": 61, "unknown": 56,
    }  # fmt: skip
    assert not (frame.select_dtypes("number") < 0).to_numpy().any()  # -1 is missing
    assert frame["age"].between(16, 90).all()


@pytest.mark.skipif(not (DEMO / "los-dyn.parquet").is_file(), reason="needs los-dyn.parquet")
def test_urine_agrees_with_others_who_read_the_same_rows(stays, tables):
    """Hourly urine of the same demo as YAIB has it; it drops volumes above 2 l, so these do too."""
    stream = read_events(tables["intakeOutput"], INTAKE_OUTPUT, stay_ids(stays))
    modest = (_where(events, events.value <= 2000) for events in stream)
    sums = hour_sums(modest, 1, np.zeros(len(stays)), Window(1, 24))
    ours = pd.Series(sums.totals(0), index=stay_ids(stays), name="ours")
    theirs = pd.read_parquet(DEMO / "los-dyn.parquet", columns=["stay_id", "time", "urine"])
    first_day = theirs[theirs["time"] < pd.Timedelta(days=1)]
    total = first_day.groupby("stay_id")["urine"].sum(min_count=1)
    both = pd.concat([ours, total], axis=1, join="inner")
    assert len(both) > 2000
    assert (both["ours"].notna() == both["urine"].notna()).mean() > 0.97
    both = both.dropna()
    assert ((both["ours"] - both["urine"]).abs() <= 1).mean() > 0.93


def _where(events, kept):
    return Events(events.place[kept], events.channel[kept], events.offset[kept], events.value[kept])
