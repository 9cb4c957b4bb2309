"""Rounds to the constrained min-max optimum: the fast method beside the paper's, one run.

`python -m benchmarks.rounds`: Adult, race, budget .05, l2 1e-3, zero start, same clients. A round
is one exchange with all clients, whatever it carries.
"""

import sys
import time
from typing import Any

import numpy as np

from fcfl import SQP, Difference, TwoStage
from fcfl._types import Point, Request
from fcfl.client.linear import linear_client
from fcfl.data import adult
from fcfl.rules import rates_needed
from fcfl.runtime.in_process import InProcess
from fcfl.runtime.loop import Progress, run
from fcfl.server.problem import evaluate_point, state_problem

METHODS: dict[str, Any] = {
    "sqp, exact curvature": SQP(),
    "sqp, L-BFGS": SQP(curvature="lbfgs"),
    "two-stage, as written": TwoStage(),
    "two-stage, as published": TwoStage.published(0.03),
}


def main() -> int:
    federation = adult(("race",))
    rules = [Difference("demographic_parity", "race", 0.05)]
    rates = rates_needed(rules, federation.levels)
    runtime = InProcess({c: linear_client(c, d, rates) for c, d in federation.train.items()})
    start = np.zeros(federation.schema.n_features + 1)
    counted = runtime.evaluate(Request((Point(start),)))
    problem, _ = state_problem(rules, rates, counted, l2=1e-3)
    print(f"{'method':26}{'rounds':>12}{'worst loss':>12}{'mean loss':>11}{'violation':>11}"
          f"{'MB sent':>9}{'seconds':>9}")  # fmt: skip
    worst = {}
    for name, method in METHODS.items():
        began = time.perf_counter()
        for progress, _ in run(method, Progress(method.init(start, problem)), runtime):
            state = progress.state
        seconds = time.perf_counter() - began
        reports = runtime.evaluate(Request((Point(state.params),)))
        end = evaluate_point(problem, state.params, reports)
        worst[name] = end.losses.max()
        rounds = " + ".join(map(str, state.rounds))
        print(f"{name:26}{rounds:>12}{end.losses.max():12.4f}{end.losses.mean():11.4f}"
              f"{end.largest_violation:11.1e}{progress.tally.bytes_from_clients / 1e6:9.1f}"
              f"{seconds:9.2f}")  # fmt: skip
    return int(worst["sqp, exact curvature"] > min(worst.values()) + 1e-3)


if __name__ == "__main__":
    sys.exit(main())
