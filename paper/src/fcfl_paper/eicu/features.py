"""Features of a stay: 82 from day one, or the worst day-one values APACHE keeps."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from fcfl._types import Vector

from .events import CHARTING, INTAKE_OUTPUT, LAB, Source, read_events
from .hourly import (
    DAY_ONE,
    WITH_LOOK_BACK,
    Hours,
    HourSums,
    Window,
    first_value,
    hour_sums,
    largest,
    last_value,
    smallest,
)
from .source_tables import NUMBER, TEXT, WHOLE, Frame, OnProgress, Table, read_frame
from .stays import stay_ids
from .variables import LAB_VARIABLES, OXYGENATION, SCORE, VARIABLES, VITALS, preferred

RACE_COLUMNS = ("black", "hispanic", "asian", "other_race")
GENDER_COLUMNS = ("female",)
LEFT_OUT = {"race": RACE_COLUMNS, "gender": GENDER_COLUMNS}  # when the attribute is sensitive

_APS = (
    "intubated", "vent", "dialysis", "eyes", "motor", "verbal", "meds", "urine", "wbc",
    "temperature", "respiratoryrate", "sodium", "heartrate", "meanbp", "ph", "hematocrit",
    "creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2",
)  # fmt: skip
# Known on day one; outcomes that the table also keeps (death, discharge) are not read.
_PREDICTORS = (
    "aids", "hepaticfailure", "lymphoma", "metastaticcancer", "leukemia", "immunosuppression",
    "cirrhosis", "diabetes", "thrombolytics", "activetx", "readmit", "ima", "midur",
)  # fmt: skip
_SCORES = ("acutephysiologyscore", "apachescore")


def day_one(
    tables: Mapping[str, Table],
    stays: Frame,
    start: Vector,
    *,
    on_progress: OnProgress | None = None,
) -> Frame:
    """The 82 features: first, last, smallest and largest values, urine, static attributes.

    Parameters
    ----------
    tables : nurseCharting, lab, intakeOutput and apachePredVar
    stays : the stays of the cohort
    start : minute at which each of them begins
    """

    def reduced(source: Source, window: Window) -> HourSums:
        events = read_events(tables[source.table], source, stay_ids(stays), on_progress)
        return hour_sums(events, len(source.channels), start, window)

    hours = charted_hours(reduced(CHARTING, DAY_ONE))
    columns = summaries(hours, first_value, "first") | summaries(hours, last_value, "last")
    columns |= summaries(hours, smallest, "min") | summaries(hours, largest, "max")
    hours = lab_hours(reduced(LAB, WITH_LOOK_BACK))
    columns |= summaries(hours, first_value, "first") | summaries(hours, last_value, "last")
    columns["urine_sum"] = reduced(INTAKE_OUTPUT, DAY_ONE).totals(0)
    columns |= static(stays, tables["apachePredVar"])
    order = [f"{name}_{kind}" for kind in ("first", "last") for name in VARIABLES]
    return pd.DataFrame({name: columns[name] for name in [*order, *columns]})


def charted_hours(sums: HourSums) -> dict[str, Hours]:
    """Vital signs by the hour, the preferred channel first, and the coma score rounded up."""
    codes = {name: code for code, name in enumerate(CHARTING.channels)}
    hours = {
        vital: preferred(*(sums.means(codes[channel]) for channel in channels))
        for vital, channels in VITALS.items()
    }
    return hours | {SCORE: np.ceil(sums.means(codes[SCORE]))}


def lab_hours(sums: HourSums) -> dict[str, Hours]:
    """Labs and blood gases by the hour, with PaO2/FiO2 of the hour's means."""
    means = {name: sums.means(code) for code, name in enumerate(LAB.channels)}
    means[OXYGENATION] = means["pao2"] / means["fio2"]
    return {name: means[name] for name in LAB_VARIABLES}


def summaries(
    hours: Mapping[str, Hours], summary: Callable[[Hours], Vector], kind: str
) -> dict[str, Vector]:
    """One number per stay of each variable."""
    return {f"{name}_{kind}": summary(values) for name, values in hours.items()}


def static(stays: Frame, predictors: Table) -> dict[str, Vector]:
    """Sex, age, race and elective surgery, whose missing value is 0."""
    ethnicity = stays["ethnicity"].str.lower()
    named = {"black": "african american", "hispanic": "hispanic", "asian": "asian"}
    columns = {name: (ethnicity == value).fillna(False) for name, value in named.items()}
    columns["other_race"] = ~ethnicity.isin(list(named.values()))
    surgery = _joined(predictors, ("electivesurgery",), stays)["electivesurgery"]
    return {
        "female": np.asarray(stays["gender"].str.lower() == "female", dtype=np.float64),
        "age": stays["age"].to_numpy(dtype=np.float64),
        **{name: np.asarray(column, dtype=np.float64) for name, column in columns.items()},
        "elective_surgery": np.where(np.isnan(surgery), 0.0, surgery),
    }


def apache(tables: Mapping[str, Table], stays: Frame) -> Frame:
    """Worst values of day one and chronic conditions; -1 is missing.

    Parameters
    ----------
    tables : apacheApsVar, apachePredVar and apachePatientResult
    stays : the stays of the cohort
    """
    columns = _joined(tables["apacheApsVar"], _APS, stays)
    columns |= _joined(tables["apachePredVar"], _PREDICTORS, stays)
    columns |= _joined(tables["apachePatientResult"], _SCORES, stays, version="iva")
    columns |= static(stays, tables["apachePredVar"])
    return pd.DataFrame(columns)


def _joined(
    table: Table, names: tuple[str, ...], stays: Frame, version: str | None = None
) -> dict[str, Vector]:
    """Columns of a table with one row per stay, in the order of ``stays``; -1 becomes NaN."""
    kinds = {"patientunitstayid": WHOLE, **dict.fromkeys(names, NUMBER)}
    if version:
        kinds["apacheversion"] = TEXT
    frame = read_frame(table, kinds)
    if version:
        frame = frame[frame["apacheversion"].str.strip().str.lower() == version]
    frame = frame.drop_duplicates("patientunitstayid").set_index("patientunitstayid")
    matched = frame.reindex(stay_ids(stays))
    return {
        name: matched[name].mask(matched[name] == -1).to_numpy(dtype=np.float64) for name in names
    }
