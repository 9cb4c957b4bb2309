"""Simulated charted values, labs and urine of simulated stays."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fcfl._types import Vector
from fcfl_paper.eicu.source_tables import Frame


@dataclass(frozen=True, slots=True)
class Typical:
    """A typical value, its change per unit of severity, its spread, and its digits."""

    value: float
    slope: float
    spread: float
    digits: int = 0

    def draw(self, severity: Vector, rng: np.random.Generator) -> Vector:
        """One value for each severity."""
        values = self.value + self.slope * severity + self.spread * rng.normal(size=severity.size)
        # Nothing measured here is negative but base excess, whose typical value is.
        return np.round(values if self.value < 0 else np.maximum(values, 0), self.digits)


# label, name, values, hours between two of them
_CHARTED = (
    ("Heart Rate", "Heart Rate", Typical(85, 7, 8), 2),
    ("Respiratory Rate", "Respiratory Rate", Typical(19, 2, 3), 2),
    ("O2 Saturation", "O2 Saturation", Typical(96, -0.8, 1.2), 2),
    ("Non-Invasive BP", "Non-Invasive BP Systolic", Typical(122, -5, 12), 2),
    ("Non-Invasive BP", "Non-Invasive BP Diastolic", Typical(66, -3, 8), 2),
    ("Non-Invasive BP", "Non-Invasive BP Mean", Typical(82, -4, 9), 2),
    ("Invasive BP", "Invasive BP Systolic", Typical(118, -5, 12), 2),
    ("Invasive BP", "Invasive BP Diastolic", Typical(62, -3, 8), 2),
    ("Invasive BP", "Invasive BP Mean", Typical(80, -4, 9), 2),
    ("Temperature", "Temperature (C)", Typical(36.9, 0.15, 0.5, 1), 4),
    ("Glasgow coma score", "GCS Total", Typical(13.6, -1.0, 1.2), 4),
)
_LARGEST = {"O2 Saturation": 100.0, "GCS Total": 15.0}
_SMALLEST = {"GCS Total": 3.0}
_PANELS = (
    {
        "paO2": Typical(105, -6, 30), "paCO2": Typical(41, 1, 8), "FiO2": Typical(45, 6, 8),
        "pH": Typical(7.38, -0.02, 0.06, 2), "Base Excess": Typical(-0.5, -1.2, 4, 1),
        "lactate": Typical(1.8, 0.5, 0.9, 1),
    },
    {
        "bicarbonate": Typical(24.5, -0.8, 4), "BUN": Typical(22, 5, 12),
        "calcium": Typical(8.4, -0.1, 0.6, 1), "creatinine": Typical(1.2, 0.3, 0.7, 2),
        "glucose": Typical(140, 10, 40), "potassium": Typical(4.1, 0.1, 0.5, 1),
        "sodium": Typical(138.5, 0.2, 4.5),
    },
    {
        "Hct": Typical(33, -1, 5, 1), "Hgb": Typical(11, -0.4, 1.8, 1),
        "platelets x 1000": Typical(210, -10, 60), "WBC x 1000": Typical(11, 1.2, 4, 1),
        "-bands": Typical(6, 2, 6),
    },
    {
        "albumin": Typical(3.1, -0.2, 0.6, 1), "total bilirubin": Typical(0.9, 0.2, 0.7, 1),
        "PT - INR": Typical(1.3, 0.1, 0.3, 1),
    },
)  # fmt: skip
_PANEL_SHARES = (0.3, 0.8, 0.75, 0.4)
_URINE = "flowsheet|Flowsheet Cell Labels|I&O|Output (ml)|Urine"


def charting(stays: Frame, rng: np.random.Generator) -> Iterator[Frame]:
    """One channel after another, so that the rows of a stay lie apart."""
    lined = stays[rng.random(len(stays)) < 0.2]
    for label, name, typical, step in _CHARTED:
        some = lined if label == "Invasive BP" else stays
        hours = np.arange(0, 25, step)
        if name == "Heart Rate":
            some = some[some["flaw"] != "heart_rate"]
            for edge in ("start", "end"):
                yield _rows(label, name, some, some[edge].to_numpy(), typical, rng, flawless=True)
        minute = some["start"].to_numpy()[:, None] + 60 * hours + rng.integers(1, 55, hours.size)
        row, column = np.nonzero(minute < some["end"].to_numpy()[:, None])
        yield _rows(label, name, some.iloc[row], minute[row, column], typical, rng)


def _rows(
    label: str,
    name: str,
    stays: Frame,
    minute: Vector,
    typical: Typical,
    rng: np.random.Generator,
    *,
    flawless: bool = False,
) -> Frame:
    """Rows of one channel; now and then a value out of range or a word instead of one."""
    values = typical.draw(stays["severity"].to_numpy(), rng)
    values = np.clip(values, _SMALLEST.get(name, 0.0), _LARGEST.get(name, np.inf))
    text = np.char.mod(f"%.{typical.digits}f", values)
    chance = rng.random(values.size) + 0.5 * flawless
    text = np.where(chance < 0.004, "999", text)
    if not flawless:
        text = np.where(chance > 0.998, "unable to obtain", text)
    offsets = minute.astype(np.int64)
    return pd.DataFrame(
        {
            "patientunitstayid": stays["stay"].to_numpy(),
            "nursingchartoffset": offsets,
            "nursingchartentryoffset": offsets,
            "nursingchartcelltypecat": "Scores" if name == "GCS Total" else "Vital Signs",
            "nursingchartcelltypevallabel": label,
            "nursingchartcelltypevalname": name,
            "nursingchartvalue": text,
        }
    )


def labs(stays: Frame, rng: np.random.Generator) -> Iterator[Frame]:
    """Panels drawn up to three times a stay, often once before the unit; a few out of range."""
    for panel, share in zip(_PANELS, _PANEL_SHARES, strict=True):
        for low, high in ((-600, 0), (30, 600), (700, 1400)):
            some = stays[rng.random(len(stays)) < share]
            minute = some["start"].to_numpy() + rng.integers(low, high, len(some))
            for name, typical in panel.items():
                values = typical.draw(some["severity"].to_numpy(), rng)
                values = np.where(rng.random(values.size) < 0.003, 99999.0, values)
                yield pd.DataFrame(
                    {
                        "patientunitstayid": some["stay"].to_numpy(),
                        "labresultoffset": minute,
                        "labtypeid": 1,
                        "labname": name,
                        "labresult": values,
                        "labresulttext": values,
                        "labresultrevisedoffset": minute + 30,
                    }
                )


def urine(stays: Frame, rng: np.random.Generator) -> Frame:
    """A volume every four hours."""
    parts = []
    for hour in range(2, 24, 4):
        volume = Typical(260, -30, 90).draw(stays["severity"].to_numpy(), rng)
        rows = {
            "patientunitstayid": stays["stay"],
            "intakeoutputoffset": stays["start"] + 60 * hour + rng.integers(0, 50, len(stays)),
            "outputtotal": volume,
            "cellpath": _URINE,
            "celllabel": "Urine",
            "cellvaluenumeric": volume,
            "cellvaluetext": volume,
        }
        parts.append(pd.DataFrame(rows))
    return pd.concat(parts)
