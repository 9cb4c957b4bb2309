"""How much of a run is done, over all its phases: one bar that never goes back."""

from collections.abc import Callable

from fcfl.methods.method import RoundInfo

OnRound = Callable[[RoundInfo, float], None]
_SHARE_OF_REST = 0.6  # what a phase is taken to be of all that is left: later ones are shorter


def part_of(on_round: OnRound | None, low: float, high: float) -> OnRound:
    """Tells ``on_round`` shares of a part as shares of the whole."""

    def part(info: RoundInfo, share: float) -> None:
        if on_round is not None:
            on_round(info, low + (high - low) * share)

    return part


class OverPhases:
    """Shares of one phase after another as shares of all of them, which never fall.

    A phase ends where another begins: what it is for changes, or its share falls back. How many
    are to come is not known beforehand (starts, stages, turns until decisions keep their budgets).
    """

    def __init__(self, on_round: OnRound) -> None:
        self._on_round = on_round
        self._begun = self._done = self._last = 0.0
        self._what: str | None = None

    def __call__(self, info: RoundInfo, share: float) -> None:
        """Tell the share of the whole."""
        what = info.note if info.stage == 0 else "training"
        if self._what is not None and (what != self._what or share < self._last):
            self._begun = self._done
        self._what, self._last = what, share
        reached = self._begun + (1.0 - self._begun) * _SHARE_OF_REST * share
        self._done = max(self._done, reached)
        self._on_round(info, self._done)
