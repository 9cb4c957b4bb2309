"""What many sites that keep their rows cost in messages: seconds and bytes.

`python -m benchmarks.many_sites` takes fifty simulated sites through the messages in one process.
Exits 1 unless the model is that of one process to 1e-9 and takes at most 40 rounds.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.open_site import open_site
from fcfl.data import load_adult_frames
from fcfl.models.linear import load_model
from fcfl.results import read_result
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.site_run import run_sites
from fcfl.sites.transport import InProcessTransport

TOLERANCE = 1e-9
MOST_ROUNDS = 40
SETTINGS = {"label": "label", "sensitive": "group", "budget": "0.05"}


def simulated(n_sites: int, rows: int = 400) -> pd.DataFrame:
    """Sites of equal size whose groups and labels lean a little, with six features."""
    rng = np.random.default_rng(0)
    n_rows = n_sites * rows
    frame = pd.DataFrame(rng.standard_normal((n_rows, 5)).round(3), columns=[*"vwxyz"])
    frame["kind"] = rng.choice(["a", "b", "c"], n_rows)
    frame["group"] = rng.choice(["left", "right"], n_rows)
    logit = frame["v"] - 0.5 * frame["w"] + 0.4 * (frame["group"] == "left")
    frame["label"] = (logit + rng.logistic(size=n_rows) > 0).astype(int)
    frame["site"] = np.repeat([f"site-{k:02d}" for k in range(n_sites)], rows)
    return frame


def adult() -> pd.DataFrame:
    """Both original files, categories only, race in two groups; doctorates and everybody else."""
    frame = pd.concat(load_adult_frames(), ignore_index=True).select_dtypes(exclude="number")
    frame["race"] = np.where(frame["race"] == "White", "White", "Non-White")
    frame["site"] = np.where(frame["education"] == "Doctorate", "phd", "non-phd")
    return frame.rename(columns={"income": "label", "race": "group"})


def write_tables(frame: pd.DataFrame, folder: Path) -> dict[str, Path]:
    """Every site's own table, and all of them in one."""
    frame.to_csv(folder / "joined.csv", index=False)
    files = {}
    for name, rows in frame.groupby("site"):
        files[str(name)] = folder / f"{name}.csv"
        rows.drop(columns="site").to_csv(files[str(name)], index=False)
    return files


def in_one_process(folder: Path) -> None:
    experiment = Experiment(
        table=str(folder / "joined.csv"), client="site", label="label", sensitive=("group",),
        budget=0.05, l2=0.003, objective=10.0,
    )  # fmt: skip
    run_experiment(experiment, folder / "reference")


def by_letters(folder: Path, files: Mapping[str, Path]) -> None:
    transport = InProcessTransport(
        {
            number: open_site(name, path, folder / "cache" / name)
            for number, (name, path) in enumerate(files.items())
        }
    )
    config = {"sites": ",".join(files), "out": str(folder / "out"), **SETTINGS}
    run_sites(transport, config, on_message=lambda sentence: None)


def show(folder: Path) -> bool:
    """Print what the run cost; whether it is the model of one process in few rounds."""
    result = read_result(folder / "out" / "result.json")
    ours, other = (load_model(folder / place).params for place in ("out", "reference"))
    apart = float(np.abs(ours - other).max())
    rounds, section = result.n_rounds, result.deployment
    print(f"  {result.status}: {rounds} rounds, {result.exchanges.total} exchanges in all")
    print(f"  {result.seconds:.1f} s, {result.seconds / result.exchanges.total:.2f} s each")
    print(f"  {section.bytes_from_sites:,} bytes from sites, {section.bytes_to_sites:,} to")
    print(f"  largest difference from the model of one process: {apart:.1e}")
    return apart <= TOLERANCE and rounds <= MOST_ROUNDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_sites", description=__doc__)
    parser.add_argument("sites", nargs="?", type=int, default=50, help="how many; default 50")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        frame = simulated(options.sites)
        files = write_tables(frame, folder)
        in_one_process(folder)
        print(f"{len(files)} sites, {len(frame):,} rows")
        by_letters(folder, files)
        holds = show(folder)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
