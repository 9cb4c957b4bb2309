"""Tables that runs read: Adult pooled to be split again, and eICU from whatever is available."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from fcfl.data import BUILTIN, load_adult_frames
from fcfl.errors import DataError
from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.simulation import simulate
from fcfl_paper.eicu.source_tables import Frame

SIMULATED = (11, 400)  # hospitals, stays of each
MIN_STAYS = 300  # of a hospital of the simulated tables


def pooled_adult(sensitive: str) -> Frame:
    """All rows with the paper's eight columns, clients PhD and non-PhD."""
    frame = pd.concat(load_adult_frames(), ignore_index=True)
    text = frame.select_dtypes(exclude="number").columns
    table = frame[text].assign(client=np.where(frame["education"] == "Doctorate", "phd", "non-phd"))
    if sensitive != "race":
        return table
    return table.assign(race=np.where(frame["race"] == "White", "White", "Non-White"))


def eicu_source(folder: Path | None) -> str:
    """``own`` (hospitals as clients), ``demo`` (regions) or ``simulated``, as the folder has it."""
    if folder is None:
        return "simulated"
    if not folder.is_dir():
        raise DataError(f"There is no folder {str(folder)!r} with the eICU tables.")
    names = {path.name.split(".")[0].lower() for path in folder.iterdir()}
    return "own" if {"nursecharting", "lab"} <= names else "demo"


def substitutes(eicu: Path | None) -> dict[str, str]:
    """For each eICU set that items name, the set that is available."""
    source = eicu_source(eicu)
    return {f"eicu:{label}": f"eicu:{source}:{label}" for label in ("los7", "mortality")}


def make_tables(names: Iterable[str], folder: Path, eicu: Path | None) -> dict[str, str]:
    """Write the tables that do not exist yet; for each name what a run reads."""
    found = {}
    for name in dict.fromkeys(names):
        if name in BUILTIN or name == "synthetic":
            found[name] = name
            continue
        path = folder / f"{name.replace(':', '-')}.parquet"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            _make(name, folder, eicu).to_parquet(part)
            part.replace(path)
        found[name] = str(path)
    return found


def _make(name: str, folder: Path, eicu: Path | None) -> Frame:
    if name.startswith("adult-pooled-"):
        return pooled_adult(name.removeprefix("adult-pooled-"))
    _, source, label = name.split(":")
    if source == "simulated" or eicu is None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            simulate(Path(place) / "tables", *SIMULATED, 0)
            return prepare(Path(place) / "tables", Options(label=label, min_stays=MIN_STAYS)).frame
    if source == "demo":
        return prepare(eicu, Options("apache", label, "region")).frame
    return prepare(eicu, Options(label=label)).frame
