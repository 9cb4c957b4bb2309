"""What sites that keep their rows cost: seconds, bytes and memory.

`python -m benchmarks.flower` takes fifty simulated sites through the messages in one process; with
`adult` it runs Adult's two clients, with `nodes 8` eight simulated sites, as real SuperNodes on
127.0.0.1 with TLS and node keys. Exits 1 unless the model is that of one process to 1e-9 and takes
at most 40 rounds. Memory is the sum over all processes (PSS, Linux), sampled twice a second.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.open_site import open_site
from fcfl.data import load_adult_frames
from fcfl.engines.flower.app_folder import write_app
from fcfl.engines.flower.certificates import make_certificates
from fcfl.engines.flower.local_cluster import LocalCluster
from fcfl.engines.processes import descendants
from fcfl.models.saved_model import load_model
from fcfl.results import read_result
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.site_config import config_text
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


def on_real_nodes(folder: Path, files: Mapping[str, Path]) -> tuple[float, float]:
    """Seconds from the first process to the last line, and the largest memory in MB."""
    app = folder / "app"
    config = {"sites": ",".join(files), "out": str(folder / "out"), **SETTINGS}
    write_app(app, config_text(config))
    make_certificates(app / "certs", list(files))
    began = time.monotonic()
    with (
        LocalCluster(folder / "local_cluster", app / "certs") as local_cluster,
        watched_memory(local_cluster) as most,
    ):
        local_cluster.start_superlink()
        for name, path in files.items():
            local_cluster.register(name)
            local_cluster.start_site(name, open_site(name, path, folder / "cache" / name))
        for line in local_cluster.run(app, {}):
            _, marker, sentence = line.partition("fcfl: ")
            if marker:
                print(f"  {time.monotonic() - began:6.1f} s  {sentence}", flush=True)
        return time.monotonic() - began, most[0]


@contextmanager
def watched_memory(local_cluster: LocalCluster) -> Iterator[list[float]]:
    """The largest sum of all processes' memory so far, in MB."""
    most, over = [0.0], threading.Event()

    def on_round() -> None:
        while not over.wait(0.5):
            ours = {process.pid for process in list(local_cluster.processes.values())}
            ours.update(*map(descendants, ours))
            most[0] = max(most[0], sum(map(_pss, ours)))

    watcher = threading.Thread(target=on_round, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def _pss(pid: int) -> float:
    with suppress(OSError):
        for line in (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flower", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=["messages", "adult", "nodes"], default="messages"
    )
    parser.add_argument("sites", nargs="?", type=int, help="how many: 50 by messages, 8 as nodes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        n_sites = options.sites or (50 if options.what == "messages" else 8)
        frame = adult() if options.what == "adult" else simulated(n_sites)
        files = write_tables(frame, folder)
        in_one_process(folder)
        print(f"{len(files)} sites, {len(frame):,} rows")
        if options.what == "messages":
            by_letters(folder, files)
        else:
            seconds, memory = on_real_nodes(folder, files)
            print(f"  {seconds:.1f} s with starting up; all processes together {memory:.0f} MB")
        holds = show(folder)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
