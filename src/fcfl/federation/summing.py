"""Clients in one process add their curvatures into one matrix for each point."""

from collections.abc import Mapping
from typing import Any, Protocol

from fcfl._report_checks import check_curvature_sum
from fcfl._types import ClientId, Point, Report, Reports, SummedReports, without_curvature
from fcfl.client.local_client import Client, add_own, can_add_up
from fcfl.client.questions import Evaluate
from fcfl.models.curvature_sum import CurvatureSum


class CheckReports(Protocol):
    """Refuses answers that are not one valid report for each of the points."""

    def __call__(self, name: ClientId, answer: Any, points: tuple[Point, ...] = ...) -> None: ...  # noqa: D102


def add_up(clients: Mapping[ClientId, Client], question: Evaluate, check: CheckReports) -> Reports:
    """Every client's reports, checked, without curvatures; their sums beside them.

    A client that gives its own matrix is checked by it. Of the others the sum is checked.
    """
    points = question.request.points
    bare = without_curvature(points)
    sums = [CurvatureSum(p.params.size) if p.want == "curvature" else None for p in points]
    reports: dict[ClientId, tuple[Report, ...]] = {}
    for name, client in clients.items():
        if can_add_up(client):
            said = client.report_into(question.setup, points, sums)
            check(name, said, bare)
        else:
            said = client.report(question.setup, points)
            check(name, said)
            said = tuple(add_own(report, total) for report, total in zip(said, sums, strict=True))
        reports[name] = said
    totals = [None if one is None else one.total for one in sums]
    for total in totals:
        if total is not None:
            check_curvature_sum(total)
    return SummedReports(reports, totals)
