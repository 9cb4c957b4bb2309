"""Stays, their labels and groups, and the rules of the cohort."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._types import Vector
from fcfl.errors import DataError

from .events import HEART_RATE, KNOWN, find_places, read_events
from .tables import NUMBER, TEXT, WHOLE, Frame, OnProgress, Table, read_frame

DAY = 1440.0  # minutes
_STAY = {"patientunitstayid": WHOLE}
OLDEST = 90.0  # ages above 89 are published as "> 89"
_COLUMNS = {
    **dict.fromkeys(("patientunitstayid", "patienthealthsystemstayid", "hospitalid"), WHOLE),
    **dict.fromkeys(("uniquepid", "unittype", "age", "gender", "ethnicity"), TEXT),
    **dict.fromkeys(("hospitaldischargestatus", "unitdischargestatus"), TEXT),
    **dict.fromkeys(("hospitaladmitoffset", "hospitaldischargeoffset"), NUMBER),
    **dict.fromkeys(("unitdischargeoffset", "hospitaldischargeyear"), NUMBER),
}


@dataclass(frozen=True, slots=True)
class Span:
    """Minute at which each stay begins and ends, NaN where no heart rate was charted."""

    start: Vector
    end: Vector


def read_stays(patient: Table) -> Frame:
    """Return one row per stay, sorted by its id; empty text is missing, the age is a number."""
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
    """Return ages in years: ``> 89`` is 90."""
    above = texts.str.startswith(">", na=False).astype(bool)
    numbers = pd.to_numeric(texts.where(~above), errors="coerce")
    strange = texts[numbers.isna() & texts.notna() & ~above]
    if len(strange):
        where = f"Column 'age' of {str(patient.path)!r}"
        raise DataError(f"{where} must hold years or '> 89', got {strange.iloc[0]!r}.")
    return np.where(above, OLDEST, numbers.to_numpy(dtype=np.float64, na_value=np.nan))


def stay_ids(stays: Frame) -> NDArray[np.int64]:
    """Return the sorted ids."""
    return np.asarray(stays["patientunitstayid"], dtype=np.int64)


def heart_rate_span(charting: Table, stays: Frame, on_progress: OnProgress | None = None) -> Span:
    """Return the span from the first to the last charted heart rate."""
    start = np.full(len(stays), np.inf)
    end = np.full(len(stays), -np.inf)
    for events in read_events(charting, HEART_RATE, stay_ids(stays), on_progress):
        np.minimum.at(start, events.place, events.offset)
        np.maximum.at(end, events.place, events.offset)
    charted = start <= end
    return Span(np.where(charted, start, np.nan), np.where(charted, end, np.nan))


def unit_span(stays: Frame) -> Span:
    """Return the span from unit admission to discharge, where no heart rates are charted."""
    return Span(np.zeros(len(stays)), stays["unitdischargeoffset"].to_numpy(dtype=np.float64))


def died(stays: Frame) -> NDArray[np.bool_]:
    """Return whether either discharge status is expired."""
    return np.asarray(_expired(stays, "hospital") | _expired(stays, "unit"))


def death_time(stays: Frame, span: Span) -> Vector:
    """Return minute of death, NaN for survivors: the end of the ICU stay, or hospital discharge."""
    later = stays["hospitaldischargeoffset"].to_numpy(dtype=np.float64)
    in_hospital = np.where(_expired(stays, "hospital"), later, np.nan)
    return np.where(_expired(stays, "unit"), span.end, in_hospital)


def _expired(stays: Frame, where: str) -> NDArray[np.bool_]:
    status = stays[f"{where}dischargestatus"].str.lower()
    return np.asarray((status == "expired").fillna(False), dtype=bool)


def first_of_patient(stays: Frame) -> NDArray[np.bool_]:
    """Return whether a stay is its patient's first in the published order.

    The order is discharge year, age, id of the hospital stay, minute of hospital admission.
    """
    order = [
        "hospitaldischargeyear", "age", "patienthealthsystemstayid", "hospitaladmitoffset",
        "patientunitstayid",
    ]  # fmt: skip
    ordered = stays.sort_values(order, na_position="last", kind="stable")
    return np.asarray(~ordered["uniquepid"].duplicated().sort_index())


def predicted_mortality(results: Table, stays: Frame) -> Vector:
    """Return APACHE IVa hospital mortality, NaN where there is none; of several the largest."""
    value = "predictedhospitalmortality"
    frame = read_frame(results, {**_STAY, "apacheversion": TEXT, value: NUMBER})
    return _per_stay(frame[_words(frame["apacheversion"]) == "iva"], value, stays, np.fmax)


def first_care_limitation(plans: Table, stays: Frame) -> Vector:
    """Return the minute of the first order that limits care, NaN where there is none."""
    kinds = {**_STAY, "cplitemoffset": NUMBER, "cplgroup": TEXT, "cplitemvalue": TEXT}
    frame = read_frame(plans, kinds)
    in_group = _words(frame["cplgroup"]) == "care limitation"
    limits = _words(frame["cplitemvalue"]).isin(KNOWN["words"]["care_limits"])
    return _per_stay(frame[in_group & limits], "cplitemoffset", stays, np.fmin)


def _words(column: pd.Series) -> pd.Series:
    return column.str.strip().str.lower()


def _per_stay(frame: Frame, column: str, stays: Frame, combine: np.ufunc) -> Vector:
    """Return one number per stay, of several by ``combine``."""
    values = np.full(len(stays), np.nan)
    place, known = find_places(frame["patientunitstayid"].to_numpy(np.int64), stay_ids(stays))
    combine.at(values, place[known], frame[column].to_numpy(dtype=np.float64)[known])
    return values


WEEK = 7 * DAY
UNKNOWN_REGION = "unknown"
Texts = NDArray[np.object_]  # None where unknown


def los7(stays: Frame) -> Vector:
    """Return 1 where the hospital stay is above 7 days, NaN where its length is unknown."""
    minutes = stays["hospitaldischargeoffset"] - stays["hospitaladmitoffset"]
    length = minutes.to_numpy(dtype=np.float64)
    return np.where(np.isnan(length), np.nan, length > WEEK)


def mortality(stays: Frame) -> Vector:
    """Return 1 where the patient expired in hospital or unit."""
    return died(stays).astype(np.float64)


def race(stays: Frame) -> Texts:
    """Return Caucasian or not; a missing ethnicity is unknown."""
    ethnicity = stays["ethnicity"]
    caucasian = ethnicity.str.lower() == "caucasian"
    groups = caucasian.map({True: "Caucasian", False: "not Caucasian"}).astype(object)
    return np.asarray(groups.where(ethnicity.notna(), None), dtype=object)


def gender(stays: Frame) -> Texts:
    """Return Female or Male; anything else is unknown."""
    words = stays["gender"].str.capitalize().astype(object)
    return np.asarray(words.where(words.isin(["Female", "Male"]), None), dtype=object)


def hospital(stays: Frame) -> Texts:
    """Return the hospital's id as text."""
    return np.asarray(stays["hospitalid"].astype(int).astype(str), dtype=object)


def region(stays: Frame, hospitals: Table) -> Texts:
    """Return the region of the hospital; hospitals without one form a client of their own."""
    frame = read_frame(hospitals, {"hospitalid": WHOLE, "region": TEXT})
    regions = pd.Series(frame["region"].to_numpy(object), index=frame["hospitalid"].astype(int))
    named = stays["hospitalid"].astype(int).map(regions[~regions.index.duplicated()])
    texts = named.str.strip().replace("", None).fillna(UNKNOWN_REGION)
    return np.asarray(texts, dtype=object)


LABELS: dict[str, Callable[[Frame], Vector]] = {"los7": los7, "mortality": mortality}
GROUPS: dict[str, Callable[[Frame], Texts]] = {"race": race, "gender": gender}


Mask = NDArray[np.bool_]
YOUNGEST = 16


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules need to know about each stay, in the order of ``stays``.

    ``prediction`` is APACHE IVa hospital mortality and ``limit`` the minute of the first care
    limitation; ``limit`` is None where its table is not there. ``charted`` says whether ``span``
    is that of heart rates.
    """

    stays: Frame
    span: Span
    charted: bool
    prediction: Vector
    limit: Vector | None
    label: Vector


@dataclass(frozen=True, slots=True)
class Rule:
    """Name in files, words on the screen, and the stays it removes (None: cannot be applied)."""

    name: str
    words: str
    removes: Callable[[Facts], Mask | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the flow. ``removed`` is None where the rule could not be applied."""

    rule: str
    words: str
    removed: int | None
    left: int


def _has_icu(facts: Facts) -> Mask:
    return np.asarray(facts.stays["unittype"].str.lower().str.contains("icu", na=False))


def _has_status(facts: Facts) -> Mask:
    statuses = facts.stays[["hospitaldischargestatus", "unitdischargestatus"]]
    return np.asarray(statuses.notna().any(axis=1))


def _early(minute: Vector, facts: Facts) -> Mask:
    return minute - facts.span.start < DAY


RULES = (
    Rule("unit", "unit is not an ICU", lambda f: ~_has_icu(f)),
    Rule("age", f"younger than {YOUNGEST}", lambda f: np.asarray(f.stays["age"] < YOUNGEST)),
    Rule("heart_rate", "no heart rate charted",
         lambda f: np.isnan(f.span.start) if f.charted else None),
    Rule("status", "both discharge statuses missing", lambda f: ~_has_status(f)),
    Rule("first_stay", "not the patient's first stay", lambda f: ~first_of_patient(f.stays)),
    Rule("apache", "APACHE IVa mortality not above 0", lambda f: ~(f.prediction > 0)),
    Rule("death", "death within 24 h", lambda f: _early(death_time(f.stays, f.span), f)),
    Rule("short", "ICU stay under 24 h", lambda f: _early(f.span.end, f)),
    Rule("limitation", "care limited within 24 h",
         lambda f: None if f.limit is None else _early(f.limit, f)),
    Rule("label", "label unknown", lambda f: np.isnan(f.label)),
)  # fmt: skip


def failures(facts: Facts) -> dict[str, Mask | None]:
    """Return the stays that each rule removes, whatever the others do."""
    return {rule.name: rule.removes(facts) for rule in RULES}


def small_clients(client: NDArray[np.object_], in_cohort: Mask, min_stays: int) -> Mask:
    """Return stays of clients with fewer than ``min_stays`` stays in the cohort."""
    names = pd.Series(client)
    size = names.map(names[in_cohort].value_counts()).fillna(0)
    return np.asarray(size < min_stays)


def follow(
    n_stays: int, removals: Mapping[str, Mask | None], words: Mapping[str, str]
) -> tuple[Mask, tuple[Step, ...]]:
    """Apply rules one after another: who is left, and the flow."""
    left = np.ones(n_stays, dtype=bool)
    steps = []
    for name, removed in removals.items():
        now = left if removed is None else left & ~removed
        count = None if removed is None else int(left.sum() - now.sum())
        steps.append(Step(name, words[name], count, int(now.sum())))
        left = now
    return left, tuple(steps)
