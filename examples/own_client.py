"""A client of your own: its rows stay in a database and are read a thousand at a time.

A client answers three questions: who it is, what it reports on a point, and how a model decides on
its rows. Anything that does can take part in a `Federation`.
"""

import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

import fcfl


class DatabaseClient:
    """Logistic loss and group rates, summed while rows stream by."""

    def __init__(self, name: str, database: sqlite3.Connection) -> None:
        self.name, self.database = name, database

    def chunks(self) -> Iterator[tuple[fcfl.Matrix, fcfl.Vector, np.ndarray]]:
        cursor = self.database.execute("SELECT a, b, died, race FROM stays")
        while rows := cursor.fetchmany(1000):
            a, b, died, race = zip(*rows, strict=True)
            yield np.column_stack([a, b, np.ones(len(a))]), np.array(died, float), np.array(race)

    def introduce(self) -> fcfl.Introduction:
        found = self.database.execute("SELECT DISTINCT race FROM stays ORDER BY race").fetchall()
        groups = {"race": tuple(race for (race,) in found)}
        return fcfl.Introduction(self.name, levels=groups, present=groups)

    def report(self, setup: fcfl.Setup, points: Sequence[fcfl.Point]) -> tuple[fcfl.Report, ...]:
        return tuple(
            self.report_on(point, [rate.group for rate in setup.rates]) for point in points
        )

    def report_on(self, point: fcfl.Point, groups: Sequence[str]) -> fcfl.Report:
        n, loss, grad = 0, 0.0, np.zeros(3)
        counts, rates, rate_grads = np.zeros(2), np.zeros(2), np.zeros((2, 3))
        for X, y, race in self.chunks():
            z, n = X @ point.params, n + y.size
            members = np.array([race == group for group in groups], float)
            score = 1 / (1 + np.exp(-10 * z))  # the smooth decision
            loss += np.sum(np.logaddexp(0, z) - y * z)
            grad += (1 / (1 + np.exp(-z)) - y) @ X
            counts, rates = counts + members.sum(axis=1), rates + members @ score
            rate_grads += (members * 10 * score * (1 - score)) @ X
        report = fcfl.Report(n, loss / n, counts, rates / counts)
        if point.want == "values":
            return report
        return fcfl.Report(
            n, loss / n, counts, rates / counts, grad / n, rate_grads / counts[:, None]
        )

    def count(self, setup: fcfl.Setup, params: fcfl.Vector) -> fcfl.Counted:
        groups, none = (
            [rate.group for rate in setup.rates],
            fcfl.Counts(0, 0, 0, 0, 0.0, np.zeros(2), np.zeros(2)),
        )
        X, y, race = (np.concatenate(part) for part in zip(*self.chunks(), strict=True))
        z, members = X @ params, np.array([race == group for group in groups], float)
        cells = [
            int(np.sum((z >= 0) == guess) if False else np.sum(((z >= 0) == guess) & (y == label)))
            for label, guess in ((0, False), (0, True), (1, False), (1, True))
        ]
        loss = float(np.sum(np.logaddexp(0, z) - y * z))
        counted = fcfl.Counts(*cells, loss, members.sum(axis=1), members @ (z >= 0))
        return fcfl.Counted(self.report_on(fcfl.Point(params), groups), counted, none)
