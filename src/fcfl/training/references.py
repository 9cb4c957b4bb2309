"""Rows that a method's kernel is built around, and that are therefore disclosed."""

from dataclasses import replace

import numpy as np

from fcfl._types import Point, Request, Vector
from fcfl.errors import AbsentClientError
from fcfl.extras import DisclosedRows
from fcfl.federation.loop import Runtime
from fcfl.server.problem import Problem


def with_references(
    problem: Problem, clients: Runtime, params: Vector, count: int, seed: int
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
    absent = [client for client in problem.clients if client not in reports]
    if absent:
        raise AbsentClientError(
            f"Client {absent[0]!r} did not say which rows are reference points. "
            "Resume when it is back."
        )
    rows = np.vstack([reports[client][0].extras["rows"] for client in problem.clients])
    said = f"{rows.shape[0]} training rows are reference points: the server sees them."
    return replace(problem, references=rows), said
