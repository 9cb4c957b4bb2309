"""What `benchmarks.promise` trains on: Adult split again, and the simulated laws."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from benchmarks.promise_laws import LAWS, Population
from fcfl.data import ClientData, Columns, FederatedTable, federate, load_adult_frames
from fcfl.data.builtin import adult, adult_5
from fcfl.rules import Difference, Rule

BUDGET = 0.05
COMPARED = 30.0  # training rows of a group, from which on the benchmark counts it everywhere


@dataclass(frozen=True)
class Task:
    """Training rows, a fresh sample of as many, the budget, and the truth where it is known."""

    name: str
    train: dict[str, ClientData]
    fresh: dict[str, ClientData]
    rule: Rule
    population: Population | None = None

    @property
    def n_features(self) -> int:
        """Columns after encoding."""
        return next(iter(self.train.values())).n_features

    @property
    def is_small(self) -> bool:
        """Whether kept budgets count all groups, however few training rows they have."""
        return self.name in SMALL


def pooled_adult(sensitive: str) -> pd.DataFrame:
    """Return all rows of Adult with the paper's eight columns, clients PhD and non-PhD."""
    frame = pd.concat(load_adult_frames(), ignore_index=True)
    text = frame.select_dtypes(exclude="number").columns
    table = frame[text].assign(client=np.where(frame["education"] == "Doctorate", "phd", "non-phd"))
    if sensitive != "race":
        return table
    return table.assign(race=np.where(frame["race"] == "White", "White", "Non-White"))


def adult_again(attribute: str, seed: int) -> Task:
    """Adult with its two clients, half of all rows for training and half as the fresh sample."""
    columns = Columns("client", "income", (attribute,))
    table = federate(pooled_adult(attribute), columns, test_size=0.5, seed=seed)
    return _of_table(f"adult-{attribute}", table, attribute)


def adult_parts(attribute: str, seed: int) -> Task:
    """Adult dealt to five clients that differ in the attribute, split in halves."""
    table = adult_5((attribute,), seed=seed, test_size=0.5)
    return _of_table(f"adult5-{attribute}", table, attribute)


def original(attribute: str, seed: int) -> Task:
    """Adult on its original split, as `fcfl train adult` reads it; the seed draws nothing here."""
    return _of_table(f"original-{attribute}", adult((attribute,)), attribute)


def _of_table(name: str, table: FederatedTable, attribute: str) -> Task:
    rule = Difference("demographic_parity", attribute, BUDGET)
    return Task(name, dict(table.train), dict(table.test), rule)


def simulated(law: str, seed: int) -> Task:
    """One federation of a law, its training rows and a fresh sample."""
    population = LAWS[law].draw(seed)
    rows = population.rows("train"), population.rows("fresh")
    return Task(law, *rows, LAWS[law].rule, population)


TASKS: dict[str, Callable[[int], Task]] = {
    "adult-race": partial(adult_again, "race"),
    "adult-sex": partial(adult_again, "sex"),
    "adult5-sex": partial(adult_parts, "sex"),
    "adult5-race": partial(adult_parts, "race"),
    "original-race": partial(original, "race"),
    **{name: partial(simulated, name) for name in LAWS},
}
MAIN = tuple(
    name for name in TASKS if not name.startswith(("small", "odd-", "giveaway", "original"))
)
SMALL = ("many", *(name for name in LAWS if name not in MAIN))
QUICK = ("adult-race", "adult5-sex", "unequal", "ratio", "odds", "global", "small-016")
