"""Simulated tables in the schema of eICU: no patient is behind any row."""

import gzip
import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from fcfl._types import Vector
from fcfl.errors import DataError

from .stays import DAY
from .tables import Frame, OnProgress

Random = np.random.Generator
REGIONS = ("Midwest", "South", "West", "Northeast", None)
FIRST_HOSPITAL = 101
EFFECT = {"los7": 0.8, "mortality": 0.9}  # of severity, in log-odds
_DATA: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "simulated.toml").read_text(encoding="utf-8")
)
FLAWS: dict[str, int] = _DATA["flaws"]
COLUMNS: dict[str, list[str]] = _DATA["columns"]


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
        """Return one row per hospital."""
        return pd.DataFrame({name: getattr(self, name) for name in self.__slots__})


def truth(hospitals: int, stays: int) -> Truth:
    """Return the differences between hospitals; one more is too small to be a client."""
    share = np.linspace(0, 1, hospitals + 1)
    turned = np.roll(share, hospitals // 2)  # so that the differences do not go hand in hand
    sizes = np.array([stays] * hospitals + [max(stays // 20, 2)])
    gap, los7, mortality = 0.2 + 0.8 * turned, -1.4 + 0.9 * turned[::-1], -3.0 + 0.8 * share
    names = FIRST_HOSPITAL + np.arange(hospitals + 1)
    return Truth(names, sizes, 0.92 - 0.37 * share, gap, los7, mortality)


def draw_stays(known: Truth, rng: Random) -> Frame:
    """Draw one row per stay: who, how ill, when, how it ended, and its flaw if it has one."""
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


def _drawn(log_odds: Vector, rng: Random) -> NDArray[np.bool_]:
    return rng.random(log_odds.size) < 1 / (1 + np.exp(-log_odds))


def _flaws(sizes: NDArray[np.int64], rng: Random) -> NDArray[np.object_]:
    """Draw each flaw at least once in every large hospital; none in the small one."""
    parts = []
    for size in sizes[:-1]:
        counts = [max(int(size) // each, 1) for each in FLAWS.values()]
        names = np.repeat(np.array(list(FLAWS), dtype=object), counts)[: int(size) // 2]
        sound = np.full(int(size) - names.size, None, dtype=object)
        parts.append(rng.permutation(np.concatenate([names, sound])))
    return np.concatenate([*parts, np.full(int(sizes[-1]), None, dtype=object)])


def _with_times(stays: Frame, rng: Random) -> Frame:
    """Add minutes from unit admission; a sound stay is charted for over a day."""
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


def _with_patients(stays: Frame, rng: Random) -> Frame:
    """Add patients; a second stay is the year after a sound first one."""
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


@dataclass(frozen=True, slots=True)
class Typical:
    """A typical value, its change per unit of severity, its spread, and its digits."""

    value: float
    slope: float
    spread: float
    digits: int = 0

    def draw(self, severity: Vector, rng: Random) -> Vector:
        """Return one value for each severity."""
        values = self.value + self.slope * severity + self.spread * rng.normal(size=severity.size)
        # Nothing measured here is negative but base excess, whose typical value is.
        return np.round(values if self.value < 0 else np.maximum(values, 0), self.digits)


_LARGEST = {"O2 Saturation": 100.0, "GCS Total": 15.0}
_SMALLEST = {"GCS Total": 3.0}
_URINE = "flowsheet|Flowsheet Cell Labels|I&O|Output (ml)|Urine"


def charting(stays: Frame, rng: Random) -> Iterator[Frame]:
    """Yield one channel after another, so that the rows of a stay lie apart."""
    lined = stays[rng.random(len(stays)) < 0.2]
    for label, name, typical, step in _DATA["charting"]["rows"]:
        some = lined if label == "Invasive BP" else stays
        hours = np.arange(0, 25, step)
        if name == "Heart Rate":
            some = some[some["flaw"] != "heart_rate"]
            for edge in ("start", "end"):
                yield _rows(label, name, some, some[edge].to_numpy(), Typical(*typical), rng, 0.5)
        minute = some["start"].to_numpy()[:, None] + 60 * hours + rng.integers(1, 55, hours.size)
        row, column = np.nonzero(minute < some["end"].to_numpy()[:, None])
        yield _rows(label, name, some.iloc[row], minute[row, column], Typical(*typical), rng)


def _rows(
    label: str, name: str, stays: Frame, minute: Vector, typical: Typical, rng: Random,
    no_words: float = 0.0,
) -> Frame:  # fmt: skip
    """Return rows of one channel; now and then a value out of range or a word instead of one."""
    values = typical.draw(stays["severity"].to_numpy(), rng)
    values = np.clip(values, _SMALLEST.get(name, 0.0), _LARGEST.get(name, np.inf))
    text = np.char.mod(f"%.{typical.digits}f", values)
    chance = rng.random(values.size) + no_words
    text = np.where(chance < 0.004, "999", text)
    if not no_words:
        text = np.where(chance > 0.998, "unable to obtain", text)
    offsets = minute.astype(np.int64)
    kind = "Scores" if name == "GCS Total" else "Vital Signs"
    cells = (stays["stay"].to_numpy(), offsets, offsets, kind, label, name, text)
    return pd.DataFrame(dict(zip(COLUMNS["nurseCharting"][1:], cells, strict=True)))


def labs(stays: Frame, rng: Random) -> Iterator[Frame]:
    """Yield panels, up to three a stay, often one before the unit; a few out of range."""
    for panel in _DATA["panels"]:
        for low, high in ((-600, 0), (30, 600), (700, 1400)):
            some = stays[rng.random(len(stays)) < panel["share"]]
            minute = some["start"].to_numpy() + rng.integers(low, high, len(some))
            for name, typical in panel["labs"].items():
                values = Typical(*typical).draw(some["severity"].to_numpy(), rng)
                values = np.where(rng.random(values.size) < 0.003, 99999.0, values)
                cells = {"labresultoffset": minute, "labtypeid": 1, "labname": name}
                cells |= {"labresult": values, "labresulttext": values}
                cells |= {"labresultrevisedoffset": minute + 30}
                yield pd.DataFrame({"patientunitstayid": some["stay"].to_numpy(), **cells})


def urine(stays: Frame, rng: Random) -> Frame:
    """Return a volume every four hours."""
    parts = []
    for hour in range(2, 24, 4):
        volume = Typical(260, -30, 90).draw(stays["severity"].to_numpy(), rng)
        minute = stays["start"] + 60 * hour + rng.integers(0, 50, len(stays))
        rows = {"patientunitstayid": stays["stay"], "intakeoutputoffset": minute}
        rows |= {"cellpath": _URINE, "celllabel": "Urine"}
        rows |= dict.fromkeys(("outputtotal", "cellvaluenumeric", "cellvaluetext"), volume)
        parts.append(pd.DataFrame(rows))
    return pd.concat(parts)


def make_tables(stays: Frame, rng: Random) -> Iterator[tuple[str, Frame]]:
    """Yield (table, some of its rows); columns that are never read are left empty."""
    yield "patient", _patient(stays)
    yield "hospital", _hospital(stays)
    yield "apacheApsVar", _aps(stays, rng)
    yield "apachePredVar", _predictors(stays, rng)
    yield "apachePatientResult", _results(stays)
    yield "carePlanGeneral", _care_plans(stays)
    yield from (("nurseCharting", part) for part in charting(stays, rng))
    yield from (("lab", part) for part in labs(stays, rng))
    yield "intakeOutput", urine(stays, rng)


def _patient(stays: Frame) -> Frame:
    flaw = stays["flaw"]
    unit = np.where(stays["died_in_unit"], "Expired", "Alive")
    hospital = np.where(stays["died_in_hospital"], "Expired", "Alive")
    age = np.where(stays["age"] > 89, "> 89", stays["age"].astype(int).astype(str))
    return pd.DataFrame(
        {
            "patientunitstayid": stays["stay"],
            "patienthealthsystemstayid": stays["stay"] + 5_000_000,
            "gender": stays["gender"].mask(flaw == "gender"),
            "age": np.where(flaw == "age", "12", age),
            "ethnicity": stays["ethnicity"].mask(flaw == "race"),
            "hospitalid": stays["hospital"],
            "hospitaladmitoffset": stays["admitted"],
            "hospitaldischargeyear": stays["year"],
            "hospitaldischargeoffset": stays["left"].astype("Int64").mask(flaw == "label"),
            "hospitaldischargestatus": pd.Series(hospital).mask(flaw == "status"),
            "unittype": np.where(flaw == "unit", "Step-Down Unit", "Med-Surg ICU"),
            "unitvisitnumber": 1,
            "unitdischargeoffset": (stays["end"] + 15).astype(int),
            "unitdischargestatus": pd.Series(unit).mask(flaw == "status"),
            "uniquepid": stays["patient"],
        }
    )


def _hospital(stays: Frame) -> Frame:
    ids = np.unique(stays["hospital"])
    regions = [REGIONS[number % len(REGIONS)] for number in range(ids.size)]
    return pd.DataFrame({"hospitalid": ids, "region": regions})


def _aps(stays: Frame, rng: Random) -> Frame:
    n, severity = len(stays), stays["severity"].to_numpy()
    columns = {
        name: np.where(rng.random(n) < 0.15, -1.0, Typical(*typical).draw(severity, rng))
        for name, typical in _DATA["worst"].items()
    }
    ventilated = (rng.random(n) < 1 / (1 + np.exp(1.5 - severity))).astype(int)
    fixed = {"dialysis": 0, "motor": 6, "verbal": 5, "meds": 0}
    fixed |= {"intubated": ventilated, "vent": ventilated, "eyes": 4 - (severity > 1.5)}
    return pd.DataFrame({"patientunitstayid": stays["stay"], **fixed, **columns})


def _predictors(stays: Frame, rng: Random) -> Frame:
    n = len(stays)
    columns = {name: (rng.random(n) < rate).astype(int) for name, rate in _DATA["rates"].items()}
    elective = pd.Series((rng.random(n) < 0.15).astype("int64"), dtype="Int64")
    surgery = elective.mask(rng.random(n) < 0.5)
    return pd.DataFrame({"patientunitstayid": stays["stay"], "electivesurgery": surgery, **columns})


def _results(stays: Frame) -> Frame:
    score = np.clip((50 + 18 * stays["severity"]).round(), 5, 160).astype(int)
    predicted = (1 / (1 + np.exp(2.6 - 0.9 * stays["severity"]))).round(4)
    predicted = predicted.mask(stays["flaw"] == "apache", -1)
    columns = {"acutephysiologyscore": np.maximum(score - 12, 0), "apachescore": score}
    columns |= {"predictedhospitalmortality": predicted}
    version = pd.DataFrame({"patientunitstayid": stays["stay"], **columns})
    return pd.concat([version.assign(apacheversion=name) for name in ("IV", "IVa")])


def _care_plans(stays: Frame) -> Frame:
    names = ["patientunitstayid", "cplitemoffset"]
    full = pd.DataFrame(dict(zip(names, (stays["stay"], stays["start"] + 20), strict=True)))
    limited = stays[stays["limit"].notna()]
    found = (limited["stay"], limited["limit"].astype(int))
    limits = pd.DataFrame(dict(zip(names, found, strict=True)))
    words = np.resize(["Do not resuscitate", "Comfort measures only"], len(limited))
    full, limits = full.assign(cplitemvalue="Full therapy"), limits.assign(cplitemvalue=words)
    return pd.concat([full, limits]).assign(cplgroup="Care Limitation")


README = "README.md"
_TITLE = "# Simulated tables in the schema of eICU"
_FEWEST_STAYS = 2 * len(FLAWS)
_NO_HEADER = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")


def simulate(
    folder: Path,
    hospitals: int = 11,
    stays: int = 2000,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> dict[str, int]:
    """Write simulated tables and return the rows of each; the same arguments give the same bytes.

    ``folder`` is created if missing and must not hold other files. Of ``hospitals`` with ``stays``
    each, one more is written that is too small to be a client.
    """
    check_size(hospitals, stays)
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = truth(hospitals, stays)
    (folder / README).write_text(_page(known, seed), encoding="utf-8")
    rng = np.random.default_rng(seed)
    made = make_tables(draw_stays(known, rng), rng)
    rows: dict[str, int] = {}
    for name, parts in groupby(made, key=itemgetter(0)):
        rows[name] = _write_table(folder, name, (part for _, part in parts))
        if on_progress:
            on_progress(name, len(rows) / len(COLUMNS))
    return rows


def check_size(hospitals: int, stays: int) -> None:
    """Raise `ValueError` if a cohort rule would have no stays to remove."""
    for name, value, fewest in (("hospitals", hospitals, 1), ("stays", stays, _FEWEST_STAYS)):
        if value < fewest:
            raise ValueError(f"`{name}` must be at least {fewest}, got {value!r}.")


def _write_table(folder: Path, name: str, parts: Iterable[Frame]) -> int:
    """Write a table part by part to a draft that is renamed when it is complete."""
    path, draft = folder / f"{name}.csv.gz", folder / f".draft-{name}"
    columns = COLUMNS[name]
    rows = 0
    try:
        # No time stamp: the same arguments give the same bytes.
        with (
            open(draft, "wb") as raw,
            gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as file,
        ):
            file.write((",".join(columns) + "\n").encode())
            for part in parts:
                arrow_csv.write_csv(_published(part, columns, rows), file, _NO_HEADER)
                rows += len(part)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return rows


def _published(part: Frame, columns: list[str], rows_before: int) -> Any:
    """Return all columns of a table: the first one numbers the rows, absent ones are empty."""
    numbers = np.arange(rows_before + 1, rows_before + len(part) + 1)
    filled = {columns[0]: numbers} | {name: part[name] for name in part.columns}
    empty = pa.nulls(len(part), pa.string())
    arrays = [pa.Array.from_pandas(filled[name]) if name in filled else empty for name in columns]
    return pa.Table.from_arrays(arrays, columns)


def _check_folder(folder: Path) -> None:
    """Never write among files that may be real tables."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"Simulated tables need a folder, got the file {str(folder)!r}.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    page = folder / README
    if not (page.is_file() and page.read_text(encoding="utf-8").startswith(_TITLE)):
        raise DataError(
            f"The folder {str(folder)!r} holds other files, and simulated tables must not be mixed "
            "with real ones. Name a new or an empty folder."
        )


def _page(known: Truth, seed: int) -> str:
    lines = [
        f"| {int(row.hospital)} | {int(row.stays)} | {row.caucasian:.2f} | {row.gap:.2f} | "
        f"{row.los7:.2f} | {row.mortality:.2f} |"
        for row in known.frame().itertuples()
    ]
    return (
        f"""{_TITLE}

No patient is behind any row here. A random generator (seed {seed}) wrote these tables so that every
step can be tried without the credentialed database. Figures from them say nothing about hospitals.

What is known about them: severity is normal with spread 1, mean 0 for Caucasian patients and `gap`
for all others; vital signs and labs shift with it. The log-odds of a hospital stay above 7 days are
`los7` + {EFFECT["los7"]} × severity, of death `mortality` + {EFFECT["mortality"]} × severity.
Some stays have one flaw each, so that every cohort rule removes stays of its own. The last hospital
is too small to be a client.

| hospital | stays | share Caucasian | gap | los7 | mortality |
| --- | --- | --- | --- | --- | --- |
"""
        + "\n".join(lines)
        + "\n"
    )
