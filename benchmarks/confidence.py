"""How often held-out disparities keep their budget, with and without `--confidence 0.9`.

`python -m benchmarks.confidence [SPLITS]`: Adult, sex, five Dirichlet clients (`adult-5`), budget
.05, random re-splits. Counted are clients with enough rows: those whose margin is below the budget.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from fcfl.runs import Experiment, run_experiment

BUDGET, CONFIDENCE = 0.05, 0.9
SETTINGS = {"table": "adult-5", "sensitive": ("sex",), "budget": BUDGET, "l2": 1e-3}


def held_out(seed: int, confidence: float | None) -> tuple[dict[str, float], set[str], float]:
    """Test disparity of each client, the clients with too few rows, and overall test accuracy."""
    experiment = Experiment(**SETTINGS, objective=10.0, confidence=confidence, seed=seed)
    told: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        result = run_experiment(experiment, Path(folder) / "run", on_message=told.append).result
    clients = result.clients
    few = {c for c in clients if any(f"Client {c!r} has too few" in note for note in told)}
    values = {c: clients[c].test.disparities[0].value for c in clients}
    return values, few, result.overall.test.accuracy


def main(n_splits: int = 50) -> int:
    within: dict[bool, list[bool]] = {False: [], True: []}
    accuracies: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(n_splits):
        plain, _, plain_accuracy = held_out(seed, None)
        careful, few, careful_accuracy = held_out(seed, CONFIDENCE)
        for is_careful, values in ((False, plain), (True, careful)):
            within[is_careful] += [values[c] <= BUDGET for c in values if c not in few]
        accuracies[False].append(plain_accuracy)
        accuracies[True].append(careful_accuracy)
    shares = {key: float(np.mean(held)) for key, held in within.items()}
    summary = {
        "splits": n_splits,
        "clients_counted": len(within[True]),
        "share_within_budget": {"without": shares[False], "with_confidence_0.9": shares[True]},
        "test_accuracy": {
            "without": float(np.mean(accuracies[False])),
            "with_confidence_0.9": float(np.mean(accuracies[True])),
        },
    }
    print(json.dumps(summary, indent=1))
    return int(shares[True] < CONFIDENCE)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
