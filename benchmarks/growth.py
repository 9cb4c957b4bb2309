"""How one server step of the fast method grows with clients, parameters and budgets.

`python -m benchmarks.growth`: simulated reports (losses .5 ± .05, gradients of length about 1 with
a shared part, group rates .5 ± .02, so that about one budget in twelve is exceeded), curvature by
L-BFGS. Seconds are of CPU, so that others on the machine count for little. Memory is what the step
allocates beside the reports. Exits 1 unless 1,000 clients × 10,000
parameters take less than 2 s and less than three times the memory of the reports in all. The last
line is a case made to be hard, without a claim: long gradients that share nothing, so that a short
step serves all clients at once and nearly all of them are active.
"""

import sys
import time
import tracemalloc

import numpy as np

from fcfl import SQP, Difference
from fcfl._types import Report, Reports
from fcfl.problem import build_problem
from fcfl.rules import rates_needed


def simulated_reports(n_clients: int, n_params: int, n_groups: int, hard: bool) -> Reports:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(n_params) * (not hard)
    root = np.sqrt(n_params) / (7.0 if hard else 1.0)
    return {
        f"client-{k:04d}": (
            Report(
                100.0,
                float(rng.normal(0.5, 0.05)),
                np.full(n_groups, 50.0),
                np.clip(0.5 + rng.normal(0, 0.02, n_groups), 0, 1),
                (shared + rng.standard_normal(n_params)) / root,
                rng.standard_normal((n_groups, n_params)) / root,
            ),
        )
        for k in range(n_clients)
    }


def one_step(
    n_clients: int, n_params: int, n_groups: int, hard: bool = False
) -> tuple[float, float, float, int, int]:
    """CPU seconds, memory of the reports and beside them (MB), rows of all budgets, rows active."""
    reports = simulated_reports(n_clients, n_params, n_groups, hard)
    groups = tuple(f"group {g}" for g in range(n_groups))
    rules = [Difference("demographic_parity", "attribute", 0.05)]
    problem, _ = build_problem(rules, rates_needed(rules, {"attribute": groups}), reports)
    method = SQP(curvature="lbfgs")
    state = method.init(np.zeros(n_params), problem)
    began = time.process_time()
    after, _ = method.step(state, reports)
    seconds = time.process_time() - began
    tracemalloc.start()
    method.step(state, reports)
    beside = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    sent = sum(report.nbytes for answers in reports.values() for report in answers) / 1e6
    active = int((after.loss_weights > 1e-9).sum() + (after.row_weights > 1e-9).sum())
    return seconds, sent, beside, len(problem.constraints), active


def main() -> int:
    cases = [(n, 1_000, 2) for n in (2, 10, 100, 1_000)]
    cases += [(10, n, 2) for n in (100, 10_000, 100_000, 1_000_000)]
    cases += [(100, 1_000, g) for g in (3, 5, 10)]
    cases += [(1_000, 10_000, 2)]
    print(f"{'clients':>8}{'parameters':>12}{'budget rows':>13}{'active':>8}{'seconds':>9}"
          f"{'reports MB':>12}{'beside MB':>11}")  # fmt: skip
    for case in cases:
        seconds, sent, beside, rows, active = one_step(*case)
        show(case, rows, active, seconds, sent, beside)
    holds = seconds < 2.0 and sent + beside < 3 * sent
    print(f"claim (1,000 clients x 10,000 parameters: under 2 s, under 3x the reports' memory): "
          f"{'holds' if holds else 'DOES NOT HOLD'}")  # fmt: skip
    seconds, sent, beside, rows, active = one_step(*cases[-1], hard=True)
    print("long gradients that share nothing:")
    show(cases[-1], rows, active, seconds, sent, beside)
    return int(not holds)


def show(
    case: tuple[int, int, int], rows: int, active: int, seconds: float, sent: float, beside: float
) -> None:
    print(f"{case[0]:8}{case[1]:12,}{rows:13,}{active:8,}{seconds:9.3f}{sent:12.1f}{beside:11.1f}")


if __name__ == "__main__":
    sys.exit(main())
