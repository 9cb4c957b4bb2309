"""What can be judged of a run beside others; made by `fcfl.results.judgeable.judge`."""

from dataclasses import dataclass

from fcfl._types import ClientId


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Differences of group rates and accuracy on held-out rows, where there are any.

    ``accuracy`` and the share ``selected`` are of all rows together.

    ``all_rows`` is the largest difference over all rows together, with its interval; ``median`` and
    ``largest`` are of the clients in ``clients``, those with enough people, and so are
    ``lowest_accuracy`` and how many of ``n_budgets`` budgets are kept. All other clients are in
    ``too_small``.
    """

    all_rows: float | None = None
    low: float | None = None
    high: float | None = None
    accuracy: float | None = None
    selected: float | None = None
    median: float | None = None
    largest: float | None = None
    lowest_accuracy: float | None = None
    kept: int = 0
    n_budgets: int = 0
    clients: tuple[ClientId, ...] = ()
    too_small: tuple[ClientId, ...] = ()

    @property
    def keeps(self) -> str:
        """How many budgets decisions keep, such as ``5/6``."""
        return f"{self.kept}/{self.n_budgets}" if self.n_budgets else "–"
