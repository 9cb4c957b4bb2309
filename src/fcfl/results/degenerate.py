"""Models that select nearly nobody or nearly everybody: they keep any budget and are of no use.

Everything that reports such a model reads it from here: the exit code, the terminal, the page, and
warnings in Python.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fcfl._types import ClientId

# The rule of the project's contract: with 20 rows of a label, selecting none of them by chance has
# a probability below .01 for any model that finds a fourth of them (.75 ** 20 = .003).
LEAST_LABELLED = 20  # rows with the label in question
FEW, FEW_SHARE = 5.0, 0.1  # selected rows, and their share of the labelled ones, that are too few
MOST_NAMED = 3  # clients that the sentence names

Whom: TypeAlias = Literal["nobody", "everybody"]


def degenerate_side(
    selected: float, positives: float, n_rows: float, noise: float = 0.0
) -> Whom | None:
    """Return whom a model selects, where that is nearly nobody or nearly everybody.

    1. "nobody": at least 20 rows have label 1, and at most 5 rows, or a tenth as many as have the
       label, are selected.
    2. "everybody": the same of label 0 and of the rows that are not selected.

    Counts that may be off by ``noise`` must be beyond these limits by as much.
    """
    if _is_side(selected + noise, positives - noise):
        return "nobody"
    if _is_side(n_rows - selected + noise, n_rows - positives - noise):
        return "everybody"
    return None


def _is_side(decided: float, labelled: float) -> bool:
    return labelled >= LEAST_LABELLED and decided <= max(FEW, FEW_SHARE * labelled)


@dataclass(frozen=True)
class DegenerateRows:
    """Training rows of which nearly nobody or nearly everybody is selected.

    ``client`` is None for all clients' rows together.
    """

    client: ClientId | None
    whom: Whom
    rows: int
    positives: int
    selected: int


@dataclass(frozen=True)
class Degenerate:
    """A model that selects nearly nobody or nearly everybody, and the threshold that would not.

    ``threshold`` is the one it was trained at. At ``advised_threshold`` the same scores select
    ``would_select`` of these rows, about as many as have label 1; None if no threshold does.
    """

    rows: tuple[DegenerateRows, ...]
    threshold: float
    advised_threshold: float | None = None
    would_select: int | None = None

    @property
    def positives(self) -> int:
        """The rows with label 1 among those in question."""
        return sum(one.positives for one in self.rows)

    @property
    def headline(self) -> str:
        """State who is selected, as a clause without counts."""
        sides = dict.fromkeys(one.whom for one in self.rows)
        return f"the model selects nearly {' or nearly '.join(sides)}"

    @property
    def named(self) -> list[str]:
        """Return the counts of a few clients."""
        listed = [
            f"{one.selected:,} of {one.rows:,} training rows at {_called(one)} "
            f"({one.positives:,} have the label)"
            for one in self.rows[:MOST_NAMED]
        ]
        more = len(self.rows) - MOST_NAMED
        return [*listed, f"{more} more"] if more > 0 else listed

    @property
    def in_python(self) -> str:
        """Return the sentences of a warning in Python."""
        found = f"{self.headline}: {', '.join(self.named)}."
        return f"{found[0].upper()}{found[1:]} {self.way_out('threshold=')}"

    def way_out(self, option: str) -> str:
        """State what to do; ``option`` is how a threshold is given: ``--threshold`` and a space."""
        if self.advised_threshold is None or self.would_select is None:
            return (
                "Such a model keeps budgets on equal rates and is of no use. Try another decision "
                f"threshold ({option.strip()}), a smaller l2, a larger budget, or more rows."
            )
        return (
            f"At a decision threshold of {self.advised_threshold:g} instead of {self.threshold:g} "
            f"its scores select {self.would_select:,} of these rows; {self.positives:,} have the "
            f"label. Train with {option}{self.advised_threshold:g}."
        )


def _called(one: DegenerateRows) -> str:
    return "all clients together" if one.client is None else one.client
