r"""Rows that limit how far the rate of a client's groups, taken together, may change.

.. math:: \bar r = \sum_g n_g r_g / \sum_g n_g \le \bar r_0 + m \quad\text{and}\quad
          -\bar r \le -(\bar r_0 - m)

A *population* is whose groups are compared: those of one client, or of all clients together, for
one attribute and one kind of rate. Its two rows are linear in the group rates like all others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcfl._types import Vector
from fcfl.server.constraints import CHANGE, Constraints, Row

APART = 0.01  # between the lower and the upper bound of a rate: less is a sliver to train in

_Key = tuple[str | None, str, str]


@dataclass(frozen=True)
class RateChanges:
    """The populations of some constraints, and their rates at a model that changes count from.

    ``weights[q]`` has the columns of the stacked rates that population q consists of and their
    shares. ``smooth`` and ``decided`` are its rates at that model, ``population_of_row`` says
    which one each constraint compares groups of.
    """

    keys: tuple[_Key, ...]
    weights: tuple[tuple[NDArray[np.int64], Vector], ...]
    smooth: Vector
    decided: Vector
    population_of_row: NDArray[np.int64]

    @classmethod
    def of(
        cls, constraints: Constraints, counts: Vector, smooth: Vector, decided: Vector
    ) -> "RateChanges":
        """The populations, from the counts and rates of all groups, stacked client by client."""
        row_keys = [(row.client, row.attribute, row.kind) for row in constraints.rows]
        keys = tuple(dict.fromkeys(row_keys))
        place = {key: index for index, key in enumerate(keys)}
        population_of_row = np.array([place[key] for key in row_keys], dtype=np.int64)
        populations = population_of_row[constraints.entry_row]
        weights = []
        for index in range(len(keys)):
            columns = np.unique(constraints.entry_column[populations == index])
            rows = counts[columns]
            weights.append((columns, rows / max(float(rows.sum()), 1e-300)))
        before, after = (np.array([w @ r[c] for c, w in weights]) for r in (smooth, decided))
        return cls(keys, tuple(weights), before, after, population_of_row)

    def __len__(self) -> int:
        return len(self.keys)

    def bounds_around(self, rates: Vector, most: Vector | float) -> Vector:
        """Bounds of the rows, up and down, that keep each population within ``most`` of a rate."""
        return np.concatenate([rates + most, most - rates])

    def bounds_from(self, rates: Vector, change: Vector) -> Vector:
        """Bounds that make each population's rate change at least by ``change``, if it is not 0."""
        up = np.where(change < 0, rates + change, np.inf)
        down = np.where(change > 0, -(rates + change), np.inf)
        return np.concatenate([up, down])

    def apart(self, bounds: Vector) -> Vector:
        """Bounds of all rows, in which the lower one of a population yields to the upper one."""
        first = len(bounds) - 2 * len(self)
        up, down = bounds[first : first + len(self)], bounds[first + len(self) :]
        return np.concatenate([bounds[:first], up, np.maximum(down, APART - up)])

    def appended_to(self, constraints: Constraints, bounds: Vector) -> Constraints:
        """The constraints with two rows a population more, up and down, under these bounds."""
        first, n_last = len(constraints), constraints.blocks.max(initial=-1)
        rows: list[Row] = []
        entry_row, entry_column, entry_value = [], [], []
        for sign in (1.0, -1.0):
            for (client, attribute, kind), (columns, shares) in zip(
                self.keys, self.weights, strict=True
            ):
                entry_row.append(np.full(columns.size, first + len(rows)))
                entry_column.append(columns)
                entry_value.append(sign * shares)
                bound = float(bounds[len(rows)])
                rows.append(Row(client, CHANGE, CHANGE, attribute, kind, "", "", bound))
        return Constraints(
            rows=(*constraints.rows, *rows),
            blocks=np.concatenate([constraints.blocks, n_last + 1 + np.arange(len(rows))]),
            bounds=np.concatenate([constraints.bounds, bounds]),
            entry_row=np.concatenate([constraints.entry_row, *entry_row]),
            entry_column=np.concatenate([constraints.entry_column, *entry_column]),
            entry_value=np.concatenate([constraints.entry_value, *entry_value]),
            n_columns=constraints.n_columns,
        )
