"""Rows of two simulated employers that hire: ``applicants.csv``, for docs/cards.md."""

from pathlib import Path

import numpy as np
import pandas as pd

N_ROWS = 3000
RACES = {"Asian": 0.2, "Black": 0.2, "Hispanic": 0.2, "White": 0.35, "Native": 0.01, None: 0.04}


def main() -> int:
    """Men are hired more often, Black people less; some did not say who they are."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["Female", "Male", None], N_ROWS, p=[0.48, 0.48, 0.04])
    race = rng.choice([*RACES], N_ROWS, p=[*RACES.values()])
    chance = 0.3 + 0.1 * (sex == "Male") - 0.06 * (race == "Black")
    frame = pd.DataFrame(
        {
            "employer": rng.choice(["one", "two"], N_ROWS), "sex": sex, "race": race,
            "hired": np.where(rng.random(N_ROWS) < chance, "yes", "no"),
        }
    )  # fmt: skip
    frame.to_csv(Path("applicants.csv"), index=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
