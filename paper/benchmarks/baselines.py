"""Table 2 of the paper's supplement: Adult without budgets, accuracy of q-FFL, AFL and ours.

`python paper/benchmarks/baselines.py`: original split, all 99 features, five random starts (a
linear layer's customary one), test rows; mean and standard deviation over starts in per cent. The
paper took the figures of q-FFL and AFL from the q-FFL paper, whose model has two outputs: a step of
.1 there moves the logit's parameters as a step of .2 does here.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcfl import SQP, Difference, TwoStage
from fcfl._types import Point, Reports, Request, Vector
from fcfl.client.counts import count_rows
from fcfl.data import Columns, FederatedTable, federate
from fcfl.data.builtin import GROUPS, adult_schema, load_adult_frames
from fcfl.federation.loop import Progress, run
from fcfl.methods.baselines import AFL, QFFL, FedAvg
from fcfl.models.linear import linear_logits
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import Problem, build_problem
from fcfl.rules import rates_needed
from fcfl_paper.baselines import MMPF

SEEDS = range(5)
PAPER = {"q-FFL": "82.3  74.4 ± 0.9  82.4", "AFL": "82.5  73.0 ± 2.2  82.6",
         "FCFL": "82.7  74.9 ± 0.4  82.8"}  # fmt: skip
SETTINGS: dict[str, tuple[Any, float]] = {
    "q-ffl, q 5, step .1": (QFFL(), 0.0),
    "q-ffl, q 5, step .2": (QFFL(step_size=0.2), 0.0),
    "q-ffl, q 10, step .2": (QFFL(q=10.0, step_size=0.2), 0.0),
    "afl, steps .1": (AFL(), 0.0),
    "afl, steps .2 and .1": (AFL(step_size=0.2), 0.0),
    "afl, steps .2 and .1, 6000 rounds": (AFL(step_size=0.2, rounds=6000), 0.0),
    "afl, mixture never applied, step .2": (AFL(step_size=0.2, weight_step=1e-300), 0.0),
    "the same, last iterate": (QFFL(q=0.0, step_size=0.2), 0.0),
    "mmpf": (MMPF(), 0.0),
    "fedavg": (FedAvg(), 0.0),
    "two-stage, as published, step .13": (TwoStage.published(0.13, rounds=(800, 1000)), 0.0),
    "sqp, max, l2 0": (SQP(rounds=(200, 200)), 0.0),
    "sqp, max, l2 .01": (SQP(rounds=(200, 200)), 1e-2),
    "sqp, objective 1, l2 .003": (SQP(1.0), 3e-3),
}


@dataclass(frozen=True)
class InProcess:
    """A runtime whose clients are rows in memory."""

    clients: Mapping[str, Any]

    def evaluate(self, request: Request) -> Reports:
        """Return every client's reports on every point of the request."""
        return {
            name: tuple(client.report(point) for point in request.points)
            for name, client in self.clients.items()
        }


def adult_with_everything() -> FederatedTable:
    """Adult with the race columns kept: nothing was deleted where nothing was constrained."""
    frames = []
    for frame in load_adult_frames():
        group = np.where(frame["race"] == "White", *GROUPS["race"])
        client = np.where(frame["education"] == "Doctorate", "phd", "non-phd")
        frames.append(frame.assign(group=group, client=client))
    return federate(
        frames[0],
        Columns("client", "income", ("group",)),
        test_frame=frames[1],
        schema=adult_schema(),
        levels={"group": GROUPS["race"]},
        labels=("<=50K", ">50K"),
    )


def customary_start(n_params: int, seed: int) -> Vector:
    spread = 1.0 / np.sqrt(n_params - 1)
    return np.random.default_rng(seed).uniform(-spread, spread, n_params)


def trained(method: Any, problem: Problem, runtime: InProcess, start: Vector) -> tuple[Vector, int]:
    progress: Progress[Any] = Progress(method.init(start, problem))
    for reached, _ in run(method, progress, runtime):
        progress = reached
    return progress.state.params, sum(progress.state.rounds)


def accuracies(federation: FederatedTable, params: Vector) -> list[float]:
    """Of all test rows, then of each client's, in per cent."""
    right, rows = [], []
    for data in federation.test.values():
        counts = count_rows(linear_logits(data.X, params), data, (), 0.0)
        right.append(counts.true_negative + counts.true_positive)
        rows.append(counts.n_rows)
    every = [(sum(right), sum(rows)), *zip(right, rows, strict=True)]
    return [100.0 * hits / n for hits, n in every]


def main() -> int:
    federation = adult_with_everything()
    rules = [Difference("demographic_parity", "group")]
    rates = rates_needed(rules, federation.levels)
    runtime = InProcess({c: linear_rows(c, d, rates) for c, d in federation.train.items()})
    n_params = federation.schema.n_features + 1
    counted = runtime.evaluate(Request((Point(np.zeros(n_params)),)))
    names = ["all", *federation.test]
    print(f"{'':36}" + "".join(f"{name:>16}" for name in names)
          + f"{'rounds':>9}{'train losses':>18}")  # fmt: skip
    for name, (method, l2) in SETTINGS.items():
        problem, _ = build_problem(rules, rates, counted, l2=l2)
        found, rounds, losses = [], [], []
        for seed in SEEDS:
            params, taken = trained(method, problem, runtime, customary_start(n_params, seed))
            found.append(accuracies(federation, params))
            rounds.append(taken)
            reports = runtime.evaluate(Request((Point(params),)))
            losses.append([reports[c][0].loss for c in problem.clients])
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
        cells = "".join(f"{m:9.1f} ± {s:4.1f}" for m, s in zip(mean, spread, strict=True))
        loss = ", ".join(f"{value:.3f}" for value in np.mean(losses, axis=0))
        print(f"{name:36}{cells}{np.mean(rounds):9.0f}{loss:>18}", flush=True)
    print("\npaper, all / phd / non-phd: "
          + "; ".join(f"{name} {told}" for name, told in PAPER.items()))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
