"""What is measured, where it is charted, and which values are accepted."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector

Changed = Callable[[Vector], Vector]


def _as_it_is(values: Vector) -> Vector:
    return values


def celsius(values: Vector) -> Vector:
    """Fahrenheit as Celsius: (F − 32) / 1.8."""
    return (values - 32.0) / 1.8


def fraction(values: Vector) -> Vector:
    """Inspired oxygen as a share: 20 to 100 is percent."""
    return np.where(values >= 20, values / 100.0, values)


@dataclass(frozen=True, slots=True)
class Channel:
    """One kind of charted value: its unit is changed first, then the range decides."""

    low: float
    high: float
    change: Changed = _as_it_is

    def accepted(self, values: Vector) -> Vector:
        """The values in our unit, NaN where they lie outside the accepted range."""
        changed = self.change(values)
        inside = (changed >= self.low) & (changed <= self.high)
        return np.where(inside, changed, np.nan)


CHARTED = {
    "heart_rate": Channel(25, 225),
    "respiratory_rate": Channel(0, 60),
    "spo2": Channel(0, 100),
    "temperature_c": Channel(25, 46),
    "temperature_f": Channel(25, 46, celsius),
    "cuff_systolic": Channel(25, 250),
    "cuff_diastolic": Channel(1, 200),
    "cuff_mean": Channel(1, 250),
    "invasive_systolic": Channel(1, 300),
    "invasive_diastolic": Channel(1, 200),
    "invasive_mean": Channel(1, 250),
    "gcs": Channel(3, 15),
}

# (nursingchartcelltypevallabel, nursingchartcelltypevalname) -> channel
_CHART_LABELS = {
    ("heart rate", "heart rate"): "heart_rate",
    ("respiratory rate", "respiratory rate"): "respiratory_rate",
    ("o2 saturation", "o2 saturation"): "spo2",
    ("temperature", "temperature (c)"): "temperature_c",
    ("temperature", "temperature (f)"): "temperature_f",
    ("non-invasive bp", "non-invasive bp systolic"): "cuff_systolic",
    ("non-invasive bp", "non-invasive bp diastolic"): "cuff_diastolic",
    ("non-invasive bp", "non-invasive bp mean"): "cuff_mean",
    ("invasive bp", "invasive bp systolic"): "invasive_systolic",
    ("invasive bp", "invasive bp diastolic"): "invasive_diastolic",
    ("invasive bp", "invasive bp mean"): "invasive_mean",
    ("map (mmhg)", "value"): "invasive_mean",
    ("arterial line map (mmhg)", "value"): "invasive_mean",
    ("glasgow coma score", "gcs total"): "gcs",
    ("score (glasgow coma scale)", "value"): "gcs",
}

# A vital sign is the first of its channels that has a value in the hour.
VITALS = {
    "heart_rate": ("heart_rate",),
    "systolic": ("invasive_systolic", "cuff_systolic"),
    "diastolic": ("invasive_diastolic", "cuff_diastolic"),
    "mean_pressure": ("invasive_mean", "cuff_mean"),
    "respiratory_rate": ("respiratory_rate",),
    "temperature": ("temperature_c", "temperature_f"),
    "spo2": ("spo2",),
}
SCORE = "gcs"

LABS = {
    "pao2": Channel(15, 720),
    "paco2": Channel(5, 250),
    "fio2": Channel(0.2, 1, fraction),
    "ph": Channel(6.5, 8.5),
    "base_excess": Channel(-100, 100),
    "albumin": Channel(0.5, 6.5),
    "bands": Channel(0, 100),
    "bicarbonate": Channel(0, 9999),
    "bilirubin": Channel(0.2, 70.175),
    "bun": Channel(1, 280),
    "calcium": Channel(0, 9999),
    "creatinine": Channel(0.1, 28.28),
    "glucose": Channel(25, 1500),
    "hematocrit": Channel(5, 75),
    "hemoglobin": Channel(0, 9999),
    "inr": Channel(0.5, 15),
    "lactate": Channel(0.1, 30),
    "platelets": Channel(0, 9999),
    "potassium": Channel(0.05, 12),
    "sodium": Channel(90, 215),
    "wbc": Channel(0, 100),
}
OXYGENATION = "pao2_fio2"  # of the hour's means; not a channel

# labname -> channel
_LAB_LABELS = {
    "pao2": "pao2",
    "paco2": "paco2",
    "fio2": "fio2",
    "ph": "ph",
    "base excess": "base_excess",
    "albumin": "albumin",
    "-bands": "bands",
    "bicarbonate": "bicarbonate",
    "total bilirubin": "bilirubin",
    "bun": "bun",
    "calcium": "calcium",
    "creatinine": "creatinine",
    "glucose": "glucose",
    "bedside glucose": "glucose",
    "hct": "hematocrit",
    "hgb": "hemoglobin",
    "pt - inr": "inr",
    "lactate": "lactate",
    "platelets x 1000": "platelets",
    "potassium": "potassium",
    "sodium": "sodium",
    "wbc x 1000": "wbc",
}

LAB_VARIABLES = (
    "pao2", "paco2", OXYGENATION, "ph", "base_excess",
    *(name for name in LABS if name not in ("pao2", "paco2", "fio2", "ph", "base_excess")),
)  # fmt: skip
VARIABLES = (*VITALS, SCORE, *LAB_VARIABLES)  # the 29 with a first and a last value

_OUTPUT = "|output (ml)|"
_URINE = (
    "urin", "foley", "urethral", "urethal", "straight cath", "straightcath", "condom cath",
    "texas cath", "indwelling cath", "suprapubic", "nephrostomy", "void", "uop",
)  # fmt: skip
_NOT_A_VOLUME_OF_URINE = ("count", "occur", "stool", "irrigat", "number of", "unmeasured", "pacu")


@cache
def chart_channel(label: str, name: str) -> str | None:
    """The channel of a nurseCharting row, by its two labels in any letter case."""
    return _CHART_LABELS.get((label.strip().lower(), name.strip().lower()))


@cache
def lab_channel(name: str) -> str | None:
    """The channel of a lab row."""
    return _LAB_LABELS.get(name.strip().lower())


@cache
def urine_channel(path: str) -> str | None:
    """``"urine"`` for an intakeOutput row whose path names a volume of urine."""
    _, output, label = path.lower().partition(_OUTPUT)
    if not output or any(word in label for word in _NOT_A_VOLUME_OF_URINE):
        return None
    return "urine" if any(word in label for word in _URINE) else None


URINE = {"urine": Channel(0, np.inf)}


def preferred(first: NDArray[np.float64], *others: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first of several arrays, its gaps filled from the next, and so on."""
    for other in others:
        first = np.where(np.isnan(first), other, first)
    return first
