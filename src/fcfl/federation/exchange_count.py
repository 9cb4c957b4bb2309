"""The cost of a run: exchanges, counted by phase where requests leave the federation."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fcfl._files import replace_file

EXCHANGES = "exchanges.json"  # in the folder of a run: what it has cost so far
_SAVE_SECONDS = 0.5  # between two writes, as for checkpoints

Phase = Literal[
    "meet",
    "reference",
    "disclose",
    "choose",
    "starts",
    "fit",
    "check",
    "tighten",
    "project",
    "threshold",
    "vote",
]
"""What exchanges are made for.

meet : introductions, and the counts from which constraints are built
reference : training without budgets, to which relative budgets refer
disclose : reference rows that some methods need
choose : fits of candidate settings, and their leave-one-out losses
starts : comparing starts
fit : training with the plain budgets
check : hard decisions of a model on all rows
tighten : training under tightened bounds
project : minimum-norm corrections of a model
threshold : thresholds by group
vote : ballots of a negotiation
"""


@dataclass
class ExchangeCount:
    """Exchanges so far, by phase.

    A federation adds one for each request that leaves it. The caller sets the phase; a train run
    takes what has been counted since the last one.
    """

    by_phase: dict[str, int] = field(default_factory=dict)
    phase: Phase = "meet"
    _path: Path | None = None
    _saved: float = float("-inf")

    @property
    def total(self) -> int:
        """Exchanges of all phases."""
        return sum(self.by_phase.values())

    def add(self) -> None:
        """Count one exchange in the current phase."""
        self.by_phase[self.phase] = self.by_phase.get(self.phase, 0) + 1
        if self._path is not None and time.monotonic() - self._saved >= _SAVE_SECONDS:
            self.save()

    def take(self) -> dict[str, int]:
        """Return the count by phase and start again from 0."""
        taken, self.by_phase = self.by_phase, {}
        return taken

    @contextmanager
    def in_phase(self, phase: Phase) -> Iterator[None]:
        """Count exchanges under ``phase`` inside a ``with`` statement."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    @contextmanager
    def kept_in(self, folder: Path | None, *, resume: bool) -> Iterator[None]:
        """Store the count in a run's folder as it grows; with ``resume``, continue the stored one.

        Without a folder nothing is stored. The count starts again at the end.
        """
        if folder is not None and resume:
            for phase, count in read_exchanges(folder).items():
                self.by_phase[phase] = self.by_phase.get(phase, 0) + count
        before, self._path = self._path, None if folder is None else folder / EXCHANGES
        try:
            yield
        finally:
            self.save()
            self._path = before
            self.take()

    def save(self) -> None:
        """Write the count, if it is stored; a full disk is reported with the checkpoints."""
        self._saved = time.monotonic()
        if self._path is not None:
            with suppress(OSError):
                replace_file(self._path, (json.dumps(self.by_phase) + "\n").encode())


def read_exchanges(folder: Path) -> Mapping[str, int]:
    """Read the count of a run that stopped; empty if nothing valid is stored."""
    try:
        stored = json.loads((folder / EXCHANGES).read_text(encoding="utf-8"))
        return {str(phase): int(count) for phase, count in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
