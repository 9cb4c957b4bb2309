"""The patient table as stays, with what the cohort rules need to know about each of them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._types import Vector
from fcfl.errors import DataError

from .events import HEART_RATE, find_places, read_events
from .source_tables import NUMBER, TEXT, WHOLE, Frame, OnProgress, Table, read_frame

DAY = 1440.0  # minutes
OLDEST = 90.0  # ages above 89 are published as "> 89"
_COLUMNS = {
    "patientunitstayid": WHOLE,
    "patienthealthsystemstayid": WHOLE,
    "uniquepid": TEXT,
    "hospitalid": WHOLE,
    "unittype": TEXT,
    "age": TEXT,
    "gender": TEXT,
    "ethnicity": TEXT,
    "hospitaladmitoffset": NUMBER,
    "hospitaldischargeoffset": NUMBER,
    "unitdischargeoffset": NUMBER,
    "hospitaldischargeyear": NUMBER,
    "hospitaldischargestatus": TEXT,
    "unitdischargestatus": TEXT,
}
_LIMITS = (
    "do not resuscitate", "advance directives", "no cardioversion", "no cpr", "no intubation",
    "no vasopressors/inotropes",
    "comfort measures only", "no augmentation of care", "no blood draws", "no blood products",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """Minute at which each stay begins and ends, NaN where no heart rate was charted."""

    start: Vector
    end: Vector


def read_stays(patient: Table) -> Frame:
    """One row per stay, sorted by its id; empty text is missing, the age is a number."""
    stays = read_frame(patient, _COLUMNS)
    if not len(stays):
        raise DataError(f"The table {str(patient.path)!r} has no rows, only a header.")
    for name in ("hospitalid", "uniquepid"):
        if stays[name].isna().any():
            raise DataError(f"Column {name!r} of {str(patient.path)!r} is empty in some rows.")
    ids = stays["patientunitstayid"].astype(np.int64)
    if ids.duplicated().any():
        raise DataError(
            f"Column 'patientunitstayid' of {str(patient.path)!r} must differ in every row, "
            f"got {ids[ids.duplicated()].iloc[0]} twice."
        )
    for name, kind in _COLUMNS.items():
        if kind is TEXT:
            stays[name] = stays[name].str.strip().replace("", None)
    stays["age"] = _ages(stays["age"], patient)
    return stays.assign(patientunitstayid=ids).sort_values("patientunitstayid", ignore_index=True)


def _ages(texts: pd.Series, patient: Table) -> Vector:
    """Ages in years: ``> 89`` is 90."""
    above = texts.str.startswith(">", na=False).astype(bool)
    numbers = pd.to_numeric(texts.where(~above), errors="coerce")
    strange = texts[numbers.isna() & texts.notna() & ~above]
    if len(strange):
        raise DataError(
            f"Column 'age' of {str(patient.path)!r} must hold years or '> 89', "
            f"got {strange.iloc[0]!r}."
        )
    return np.where(above, OLDEST, numbers.to_numpy(dtype=np.float64, na_value=np.nan))


def stay_ids(stays: Frame) -> NDArray[np.int64]:
    """The sorted ids."""
    return np.asarray(stays["patientunitstayid"], dtype=np.int64)


def heart_rate_span(charting: Table, stays: Frame, on_progress: OnProgress | None = None) -> Span:
    """From the first to the last charted heart rate."""
    start = np.full(len(stays), np.inf)
    end = np.full(len(stays), -np.inf)
    for events in read_events(charting, HEART_RATE, stay_ids(stays), on_progress):
        np.minimum.at(start, events.place, events.offset)
        np.maximum.at(end, events.place, events.offset)
    charted = start <= end
    return Span(np.where(charted, start, np.nan), np.where(charted, end, np.nan))


def unit_span(stays: Frame) -> Span:
    """From unit admission to unit discharge, for tables without charted heart rates."""
    return Span(np.zeros(len(stays)), stays["unitdischargeoffset"].to_numpy(dtype=np.float64))


def died(stays: Frame) -> NDArray[np.bool_]:
    """Whether either discharge status says expired."""
    return np.asarray(_expired(stays, "hospital") | _expired(stays, "unit"))


def death_time(stays: Frame, span: Span) -> Vector:
    """Minute of death, NaN for survivors: the end of the ICU stay, or hospital discharge."""
    later = stays["hospitaldischargeoffset"].to_numpy(dtype=np.float64)
    in_hospital = np.where(_expired(stays, "hospital"), later, np.nan)
    return np.where(_expired(stays, "unit"), span.end, in_hospital)


def _expired(stays: Frame, where: str) -> NDArray[np.bool_]:
    status = stays[f"{where}dischargestatus"].str.lower()
    return np.asarray((status == "expired").fillna(False), dtype=bool)


def first_of_patient(stays: Frame) -> NDArray[np.bool_]:
    """Whether a stay is its patient's first in the published order.

    The order is discharge year, age, id of the hospital stay, minute of hospital admission.
    """
    order = [
        "hospitaldischargeyear", "age", "patienthealthsystemstayid", "hospitaladmitoffset",
        "patientunitstayid",
    ]  # fmt: skip
    ordered = stays.sort_values(order, na_position="last", kind="stable")
    return np.asarray(~ordered["uniquepid"].duplicated().sort_index())


def predicted_mortality(results: Table, stays: Frame) -> Vector:
    """APACHE IVa hospital mortality, NaN where there is none; of several the largest."""
    columns = {
        "patientunitstayid": WHOLE,
        "apacheversion": TEXT,
        "predictedhospitalmortality": NUMBER,
    }
    frame = read_frame(results, columns)
    frame = frame[frame["apacheversion"].str.strip().str.lower() == "iva"]
    return _per_stay(frame, "predictedhospitalmortality", stays, np.fmax, np.nan)


def first_care_limitation(plans: Table, stays: Frame) -> Vector:
    """Minute of the first order that limits care, NaN where there is none."""
    columns = {
        "patientunitstayid": WHOLE,
        "cplitemoffset": NUMBER,
        "cplgroup": TEXT,
        "cplitemvalue": TEXT,
    }
    frame = read_frame(plans, columns)
    in_group = frame["cplgroup"].str.strip().str.lower() == "care limitation"
    limits = frame["cplitemvalue"].str.strip().str.lower().isin(_LIMITS)
    return _per_stay(frame[in_group & limits], "cplitemoffset", stays, np.fmin, np.nan)


def _per_stay(frame: Frame, column: str, stays: Frame, combine: np.ufunc, empty: float) -> Vector:
    """One number per stay, of several by ``combine``."""
    values = np.full(len(stays), empty)
    place, known = find_places(frame["patientunitstayid"].to_numpy(np.int64), stay_ids(stays))
    combine.at(values, place[known], frame[column].to_numpy(dtype=np.float64)[known])
    return values
