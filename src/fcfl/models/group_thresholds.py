"""Decisions by group: one score for everybody, a threshold of its own for a client's group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Vector
from fcfl.data.client_data import ClientData

Thresholds = Literal["common", "group"]
THRESHOLDS: tuple[Thresholds, Thresholds] = ("common", "group")

UNLAWFUL = (
    "Thresholds by group use {attribute!r} of each person for the decision itself. In some places "
    "that is unlawful: in the United States, for example, it may be disparate treatment in "
    "employment and in credit. Ask a lawyer before such a model decides about people."
)


@dataclass(frozen=True)
class GroupThresholds:
    """Thresholds by client and by group of one attribute, in logits above the model's cut.

    A row is selected if its logit less the cut is at least its threshold. A row of an unknown
    client or group, or without a group, has 0: it is selected from the cut on, as all rows are
    without such thresholds.
    """

    attribute: str
    by_client: Mapping[ClientId, Mapping[str, float]]

    def for_client(self, name: ClientId) -> "GroupThresholds":
        """Without the thresholds of others."""
        own = self.by_client.get(name)
        return GroupThresholds(self.attribute, {} if own is None else {name: own})

    def of_data(self, name: ClientId, data: ClientData) -> Vector:
        """The threshold of each row of one client."""
        own = self.by_client.get(name, {})
        levels = [own.get(level, 0.0) for level in data.levels[self.attribute]]
        thresholds: Vector = np.array([*levels, 0.0])[data.groups[self.attribute]]  # -1: no group
        return thresholds

    def of_rows(
        self, clients: Sequence[ClientId | None], groups: Sequence[str | None]
    ) -> tuple[Vector, NDArray[np.bool_]]:
        """The threshold of each row, and for which rows there is none: they have 0."""
        found = [
            None if client is None or group is None else self._of(client, group)
            for client, group in zip(clients, groups, strict=True)
        ]
        unknown = np.array([value is None for value in found], dtype=bool)
        return np.array([value or 0.0 for value in found], dtype=np.float64), unknown

    def _of(self, client: ClientId, group: str) -> float | None:
        return self.by_client.get(client, {}).get(group)

    @property
    def sentence(self) -> str:
        """What whoever uses these thresholds should know."""
        return UNLAWFUL.format(attribute=self.attribute)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "GroupThresholds":
        """Read what `to_json` wrote."""
        by_client = {
            str(client): {str(group): float(value) for group, value in own.items()}
            for client, own in content["by_client"].items()
        }
        return cls(str(content["attribute"]), by_client)

    def to_json(self) -> dict[str, object]:
        """As ``model.json`` has them."""
        by_client = {client: dict(own) for client, own in self.by_client.items()}
        return {"attribute": self.attribute, "by_client": by_client}
