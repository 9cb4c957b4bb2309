"""How fast nurseCharting is read, and in how much memory, at two sizes of the same file.

`python paper/benchmarks/eicu.py [ROWS]` (default 5,000,000): writes simulated rows of 20,000 stays,
two in five of them needed, in random order, then reads them in processes of their own: our two
passes (times of stays, then hours of day one), and pandas' chunked reader doing the first pass.
Last, the arrays of all 70,128 stays of the published cohort, at their full size. Exits 1 unless the
peak memory of our passes at the full size is below 1.1 times that at a fifth of it, and all below 8
GB.
"""

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from fcfl_paper.eicu.events import (
    CHARTING,
    DAY_ONE,
    LAB,
    WITH_LOOK_BACK,
    charted_hours,
    hour_sums,
    lab_hours,
    read_events,
    summaries,
)
from fcfl_paper.eicu.simulate import COLUMNS
from fcfl_paper.eicu.stays import heart_rate_span
from fcfl_paper.eicu.tables import find_tables

STAYS, PUBLISHED, FULL_ROWS = 20_000, 70_128, 150_000_000
NEEDED = (
    ("Heart Rate", "Heart Rate"), ("Respiratory Rate", "Respiratory Rate"),
    ("O2 Saturation", "O2 Saturation"), ("Non-Invasive BP", "Non-Invasive BP Systolic"),
    ("Non-Invasive BP", "Non-Invasive BP Diastolic"), ("Non-Invasive BP", "Non-Invasive BP Mean"),
    ("Invasive BP", "Invasive BP Mean"), ("Temperature", "Temperature (C)"),
)  # fmt: skip
OTHERS = tuple((f"Observation {k}", "Value") for k in range(12))


def write_rows(folder: Path, n_rows: int, part: int = 500_000) -> int:
    """A packed nurseCharting of rows in random order."""
    rng = np.random.default_rng(0)
    labels = np.array([*NEEDED, *OTHERS])
    names = COLUMNS["nurseCharting"]
    options = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
    with gzip.open(folder / "nurseCharting.csv.gz", "wb", compresslevel=1) as file:
        file.write((",".join(names) + "\n").encode())
        for begin in range(0, n_rows, part):
            size = min(part, n_rows - begin)
            which = rng.integers(0, len(labels), size)
            minute = rng.integers(0, 4 * 1440, size)
            columns = [
                np.arange(begin, begin + size), rng.integers(1, STAYS + 1, size), minute, minute,
                np.full(size, "Vital Signs"), labels[which, 0], labels[which, 1],
                rng.integers(30, 120, size).astype(str),
            ]  # fmt: skip
            table = pa.Table.from_arrays([pa.array(column) for column in columns], names)
            arrow_csv.write_csv(table, file, options)
    return n_rows


def our_first(folder: Path) -> NDArray[np.float64]:
    """Begin of each stay."""
    table = find_tables(folder, {"nurseCharting": ""})["nurseCharting"]
    stays = pd.DataFrame({"patientunitstayid": np.arange(1, STAYS + 1)})
    return heart_rate_span(table, stays).start


def our_passes(folder: Path) -> int:
    """Times of the stays, then sums by the hour."""
    start = np.nan_to_num(our_first(folder))
    table = find_tables(folder, {"nurseCharting": ""})["nurseCharting"]
    events = read_events(table, CHARTING, np.arange(1, STAYS + 1))
    hours = charted_hours(hour_sums(events, len(CHARTING.channels), start, DAY_ONE))
    return len(summaries(hours, "last"))


def pandas_pass(folder: Path) -> int:
    """The first pass alone, by pandas' chunked reader."""
    needed = ["patientunitstayid", "nursingchartoffset", *CHARTING.labels, CHARTING.value]
    first = np.full(STAYS + 1, np.inf)
    chunks = pd.read_csv(
        folder / "nurseCharting.csv.gz", usecols=needed, chunksize=100_000,
        dtype=dict.fromkeys(CHARTING.labels, "category") | {CHARTING.value: str},
    )  # fmt: skip
    for chunk in chunks:
        beats = chunk[chunk[CHARTING.labels[0]] == "Heart Rate"]
        value = pd.to_numeric(beats[CHARTING.value], errors="coerce")
        beats = beats[value.between(25, 225)]
        np.minimum.at(first, beats["patientunitstayid"], beats["nursingchartoffset"])
    return int(np.isfinite(first).sum())


def published_cohort(folder: Path) -> int:
    """Sums, means and last values of the published number of stays, every cell in use."""
    n = 0
    for source, window, read in (
        (CHARTING, DAY_ONE, charted_hours), (LAB, WITH_LOOK_BACK, lab_hours),
    ):  # fmt: skip
        sums = hour_sums([], len(source.channels), np.zeros(PUBLISHED), window)
        sums.sums.fill(90.0)
        sums.counts.fill(1)
        n += len(summaries(read(sums), "last"))
    return n


KINDS = {
    "write": write_rows,
    "ours, both passes": our_passes,
    "ours, first pass": our_first,
    "pandas, first pass": pandas_pass,
    "published": published_cohort,
}


def measured(kind: str, folder: Path, *more: str) -> dict[str, float]:
    """Seconds and peak megabytes of a process of its own; what is imported is part of it.

    A process inherits the peak of the one that starts it, so nothing large is done in this one.
    """
    command = [sys.executable, __file__, "--one", kind, str(folder), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def one(kind: str, folder: Path, *more: str) -> None:
    began, began_cpu = time.perf_counter(), time.process_time()
    KINDS[kind](folder, *map(int, more))
    told = {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - began_cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(told))


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
        return 0
    n_rows = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 5_000_000
    found = {}
    print(f"{'rows':>10}{'file MB':>9}  {'what':<20}{'seconds':>9}{'CPU s':>8}{'rows/s':>11}"
          f"{'peak MB':>9}")  # fmt: skip
    for rows in (n_rows // 5, n_rows):
        with tempfile.TemporaryDirectory() as place:
            measured("write", Path(place), str(rows))
            size = (Path(place) / "nurseCharting.csv.gz").stat().st_size / 1e6
            for kind in list(KINDS)[1:4]:
                told = found[kind, rows] = measured(kind, Path(place))
                speed = (2 if "both" in kind else 1) * rows / told["seconds"]
                print(f"{rows:10,}{size:9.0f}  {kind:<20}{told['seconds']:9.1f}{told['cpu']:8.1f}"
                      f"{speed:11,.0f}{told['peak']:9.0f}")  # fmt: skip
    most = measured("published", Path())["peak"]
    print(f"{'':21}{PUBLISHED:,} stays, every hour of every variable{'':5}{most:9.0f}")
    small, large = (found["ours, both passes", rows] for rows in (n_rows // 5, n_rows))
    minutes = large["seconds"] / n_rows * FULL_ROWS / 60
    print(f"both passes over {FULL_ROWS:,} rows at this speed: {minutes:.0f} minutes")
    holds = large["peak"] < 1.1 * small["peak"] and max(most, large["peak"]) < 8000
    print(f"claim (memory flat in file size, below 8 GB): {'holds' if holds else 'DOES NOT HOLD'}")
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
