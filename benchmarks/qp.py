"""The two solvers of the step's quadratic programme, as they are used: `python -m benchmarks.qp`.

Random programmes of nine kinds (see `KINDS`), overall scales 1e-4, 1, 1e4 and penalties 10, 1e4.
*Error* is the scaled KKT residual of what a solver returns, before and after the Newton steps on
the free variables; *not solved* counts residuals above 1e-9 after them. Then seconds against the
number of variables, one third objectives. Exits 1 unless the routine that is used (both solvers,
each judged by its residual) solves every programme.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fcfl.errors import SolverError
from fcfl.methods.sqp import qp
from fcfl.methods.sqp.qp import solve_dual_qp

KINDS = (
    "plain", "duplicates", "zero rows", "opposite rows", "more rows than columns",
    "one objective", "no constraints", "rows of many lengths", "near the optimum",
)  # fmt: skip
SEEDS = 15
Programme = tuple[Any, Any, int, Any]


def programme(kind: str, seed: int, scale: float, upper: float) -> Programme:
    """Whitened rows, values, how many are objectives, and the penalties."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n, N, M = (int(rng.integers(*between)) for between in ((20, 101), (2, 11), (2, 13)))
    if kind == "more rows than columns":
        n, N = int(rng.integers(2, 9)), int(rng.integers(15, 40))
    N = 1 if kind == "one objective" else N
    M = 0 if kind == "no constraints" else M
    W = rng.standard_normal((N + M, n)) * np.logspace(0, -1, n)
    c = np.concatenate([0.5 + 0.1 * rng.standard_normal(N), 0.1 * rng.standard_normal(M) - 0.05])
    if kind == "duplicates":
        chosen = np.concatenate([rng.integers(0, N, N), N + rng.integers(0, M, M)])
        W, c = W[chosen], c[chosen]
    if kind == "zero rows":
        W[rng.random(N + M) < 0.4] = 0.0
    if kind == "opposite rows":
        W, c = np.vstack([W, -W[N:]]), np.concatenate([c, -c[N:] - 0.1])
    if kind == "rows of many lengths":
        W *= 10.0 ** rng.uniform(-4, 4, (N + M, 1))
    if kind == "near the optimum":
        x = np.concatenate([rng.dirichlet(np.ones(N)), rng.random(M) * (rng.random(M) < 0.5)])
        W[0] = (1e-7 * rng.standard_normal(n) - x[1:] @ W[1:]) / x[0]
        c = np.where(np.arange(N + M) < N, 0.5, 0.0) - 0.01 * (x == 0) + W @ (W.T @ x)
    return scale * W, c, N, np.full(W.shape[0] - N, upper)


def sized(n_variables: int, n_columns: int = 100) -> Programme:
    """A programme like a step's: gradients with a shared part, both signs of each budget."""
    rng = np.random.default_rng(0)
    M = n_variables // 3
    N = n_variables - 2 * M
    shared = 0.3 * rng.standard_normal(n_columns)
    grads = 0.1 * rng.standard_normal((N, n_columns)) + shared
    rows = 0.1 * rng.standard_normal((M, n_columns))
    gaps = 0.04 * rng.standard_normal(M)
    W = np.vstack([grads, rows, -rows]) * np.logspace(-1, 1, n_columns)
    c = np.concatenate([0.5 + 0.05 * rng.standard_normal(N), gaps - 0.05, -gaps - 0.05])
    return W, c, N, np.full(2 * M, 10.0)


def by_clarabel(dual: Any) -> Any:
    typical = max(float(np.median(dual.lengths**2)), np.abs(dual.c).max())
    return qp._by_clarabel(dual, typical)


SOLVERS: dict[str, Callable[[Any], Any]] = {
    "DAQP, dense dual": partial(qp._by_daqp, dual_tolerance=1e-14),
    "Clarabel, primal": by_clarabel,
}


def errors(solver: Callable[[Any], Any], problems: list[Programme]) -> tuple[list[float], ...]:
    """Scaled KKT residuals, as returned and after polishing; infinite where none was returned."""
    raw, polished = [], []
    for problem in problems:
        dual = qp._pose(*problem)
        x = solver(dual)
        if not np.isfinite(x).all():
            raw.append(np.inf)
            polished.append(np.inf)
            continue
        x = dual.tidy(x)
        raw.append(dual.residual(x))
        polished.append(dual.residual(qp._polish(dual, x)))
    return raw, polished


def unsolved(problems: list[Programme]) -> int:
    """Programmes on which the routine that is used gives up."""
    failures = 0
    for problem in problems:
        try:
            solve_dual_qp(*problem)
        except SolverError:
            failures += 1
    return failures


def median_ms(function: Callable[[], object], repetitions: int) -> float:
    taken = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began)
    return 1e3 * float(np.median(taken[1:]))


def main() -> int:
    problems = [
        programme(kind, seed, scale, upper)
        for kind in KINDS
        for scale in (1e-4, 1.0, 1e4)
        for upper in (10.0, 1e4)
        for seed in range(SEEDS)
    ]
    print(f"{len(problems)} programmes; error: median / 95 % / worst")
    print(f"{'solver':18}{'as returned':>27}{'after Newton steps':>27}{'not solved':>12}")
    for name, solver in SOLVERS.items():
        cells = []
        for residuals in errors(solver, problems):
            finite = [min(r, 1.0) for r in residuals]
            cells.append(" / ".join(f"{q:.0e}" for q in np.percentile(finite, (50, 95, 100))))
        failed = sum(r > 1e-9 for r in residuals)
        print(f"{name:18}{cells[0]:>27}{cells[1]:>27}{failed:12}")
    failures = unsolved(problems)
    print(f"both, as used: {failures} not solved")
    print(f"\n{'variables':>9}" + "".join(f"{name + ', ms':>24}" for name in SOLVERS))
    for size, repetitions in ((6, 200), (36, 100), (300, 5), (1200, 1)):
        dual = qp._pose(*sized(size))
        times = [median_ms(partial(s, dual), repetitions) for s in SOLVERS.values()]
        print(f"{size:9}" + "".join(f"{ms:24.2f}" for ms in times))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
