"""Rows that a method's kernel is built around, and that are therefore disclosed."""

from dataclasses import replace

import numpy as np

from fcfl._types import Point, Reports, Request, Vector
from fcfl.extras import DisclosedRows
from fcfl.problem.evaluation import Problem


def ask_references(problem: Problem, params: Vector, count: int, seed: int) -> Request:
    """A request for about ``count`` training rows, of each client in proportion, at least one."""
    total = problem.n_rows.sum()
    shares = {
        client: max(round(count * rows / total), 1)  # a client with fewer rows gives all
        for client, rows in zip(problem.clients, problem.n_rows, strict=True)
    }
    return Request((Point(params, extras=(DisclosedRows(shares, seed),)),))


def with_references(problem: Problem, reports: Reports) -> tuple[Problem, str]:
    """The problem with the rows that clients disclosed, and a sentence that says so."""
    rows = np.vstack([reports[client][0].extras["rows"] for client in problem.clients])
    said = f"{rows.shape[0]} training rows are reference points: the server sees them."
    return replace(problem, references=rows), said
