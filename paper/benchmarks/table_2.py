"""Table 2 of the supplement, with race among the columns and without.

`python paper/benchmarks/table_2.py [SEEDS]` trains the three methods of that table on Adult without
budgets on 99 columns (all eight, as in q-FFL's and AFL's papers) and on 94 (race left out, as in
the paper's runs with budgets, and in `fcfl reproduce adult-unconstrained`), and prints accuracies
on test rows beside the paper's. The paper does not say which columns its table 2 has.
"""

import sys

import numpy as np

from fcfl.data import FederatedTable, load_adult_frames
from fcfl.data.builtin import GROUPS, adult_schema
from fcfl.data.columns import Columns
from fcfl.data.table import federate
from fcfl.federation.federation import Federation
from fcfl.methods.baselines import AFL, QFFL
from fcfl.methods.two_stage import TwoStage
from fcfl.models.linear import Linear
from fcfl.results.evaluations import row_sections
from fcfl.rules import Difference
from fcfl.training.train import train

METHODS = {
    "q-FFL": (QFFL(q=5, step_size=0.1, rounds=600), (82.3, 74.4, 82.4)),
    "AFL": (AFL(step_size=0.1, rounds=600), (82.5, 73.0, 82.6)),
    "FCFL (Cui et al., 2021)": (TwoStage.published(0.13, (800, 1000)), (82.7, 74.9, 82.8)),
}


def adult_with(without: tuple[str, ...]) -> FederatedTable:
    """Adult's original split, PhD and non-PhD; the groups are known, whatever the columns are."""
    frames = []
    for frame in load_adult_frames():
        degree = np.where(frame["education"] == "Doctorate", "phd", "non-phd")
        white = np.where(frame["race"] == "White", *GROUPS["race"])
        frames.append(frame.assign(client=degree, group=white))
    return federate(
        frames[0],
        Columns("client", "income", ("group",)),
        test_frame=frames[1],
        schema=adult_schema(without),
        levels={"group": GROUPS["race"]},
        labels=("<=50K", ">50K"),
    )


def accuracies(table: FederatedTable, method: object, seed: int) -> tuple[float, float, float]:
    """Over all test rows, of PhD and of non-PhD, in per cent."""
    model = Linear(table.schema.n_features, "uniform", seed)
    trained = train(
        Federation.from_rows(table.train, table.test), model,
        [Difference("demographic_parity", "group")], method=method, l2=0.0, confidence=0, starts=1,
    )  # fmt: skip
    found = row_sections(trained.evaluations)
    parts = (found.overall.test, found.clients["phd"].test, found.clients["non-phd"].test)
    return tuple(100 * float(part.accuracy or 0.0) for part in parts)  # type: ignore[return-value]


def main(n_seeds: int = 5) -> int:
    print("method                    columns  average        PhD            non-PhD")
    for name, (method, paper) in METHODS.items():
        print(f"{name:25} paper    " + "  ".join(f"{value:<13.1f}" for value in paper))
        for without in ((), ("race",)):
            table = adult_with(without)
            runs = np.array([accuracies(table, method, seed) for seed in range(n_seeds)])
            means = zip(runs.mean(axis=0), runs.std(axis=0), strict=True)
            cells = "  ".join(f"{mean:.2f} ± {spread:.2f}".ljust(13) for mean, spread in means)
            print(f"{'':25} {table.schema.n_features:<8} {cells}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
