"""A client whose rows stay in a database and are read in chunks (python examples/own_client.py)."""

import sqlite3
from dataclasses import replace

import numpy as np
import pandas as pd

import fcfl
from fcfl.data import load_adult_frames

GROUPS = {"sex": ("Female", "Male")}
QUERY = 'SELECT age / 50.0, "hours-per-week" / 40.0, sex = "Male", income = ">50K" FROM people'


class DatabaseClient:
    def __init__(self, name, rows):
        self.name, self.database = name, sqlite3.connect(":memory:")
        rows.to_sql("people", self.database)

    def chunks(self):
        for frame in pd.read_sql(QUERY, self.database, chunksize=5000):
            *X, sex, y = frame.to_numpy(float).T
            yield fcfl.ClientData(np.column_stack(X), y, {"sex": sex}, GROUPS)

    def introduce(self):
        return fcfl.Introduction(self.name, levels=GROUPS, present=GROUPS)

    def report(self, setup, points):
        return tuple(self.report_on(setup, point) for point in points)

    def report_on(self, setup, point):
        rows = (setup.model.rows(self.name, some, setup.rates) for some in self.chunks())
        parts = [some.report(point) for some in rows]
        n, counts = sum(p.n_rows for p in parts), sum(p.group_counts for p in parts)
        rates = sum(p.group_counts * p.rates for p in parts) / counts
        report = fcfl.Report(n, sum(p.n_rows * p.loss for p in parts) / n, counts, rates)
        if not point.wants_gradients:
            return report
        slopes = sum(p.group_counts[:, None] * p.rate_grads for p in parts) / counts[:, None]
        grad = sum(p.n_rows * p.loss_grad for p in parts) / n
        return replace(report, loss_grad=grad, rate_grads=slopes)

    def count(self, setup, params):
        logits = ((setup.model.logits(params, some.X), some) for some in self.chunks())
        about = setup.rates, setup.model.cut
        counts = fcfl.pool_counts(fcfl.count_rows(*one, *about) for one in logits)
        none = fcfl.Counts(0, 0, 0, 0, 0.0, *np.zeros((2, len(setup.rates))))  # none held out
        return fcfl.Counted(self.report_on(setup, fcfl.Point(params)), counts, none)


if __name__ == "__main__":
    sectors = load_adult_frames()[0].groupby("workclass")
    clients = {name: DatabaseClient(name, rows) for name, rows in sectors if len(rows) > 2000}
    plain = {"method": fcfl.SQP("max", "lbfgs"), "l2": 1e-3, "starts": 1, "confidence": 0}
    rule, federation = fcfl.Difference("demographic_parity", "sex", 0.05), fcfl.Federation(clients)
    done = fcfl.train(federation, fcfl.Linear(2), [rule], **plain)
    losses = (f"{name}: loss {loss:.4f}" for name, loss in done.losses.items())
    print(f"{done.status} after {sum(done.rounds)} rounds", *losses, sep="\n")
