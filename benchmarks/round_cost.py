"""The time of one round of the paper's method at the server, beside what its appendix D states.

`python -m benchmarks.round_cost` measures `TwoStage.step` on simulated reports: against the number
of parameters n at 10 clients, and against the number of clients N at 1,000 parameters, in stage 1
(eq. 12, 13) and stage 2 (eq. 15). Seconds are of the processor, the least of several; the
exponent is the slope between the last two sizes. The paper: linear in n; stage 1 needs O(N) for the
smooth maxima and an LP of two variables; stage 2 an LP of N variables and 2N + 2 constraints,
O*(N^2.38). Ours has 2N variables, the Gram matrix costs N²·n, and constraints enter as they are
broken.
"""

import sys
import time
from dataclasses import replace

import numpy as np

from benchmarks.growth import simulated_reports
from fcfl.methods.two_stage import TwoStage
from fcfl.problem import build_problem
from fcfl.rules import Difference, rates_needed

RULES = [Difference("demographic_parity", "group", 0.05)]
PARAMS = (1_000, 10_000, 100_000)
CLIENTS = (20, 100, 500)
REPEATS = 9


def seconds_of_a_step(n_clients: int, n_params: int, stage: int) -> float:
    """The shortest of several first steps of a stage, gradients at hand."""
    reports = simulated_reports(n_clients, n_params, 2, hard=False)
    rates = rates_needed(RULES, {"group": ("a", "b")})
    problem, _ = build_problem(RULES, rates, reports)
    method = TwoStage()
    first = replace(method.init(np.zeros(n_params), problem), stage=stage)
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        method.step(first, reports)
        taken.append(time.process_time() - began)
    return min(taken)


def show(what: str, sizes: tuple[int, ...], seconds: list[float], paper: str) -> None:
    exponent = np.log(seconds[-1] / seconds[-2]) / np.log(sizes[-1] / sizes[-2])
    cells = "  ".join(
        f"{size:>7}: {1e3 * s:9.3f} ms" for size, s in zip(sizes, seconds, strict=True)
    )
    print(f"{what:28} {cells}   exponent {exponent:4.2f}   paper: {paper}", flush=True)


def main() -> int:
    for stage, in_clients in ((1, "O(N)"), (2, "O*(N^2.38)")):
        times = [seconds_of_a_step(10, n, stage) for n in PARAMS]
        show(f"stage {stage}, against n (N = 10)", PARAMS, times, "linear")
        times = [seconds_of_a_step(n, 1_000, stage) for n in CLIENTS]
        show(f"stage {stage}, against N (n = 1,000)", CLIENTS, times, in_clients)
    return 0


if __name__ == "__main__":
    sys.exit(main())
