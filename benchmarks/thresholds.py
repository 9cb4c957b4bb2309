"""What thresholds by group buy: adult-5, demographic parity by sex, budget .05, held-out rows.

`python -m benchmarks.thresholds [--quick] [--seeds N]`: five Dirichlet clients, partition and split
by seed; `l2` .001 and objective 10. Compared: one threshold for everybody and `--thresholds group`,
each with plain budgets (confidence 0) and with the default confidence. Seeds 0 and 1 were looked at
while this was written; reported are those from 100 on, two of them with `--quick`. The largest
disparity is over the clients whose two groups have enough training rows to be compared, and over
all clients; one with ten men has a disparity by chance. Published for such partitions, with other
draws of them: accuracy .828 at .027 with thresholds by group, .820 at .040 without.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcfl.results import Part
from fcfl.runs import Experiment, run_experiment

BUDGET = 0.05
FIRST_SEED = 100
SETTINGS: dict[str, Any] = {
    "table": "adult-5", "sensitive": ("sex",), "budget": BUDGET, "l2": 1e-3, "objective": 10.0,
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "one threshold, plain budget": {"confidence": 0.0},
    "one threshold, confidence .9": {"confidence": 0.9},
    "by group, plain budget": {"confidence": 0.0, "thresholds": "group"},
    "by group, confidence .9": {"confidence": 0.9, "thresholds": "group"},
}
PUBLISHED = (
    "| published, attribute-blind | .820 | .040 | | .001 | |",
    "| published, thresholds by group | .828 | .027 | | .015 | |",
)


@dataclass(frozen=True)
class Line:
    """One run on held-out rows: disparities of the clients that are compared, and of all."""

    accuracy: float
    compared: tuple[float, ...]
    every: tuple[float, ...]
    overall: float
    kept_in_training: bool
    seconds: float


def difference(part: Part) -> float:
    """Between the selection rates of both groups, however few rows they have."""
    rates = [g.selected / g.rows for g in part.disparities[0].groups if g.rows]
    return max(rates) - min(rates)


def held_out(seed: int, options: dict[str, Any]) -> Line:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(**SETTINGS, **options, seed=seed)
        done = run_experiment(experiment, Path(folder) / "run")
    tests = [client.test for client in done.result.clients.values()]
    found = [test.disparities[0].value for test in tests]
    return Line(
        done.result.overall.test.accuracy or np.nan,
        tuple(value for value in found if value is not None),
        tuple(map(difference, tests)),
        difference(done.result.overall.test),
        done.budgets_met,
        time.process_time() - began,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thresholds")
    parser.add_argument("--quick", action="store_true", help="two partitions")
    parser.add_argument("--seeds", type=int, default=5, help="how many partitions; default 5")
    options = parser.parse_args([] if arguments is None else arguments)
    seeds = range(FIRST_SEED, FIRST_SEED + (2 if options.quick else options.seeds))
    lines = {name: [held_out(seed, given) for seed in seeds] for name, given in RUNS.items()}
    print(f"adult-5 by sex, budget {BUDGET:g}, held-out rows, means over seeds {list(seeds)}")
    print("| | accuracy | largest local, compared | largest local, all | all rows together "
          "| client-splits kept |")  # fmt: skip
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, found in lines.items():
        compared = [value for line in found for value in line.compared]
        kept = sum(value <= BUDGET for value in compared)
        print(f"| {name} | {np.mean([line.accuracy for line in found]):.4f} "
              f"| {np.mean([max(line.compared) for line in found]):.3f} "
              f"| {np.mean([max(line.every) for line in found]):.3f} "
              f"| {np.mean([line.overall for line in found]):.3f} "
              f"| {kept} of {len(compared)} |")  # fmt: skip
    print(*PUBLISHED, sep="\n")
    for name, found in lines.items():
        print(f"{name}: {np.mean([line.seconds for line in found]):.1f} s of CPU a run; largest "
              f"local disparity {[round(max(line.compared), 3) for line in found]}, accuracy "
              f"{[round(line.accuracy, 4) for line in found]}")  # fmt: skip
    is_kept = all(line.kept_in_training for found in lines.values() for line in found)
    print("claim (decisions on training rows keep every budget): "
          f"{'holds' if is_kept else 'DOES NOT HOLD'}")  # fmt: skip
    by_group, blind = (
        np.mean([line.accuracy for line in lines[name]])
        for name in ("by group, confidence .9", "one threshold, confidence .9")
    )
    print(f"claim (thresholds by group are at least as accurate): {by_group:.4f} and {blind:.4f}, "
          f"{'holds' if by_group >= blind else 'DOES NOT HOLD'}")  # fmt: skip
    return int(not is_kept or bool(by_group < blind))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
