"""Tables on which budgets are tried: Adult split again, its partitions, and simulated ones."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fcfl.data import ClientData, Columns, FederatedTable, federate
from fcfl.data.adult import adult_5
from fcfl.paper.reproduction.run_tables import pooled_adult
from fcfl.rules import Rule

GROUPS = tuple("abcdefghi")


@dataclass(frozen=True)
class Task:
    """Clients' training and held-out rows, and the rules they are to keep."""

    name: str
    train: dict[str, ClientData]
    test: dict[str, ClientData]
    rules: tuple[Rule, ...]

    @property
    def n_features(self) -> int:
        """Columns after encoding."""
        return next(iter(self.train.values())).n_features


def of_table(name: str, table: FederatedTable, *rules: Rule) -> Task:
    return Task(name, dict(table.train), dict(table.test), rules)


def adult_again(attribute: str, seed: int, *rules: Rule, test_size: float = 0.33) -> Task:
    """Adult with its two clients, all rows split anew."""
    columns = Columns("client", "income", (attribute,))
    table = federate(pooled_adult(attribute), columns, test_size=test_size, seed=seed)
    return of_table(f"adult {attribute} {seed}", table, *rules)


def adult_parts(attribute: str, seed: int, *rules: Rule, test_size: float = 0.3) -> Task:
    """Adult dealt to five clients that differ in the attribute."""
    table = adult_5((attribute,), seed=seed, test_size=test_size)
    return of_table(f"adult-5 {attribute} {seed}", table, *rules)


def simulated(
    seed: int, *rules: Rule, n_clients: int | None = None, n_groups: int | None = None
) -> Task:
    """Unequal clients and groups, some of them tiny; labels, features and rates differ by both."""
    rng = np.random.default_rng(seed)
    n_clients = n_clients or int(rng.integers(3, 13))
    n_groups = n_groups or int(rng.integers(2, 10))
    sizes = np.exp(rng.uniform(np.log(150), np.log(6000), n_clients)).astype(int)
    frames = []
    for client, n_rows in enumerate(sizes):
        shares = rng.dirichlet(np.full(n_groups, 0.7))
        group = rng.choice(n_groups, n_rows, p=shares)
        shift = 0.6 * rng.standard_normal(n_groups)[group]
        X = rng.standard_normal((n_rows, 4)) + shift[:, None] * rng.standard_normal(4) * 0.7
        code = (rng.integers(0, 6, n_rows) + group) % 6
        leaning = X @ rng.normal(0.6, 0.4, 4) + shift + rng.normal(0, 0.8)
        y = leaning + 0.4 * (code == 2) + rng.logistic(size=n_rows) > 0
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(4)])
        frames.append(
            frame.assign(
                client=f"client-{client:02d}",
                group=np.array(GROUPS)[group],
                code=[f"c{value}" for value in code],
                y=np.where(y, "yes", "no"),
            )
        )
    table = federate(
        pd.concat(frames, ignore_index=True),
        Columns("client", "y", ("group",), (), "yes"),
        test_size=0.3,
        seed=seed,
    )
    return of_table(f"simulated {seed} ({n_clients} clients, {n_groups} groups)", table, *rules)
