"""What a client would give for what: the ``[preference]`` table of its policy file.

::

    [preference]
    disparity-per-accuracy = 2.0   # one point of accuracy is worth two points of disparity
    max-disparity = 0.1            # hard limits: what is beyond them is never acceptable
    min-accuracy = 0.75

It stays with the client: what leaves it is a ballot.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fcfl._checks import check_budget, check_keys, check_positive

_KEYS = ("disparity-per-accuracy", "max-disparity", "min-accuracy")


@dataclass(frozen=True)
class Preference:
    r"""Utility :math:`w \cdot` accuracy − disparity, within hard limits.

    ``disparity_per_accuracy`` is w, how much disparity a point of accuracy is worth; by default one
    for one, so that all clients are alike.
    """

    disparity_per_accuracy: float = 1.0
    max_disparity: float | None = None
    min_accuracy: float | None = None

    def __post_init__(self) -> None:
        check_positive("disparity-per-accuracy", self.disparity_per_accuracy)
        if self.max_disparity is not None:
            check_budget("max-disparity", self.max_disparity)
        if self.min_accuracy is not None:
            check_budget("min-accuracy", self.min_accuracy)

    def utility(self, accuracy: float, disparity: float) -> float:
        """What a model is worth to the client, in points of disparity."""
        return self.disparity_per_accuracy * accuracy - disparity

    def allows(self, accuracy: float, disparity: float) -> bool:
        """Whether the hard limits are kept."""
        within = self.max_disparity is None or disparity <= self.max_disparity
        return within and (self.min_accuracy is None or accuracy >= self.min_accuracy)


def preference_from_table(table: Mapping[str, float], where: str) -> Preference:
    """The preference that a TOML table states."""
    check_keys(table, _KEYS, where)
    return Preference(**{key.replace("-", "_"): value for key, value in table.items()})
