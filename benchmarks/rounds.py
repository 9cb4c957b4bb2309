"""Rounds to the constrained min-max optimum: the fast method beside the paper's, one run.

`python -m benchmarks.rounds`: Adult, race, budget .05, l2 1e-3, zero start, same clients. A round
is one exchange with all clients, whatever it carries. The KKT residual is that of the min-max
problem at the end of stage 1, measured alike for all methods. Then the lowest worst loss reached by
each round at a point that keeps the budgets to 1e-4. Exits 1 unless the fast method with exact
curvature is at KKT 1e-6 within 15 rounds, and lower than the paper's method ever comes.
"""

import sys
import time
from typing import Any

import numpy as np

from benchmarks.in_process import InProcess
from fcfl import SQP, Difference, TwoStage
from fcfl._types import Point, Request, Vector
from fcfl.data import adult
from fcfl.federation.loop import Progress, run
from fcfl.methods.sqp.curvature import no_memory
from fcfl.methods.sqp.subproblem import Target, kkt_residual, solve_step
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import Problem, build_problem, evaluate_point
from fcfl.rules import rates_needed

METHODS: dict[str, Any] = {
    "sqp, exact curvature": SQP(),
    "sqp, L-BFGS": SQP(curvature="lbfgs"),
    "two-stage, as written": TwoStage(),
    "two-stage, as published": TwoStage.published(0.03),
}
EXACT, *_ = METHODS
MARKS = (5, 10, 15, 25, 50, 100, 200, 400, 800, 1500, 2300)


def residual(problem: Problem, runtime: InProcess, params: Vector) -> float:
    """KKT residual of the min-max problem: the smallest under any multipliers of a short step."""
    reports = runtime.evaluate(Request((Point(params, "gradients"),)))
    at = evaluate_point(problem, params, reports)
    target = Target(None, np.zeros(0))
    steps = [solve_step(at, target, no_memory(params.size, 10.0**k), 1e3) for k in range(-3, 4)]
    return min(kkt_residual(at, target, step) for step in steps)


def reached(method: Any, problem: Problem, runtime: InProcess) -> dict[str, Any]:
    """One run: rounds, seconds, both losses, KKT after stage 1, best worst loss by round."""
    start = np.zeros(next(iter(runtime.clients.values())).n_params)  # type: ignore[attr-defined]
    best, by_round, after_stage_1 = np.inf, [], start
    began = time.perf_counter()
    for progress, info in run(method, Progress(method.init(start, problem)), runtime):
        state = progress.state
        if info.stage == 1:
            after_stage_1 = state.params
        if info.largest_violation <= 1e-4:
            best = min(best, info.worst_loss)
        by_round.append(best)
    seconds = time.perf_counter() - began
    reports = runtime.evaluate(Request((Point(state.params),)))
    return {
        "rounds": state.rounds,
        "seconds": seconds,
        "sent": progress.tally.bytes_from_clients / 1e6,
        "end": evaluate_point(problem, state.params, reports),
        "kkt": residual(problem, runtime, after_stage_1),
        "best": by_round,
    }


def main() -> int:
    federation = adult(("race",))
    rules = [Difference("demographic_parity", "race", 0.05)]
    rates = rates_needed(rules, federation.levels)
    runtime = InProcess({c: linear_rows(c, d, rates) for c, d in federation.train.items()})
    counted = runtime.evaluate(Request((Point(np.zeros(federation.schema.n_features + 1)),)))
    problem, _ = build_problem(rules, rates, counted, l2=1e-3)
    print(f"{'method':26}{'rounds':>12}{'KKT':>9}{'worst loss':>12}{'mean loss':>11}"
          f"{'violation':>11}{'MB sent':>9}{'seconds':>9}")  # fmt: skip
    runs = {}
    for name, method in METHODS.items():
        found = runs[name] = reached(method, problem, runtime)
        rounds, end = " + ".join(map(str, found["rounds"])), found["end"]
        print(f"{name:26}{rounds:>12}{found['kkt']:9.0e}{end.losses.max():12.4f}"
              f"{end.losses.mean():11.4f}{end.largest_violation:11.1e}{found['sent']:9.1f}"
              f"{found['seconds']:9.2f}")  # fmt: skip
    print(f"\n{'worst loss by round':>26}" + "".join(f"{mark:>8}" for mark in MARKS))
    for name, found in runs.items():
        best = found["best"]
        cells = [f"{best[mark - 1]:8.4f}" if mark <= len(best) else f"{'':8}" for mark in MARKS]
        print(f"{name:26}" + "".join(cells))
    exact = runs.pop(EXACT)
    others = [found["best"][-1] for name, found in runs.items() if name.startswith("two-stage")]
    holds = exact["kkt"] <= 1e-6 and exact["rounds"][0] <= 15 and exact["best"][-1] <= min(others)
    print("claim (KKT 1e-6 within 15 rounds, lower than the paper's method ever comes): "
          f"{'holds' if holds else 'DOES NOT HOLD'}")  # fmt: skip
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
