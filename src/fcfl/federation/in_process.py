"""Every client in this process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fcfl._types import ClientId, Point, Report, Reports, Request


class Client(Protocol):
    """Whoever holds rows and can report on a point."""

    def report(self, point: Point) -> Report: ...  # noqa: D102


@dataclass(frozen=True)
class InProcess:
    """A runtime whose clients are objects in memory, asked one after the other."""

    clients: Mapping[ClientId, Client]

    def evaluate(self, request: Request) -> Reports:
        """Every client's reports on every point of the request."""
        return {
            name: tuple(client.report(point) for point in request.points)
            for name, client in self.clients.items()
        }
