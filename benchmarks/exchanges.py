"""Exchanges of whole runs, by phase: the ranges that a run over sites reports before it starts.

`python -m benchmarks.exchanges`: Adult's original clients, three simulated hospitals, and twelve
small ones whose comparisons are pooled, ten of each, under each kind of settings. It takes names of
kinds, too. Counts, no times.
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl.runs import Experiment, run_experiment

TABLES = 10
GIVEN = {"l2": 0.003, "objective": 10.0}  # the defaults of a run over sites
MAX = GIVEN | {"objective": "max"}
SETTINGS: dict[str, dict[str, Any]] = {
    "choosing, margins": {},
    "choosing, plain budgets": {"confidence": 0.0},
    "given, margins": GIVEN,
    "given, plain budgets": GIVEN | {"confidence": 0.0},
    "choosing, no budgets": {"budget": None},
    "given, no budgets": GIVEN | {"budget": None},
    "max, margins": MAX,
    "max, plain budgets": MAX | {"confidence": 0.0},
    "max, no budgets": MAX | {"budget": None},
}
THREE = {"a": 200, "b": 600, "c": 1800}
TWELVE = {f"site-{i:02d}": 60 + 20 * i for i in range(12)}


def main(kinds: Iterable[str] = SETTINGS) -> None:
    """Print the counts of each kind of settings, and their quantiles."""
    with tempfile.TemporaryDirectory() as place, ProcessPoolExecutor(_workers()) as pool:
        experiments = _experiments(Path(place))
        for kind in kinds:
            runs = [replace(one, **SETTINGS[kind]) for one in experiments]
            folders = [Path(place) / f"{kind}-{number}" for number in range(len(runs))]
            found = list(pool.map(_count, runs, folders))
            totals = np.array([sum(one.values()) for one in found])
            low, middle, high = np.quantile(totals, (0.05, 0.5, 0.95))
            print(f"{kind}: {totals.min()} to {totals.max()}, of {totals.size} runs")
            print(f"  quantiles .05, .5, .95: {low:.0f}, {middle:.0f}, {high:.0f}")
            for part in np.split(totals, len(runs) // TABLES):
                print(f"  {sorted(part.tolist())}")
            for phase in Counter({name for one in found for name in one}):
                counts = [one.get(phase, 0) for one in found]
                print(f"  {phase:10}{min(counts):4} to {max(counts)}", flush=True)


def _workers() -> int:
    return max(1, (os.cpu_count() or 2) // 2)


def _count(experiment: Experiment, folder: Path) -> dict[str, int]:
    return dict(run_experiment(experiment, folder).result.exchanges.by_phase)


def _experiments(folder: Path) -> list[Experiment]:
    adult = [
        Experiment("adult", sensitive=("race",), budget=0.05, resplit=True, seed=700 + seed)
        for seed in range(TABLES)
    ]
    three = [_hospitals(folder, seed, THREE) for seed in range(TABLES)]
    return adult + three + [_hospitals(folder, 100 + seed, TWELVE) for seed in range(TABLES)]


def _hospitals(folder: Path, seed: int, sizes: dict[str, int]) -> Experiment:
    """Return a run on clients of these sizes, whose groups differ."""
    random = np.random.default_rng(seed)
    lines = ["site,group,died," + ",".join(f"x{i}" for i in range(6))]
    for site, n_rows in sizes.items():
        X = random.normal(size=(n_rows, 6))
        group = random.choice(["f", "m"], n_rows)
        X[:, 0] += group == "m"
        died = X[:, :3] @ random.normal(1.0, 0.5, 3) + random.logistic(size=n_rows) > 1
        for row, who, label in zip(X, group, died, strict=True):
            lines.append(f"{site},{who},{int(label)}," + ",".join(f"{x:.4f}" for x in row))
    path = folder / f"hospitals-{seed}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Experiment(
        str(path), client="site", label="died", sensitive=("group",), budget=0.05, positive="1"
    )


if __name__ == "__main__":
    main(sys.argv[1:] or SETTINGS)
