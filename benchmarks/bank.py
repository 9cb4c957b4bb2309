"""Rows of a simulated bank with six branches, one of them with 18 people: ``bank.csv``.

What docs/page.md shows is made of them::

    python -m benchmarks.bank
    fcfl compare bank.csv --client branch --label repaid --sensitive sex --budget 0.05 --l2 0.001 \
        --methods sqp,fedavg,afl,fair-reg --out bank
    fcfl sweep bank.csv --client branch --label repaid --sensitive sex --budgets 0.3,0.1,0.05,0.02 \
        --l2 0.001 --objective max --out sweep
"""

from pathlib import Path

import numpy as np
import pandas as pd

BRANCHES = {"north": 900, "south": 1200, "west": 700, "east": 1500, "centre": 2000, "harbour": 18}


def main() -> int:
    rng = np.random.default_rng(3)
    frames = [branch(rng, name, n_rows) for name, n_rows in BRANCHES.items()]
    pd.concat(frames).to_csv(Path("bank.csv"), index=False)
    return 0


def branch(rng: np.random.Generator, name: str, n_rows: int) -> pd.DataFrame:
    """Men earn more and work full time more often; who repays depends on both, and on debt."""
    sex = rng.choice(["f", "m"], n_rows, p=[0.45, 0.55])
    income = rng.normal(3 + 0.6 * (sex == "m"), 1, n_rows)
    debt, age = rng.normal(0, 1, n_rows), rng.integers(20, 70, n_rows)
    job = np.where(rng.random(n_rows) < 0.3 + 0.4 * (sex == "m"), "full", "part")
    leaning = income - 3 - 0.7 * debt + 0.5 * (job == "full") + rng.logistic(size=n_rows)
    return pd.DataFrame(
        {
            "branch": name, "sex": sex, "income": income.round(2), "debt": debt.round(2),
            "age": age, "job": job, "repaid": np.where(leaning > 0, "yes", "no"),
        }
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
