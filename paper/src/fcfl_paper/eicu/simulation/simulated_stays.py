"""Simulated stays: hospitals and groups that differ in known ways, with no patient behind them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._types import Vector
from fcfl_paper.eicu.source_tables import Frame
from fcfl_paper.eicu.stays import DAY

REGIONS = ("Midwest", "South", "West", "Northeast", None)
FIRST_HOSPITAL = 101
EFFECT = {"los7": 0.8, "mortality": 0.9}  # of severity, in log-odds
# One stay in how many has this one flaw and no other, so that each rule removes stays of its own.
FLAWS = {
    "unit": 200, "age": 200, "heart_rate": 50, "status": 100, "first_stay": 25, "apache": 25,
    "death": 200, "short": 50, "limitation": 50, "label": 200, "race": 60, "gender": 200,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Truth:
    """How hospitals differ; one entry per hospital.

    Severity is normal with spread 1 and mean 0 for Caucasian patients, ``gap`` for the others. The
    log-odds of a label are its base plus ``EFFECT`` times the severity.
    """

    hospital: NDArray[np.int64]
    stays: NDArray[np.int64]
    caucasian: Vector
    gap: Vector
    los7: Vector
    mortality: Vector

    def frame(self) -> Frame:
        """One row per hospital."""
        return pd.DataFrame({name: getattr(self, name) for name in self.__slots__})


def truth(hospitals: int, stays: int) -> Truth:
    """The differences between hospitals; one more is too small to be a client."""
    share = np.linspace(0, 1, hospitals + 1)
    turned = np.roll(share, hospitals // 2)  # so that the differences do not go hand in hand
    return Truth(
        FIRST_HOSPITAL + np.arange(hospitals + 1),
        np.array([stays] * hospitals + [max(stays // 20, 2)]),
        0.92 - 0.37 * share,
        0.2 + 0.8 * turned,
        -1.4 + 0.9 * turned[::-1],
        -3.0 + 0.8 * share,
    )


def draw_stays(known: Truth, rng: np.random.Generator) -> Frame:
    """One row per stay: who, how ill, when, how it ended, and its flaw if it has one."""
    at = np.repeat(np.arange(known.hospital.size), known.stays)
    n = at.size
    caucasian = rng.random(n) < known.caucasian[at]
    severity = rng.normal(size=n) + np.where(caucasian, 0.0, known.gap[at])
    others = rng.choice(["African American", "Hispanic", "Asian", "Other/Unknown"], n)
    stays = pd.DataFrame(
        {
            "stay": 100_000 + rng.permutation(9 * n)[:n],
            "hospital": known.hospital[at],
            "ethnicity": np.where(caucasian, "Caucasian", others),
            "gender": rng.choice(["Female", "Male"], n, p=[0.45, 0.55]),
            "age": np.clip(rng.normal(63, 16, n).round(), 18, 95),
            "severity": severity,
            "long": _drawn(known.los7[at] + EFFECT["los7"] * severity, rng),
            "died": _drawn(known.mortality[at] + EFFECT["mortality"] * severity, rng),
            "flaw": _flaws(known.stays, rng),
        }
    )
    return _with_patients(_with_times(stays, rng), rng).sort_values("stay", ignore_index=True)


def _drawn(log_odds: Vector, rng: np.random.Generator) -> NDArray[np.bool_]:
    return rng.random(log_odds.size) < 1 / (1 + np.exp(-log_odds))


def _flaws(sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.object_]:
    """Each flaw at least once in every hospital that is large enough; none in the small one."""
    parts = []
    for size in sizes[:-1]:
        counts = [max(int(size) // each, 1) for each in FLAWS.values()]
        names = np.repeat(np.array(list(FLAWS), dtype=object), counts)[: int(size) // 2]
        sound = np.full(int(size) - names.size, None, dtype=object)
        parts.append(rng.permutation(np.concatenate([names, sound])))
    return np.concatenate([*parts, np.full(int(sizes[-1]), None, dtype=object)])


def _with_times(stays: Frame, rng: np.random.Generator) -> Frame:
    """Minutes from unit admission; a stay without a flaw lasts and is charted for over a day."""
    n = len(stays)
    days = np.where(stays["long"], rng.uniform(7.1, 20, n), rng.uniform(2.2, 6.9, n))
    admitted = -rng.integers(10, 400, n)
    left = admitted + (days * DAY).round()
    start = rng.integers(-20, 90, n)
    end = start + rng.uniform(1.05 * DAY, np.minimum(left - start - 60, 6 * DAY)).round()
    end = np.where(stays["flaw"] == "short", start + rng.integers(120, 1300, n), end)
    left = np.where(stays["flaw"] == "death", start + rng.integers(120, 1300, n), left)
    early = start + rng.integers(30, 1300, n)
    late = np.where(rng.random(n) < 0.05, start + DAY + rng.integers(0, 600, n), np.nan)
    limit = np.where(stays["flaw"] == "limitation", early, late)
    return stays.assign(admitted=admitted, left=left, start=start, end=end, limit=limit)


def _with_patients(stays: Frame, rng: np.random.Generator) -> Frame:
    """Patients, and who comes back: a second stay is the year after a sound first one."""
    n = len(stays)
    patient = np.array([f"simulated-{number:06d}" for number in range(n)], dtype=object)
    year = np.full(n, 2014)
    again = np.flatnonzero(stays["flaw"] == "first_stay")
    first = rng.choice(np.flatnonzero(stays["flaw"].isna()), again.size, replace=False)
    patient[again], year[again] = patient[first], 2015
    in_unit = stays["died"] & (rng.random(n) < 0.6)
    in_hospital = stays["died"] | (stays["flaw"] == "death")
    fated = ~stays["flaw"].isin(["short", "death", "label", "status"])
    return stays.assign(
        patient=patient,
        year=year,
        died_in_unit=in_unit & fated,
        died_in_hospital=(in_hospital & fated) | (stays["flaw"] == "death"),
    )
