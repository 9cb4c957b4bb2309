"""Rows that a method's kernel is built around, and that are therefore disclosed."""

from dataclasses import replace

import numpy as np

from fcfl._types import Point, Request, Vector
from fcfl.extras import DisclosedRows
from fcfl.federation.federation import Bound
from fcfl.server.problem import Problem


def with_references(
    problem: Problem, clients: Bound, params: Vector, count: int, seed: int
) -> tuple[Problem, str]:
    """The problem with about ``count`` training rows, and a sentence that says so.

    They are of each client in proportion and at least one.
    """
    total = problem.n_rows.sum()
    shares = {
        client: min(max(round(count * rows / total), 1), int(rows))
        for client, rows in zip(problem.clients, problem.n_rows, strict=True)
    }
    reports = clients.evaluate(Request((Point(params, extras=(DisclosedRows(shares, seed),)),)))
    clients.federation.check_all_answered("which rows are reference points")
    rows = np.vstack([reports[client][0].extras["rows"] for client in problem.clients])
    said = f"{rows.shape[0]} training rows are reference points: the server sees them."
    return replace(problem, references=rows), said
