import numpy as np
import pandas as pd
import pytest

from fcfl.data import Columns


@pytest.fixture
def columns():
    return Columns(client="site", label="y", sensitive=("race",))


@pytest.fixture
def frame():
    """Three sites, two groups, a number, a category with empty cells, all mixed."""
    rng = np.random.default_rng(0)
    n = 300
    return pd.DataFrame(
        {
            "site": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]),
            "y": rng.integers(0, 2, n),
            "race": rng.choice(["black", "white"], n),
            "age": rng.normal(50, 10, n),
            "ward": rng.choice(["icu", "er", None], n),
        }
    )
