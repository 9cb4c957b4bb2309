"""Does the chosen setting serve the worst client on new rows? Random re-splits of Adult.

`python -m benchmarks.resplits [SPLITS]`: race, budget .05; each client's original training and test
rows are pooled and split again 67/33 per seed. Compared: `auto` (l2 and objective
cross-validated), `max` (the paper's problem, l2 1e-3) and the two-stage method with the authors'
options and settings. Every split's figures go to `benchmarks/results/resplits.json`.

`python -m benchmarks.resplits harm [SPLITS [FIRST]]`: does choosing the objective harm anybody? The
default, margins included, beside ``--objective mean`` on splits from seed FIRST (700): differences
with their paired standard errors. Exit code 1 if one is worse by more than that.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.promise_tasks import pooled_adult
from fcfl.runs import Experiment, run_experiment

PLAIN: dict[str, Any] = {"confidence": 0.0, "starts": 1}  # settings are compared, not margins
CLIENTS = ("phd", "non-phd")
RUNS: dict[str, dict[str, Any]] = {
    "auto": {},
    "max": {"l2": 1e-3, "objective": "max"},
    "two-stage, published": {
        "method": "two-stage",
        "published": True,
        "step_size": 0.03,
        "rounds": (800, 1500),
        "start": "uniform",
    },
}


def pooled_table(path: Path) -> Path:
    """All rows with the protocol's eight columns, PhD and non-PhD as clients."""
    pooled_adult("race").to_csv(path, index=False)
    return path


def held_out(table: Path, seed: int, options: dict[str, Any]) -> list[float]:
    """Test loss, accuracy, disparity and number of rows of both clients."""
    experiment = Experiment(
        str(table),
        client="client",
        label="income",
        sensitive=("race",),
        budget=0.05,
        seed=seed,
        test_size=0.33,
        **options,
    )
    with tempfile.TemporaryDirectory() as folder:
        clients = run_experiment(experiment, Path(folder) / "run").result.clients
    tests = [clients[name].test for name in CLIENTS]
    return [
        *(test.loss for test in tests),
        *(test.accuracy for test in tests),
        *(test.disparities[0].value for test in tests),
        *(clients[name].rows.test for name in CLIENTS),
    ]


RESULTS = Path(__file__).parent / "results" / "resplits.json"
FIGURES = ("loss", "accuracy", "disparity")


def keep(found: dict[str, Any]) -> None:
    """Write the figures of every split, by run, figure and client."""
    content = {
        name: {
            figure: {client: values[:, 2 * i + k].tolist() for k, client in enumerate(CLIENTS)}
            for i, figure in enumerate(FIGURES)
        }
        for name, values in found.items()
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(n_splits: int = 20) -> int:
    with tempfile.TemporaryDirectory() as folder:
        table = pooled_table(Path(folder) / "adult.csv")
        found = {
            name: np.array([held_out(table, seed, PLAIN | options) for seed in range(n_splits)])
            for name, options in RUNS.items()
        }
    keep(found)
    print(f"{n_splits} re-splits, held-out rows, mean ± sd over splits, PhD / non-PhD")
    print(
        "| | loss | accuracy | disparity | worst client's loss |\n| --- | --- | --- | --- | --- |"
    )
    worst = {}
    for name, values in found.items():
        mean, sd = values.mean(0), values.std(0)
        cells = [
            f"{mean[i]:.3f} ± {sd[i]:.3f} / {mean[i + 1]:.3f} ± {sd[i + 1]:.3f}" for i in (0, 2, 4)
        ]
        worst[name] = values[:, :2].max(axis=1).mean()
        print(f"| {name} | {' | '.join(cells)} | {worst[name]:.4f} |")
    for name in ("max", "two-stage, published"):
        apart = found["auto"][:, :2].max(axis=1) - found[name][:, :2].max(axis=1)
        error = apart.std(ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.nan
        print(f"worst client's loss, auto minus {name}: {apart.mean():+.4f} ± {error:.4f} "
              f"(standard error, paired), lower in {int((apart < 0).sum())}")  # fmt: skip
    better = found["auto"][:, 3].mean() - found["max"][:, 3].mean()
    print(f"auto's non-PhD accuracy minus max's: {better:+.4f}")
    holds = worst["auto"] <= min(worst.values()) + 1e-9 and better >= 0.01
    print("claim (worst client's loss no worse than both, non-PhD accuracy one point better): "
          f"{'holds' if holds else 'does not hold'}")  # fmt: skip
    return int(not holds)


def harm(n_splits: int = 20, first: int = 700) -> int:
    """The default minus ``--objective mean``: what cross-validating the objective changes."""
    with tempfile.TemporaryDirectory() as folder:
        table = pooled_table(Path(folder) / "adult.csv")
        default, mean = (
            np.array([held_out(table, seed, one) for seed in range(first, first + n_splits)])
            for one in ({}, {"objective": "mean"})
        )
    figures = {
        "accuracy of the worst client": lambda v: v[:, 2:4].min(axis=1),
        "accuracy of all rows": lambda v: (v[:, 2:4] * v[:, 6:]).sum(axis=1) / v[:, 6:].sum(axis=1),
        "disparity of PhD": lambda v: -v[:, 4],
        "disparity of non-PhD": lambda v: -v[:, 5],
    }
    worse = []
    for name, figure in figures.items():
        apart = figure(default) - figure(mean)
        error = apart.std(ddof=1) / np.sqrt(n_splits)
        worse += [name] if apart.mean() < -error else []
        ours, others = (abs(figure(values).mean()) for values in (default, mean))
        print(f"{name}: default {ours:.4f}, mean {others:.4f}; "
              f"better by {apart.mean():+.4f} ± {error:.4f}")  # fmt: skip
    print(f"worse by more than a standard error: {', '.join(worse) or 'nothing'}")
    return int(bool(worse))


if __name__ == "__main__":
    if sys.argv[1:2] == ["harm"]:
        sys.exit(harm(*map(int, sys.argv[2:4])))
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
