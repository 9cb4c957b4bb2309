"""A runtime of bare rows, for benchmarks and tests of methods: no setup, no checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fcfl._types import ClientId, Reports, Request


@dataclass(frozen=True)
class InProcess:
    """A runtime whose clients are objects in memory."""

    clients: Mapping[ClientId, Any]

    def evaluate(self, request: Request) -> Reports:
        """Return every client's reports on every point of the request."""
        return {
            name: tuple(client.report(point) for point in request.points)
            for name, client in self.clients.items()
        }
