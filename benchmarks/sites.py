"""Adult over two real sites with TLS, settings chosen at the sites: what each engine takes.

`python -m benchmarks.sites nvflare` (or `flower`, or both by default) trains race at a budget of
.05 with `--objective auto --l2 auto` over two processes on 127.0.0.1, and in one process. Exits 1
unless the chosen settings and the parameters are the same to the bit.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.flower import adult, write_tables
from fcfl.models.saved_model import load_model
from fcfl.results import Result, read_result
from fcfl.runs import Experiment, run_experiment

SETTINGS = {
    "label": "label", "sensitive": "group", "budget": "0.05", "l2": "auto", "objective": "auto",
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a run over real sites took: seconds in all, and of the run itself."""

    seconds: float
    result: Result


def over_nvflare(folder: Path, files: Mapping[str, Path]) -> Cost:
    """Kits, a server and the sites as processes, as `fcfl nvflare up` starts them."""
    from fcfl.federation.nvflare.flare_rehearsal import rehearse_flare
    from fcfl.federation.rehearsal_files import node_configs

    out = folder / "nvflare" / "out"
    config = {"sites": ",".join(files), "out": str(out), **SETTINGS}
    began = time.monotonic()
    rehearse_flare(folder / "nvflare", node_configs(files, {}, folder), config, _say)
    return Cost(time.monotonic() - began, read_result(out / "result.json"))


ENGINES: Mapping[str, Callable[[Path, Mapping[str, Path]], Cost]] = {"nvflare": over_nvflare}


def _say(sentence: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')}  {sentence}", flush=True)


def in_one_process(folder: Path) -> float:
    began = time.monotonic()
    experiment = Experiment(
        table=str(folder / "joined.csv"), client="site", label="label", sensitive=("group",),
        budget=0.05, l2="auto", objective="auto",
    )  # fmt: skip
    run_experiment(experiment, folder / "reference")
    return time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sites", description=__doc__)
    parser.add_argument("engines", nargs="*", choices=[[], *ENGINES], help="which; all by default")
    names = parser.parse_args().engines or list(ENGINES)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = write_tables(adult(), folder)
        seconds = in_one_process(folder)
        one = read_result(folder / "reference" / "result.json")
        params = load_model(folder / "reference").params
        rows = [f"one process | | {seconds:.1f} | | | {one.l2:g}, {one.objective} |"]
        holds = True
        for name in names:
            cost = ENGINES[name](folder, files)
            same = (
                np.array_equal(load_model(folder / name / "out").params, params)
                and (cost.result.l2, cost.result.objective) == (one.l2, one.objective)
            )  # fmt: skip
            holds &= same
            rows.append(_row(name, cost, same))
    print("\n| | exchanges | seconds in all | of the run | per exchange | l2, objective | bits |")
    print("\n".join(f"| {row}" for row in rows))
    return int(not holds)


def _row(name: str, cost: Cost, same: bool) -> str:
    result = cost.result
    exchanges = result.deployment.exchanges
    parts = (
        name, exchanges, f"{cost.seconds:.1f}", f"{result.seconds:.1f}",
        f"{result.seconds / exchanges:.2f}", f"{result.l2:g}, {result.objective}",
        "the same" if same else "DIFFER",
    )  # fmt: skip
    return " | ".join(map(str, parts)) + " |"


if __name__ == "__main__":
    sys.exit(main())
