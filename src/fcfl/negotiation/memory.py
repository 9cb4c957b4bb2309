"""What a negotiation has trained so far: a line on disk for each model, as soon as it is there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from fcfl._files import replace_file, to_json
from fcfl._types import ClientId
from fcfl.results.negotiation import Offer, View
from fcfl.results.result import PartName


@dataclass(frozen=True)
class Free:
    """The model without budgets, and with which settings it was trained.

    ``own`` is each client's disparity on training rows; ``part``, the rows that offers are judged
    by.
    """

    l2: float
    objective: float | str | None
    params: tuple[float, ...]
    own: Mapping[ClientId, float]
    part: PartName


@dataclass(frozen=True)
class Alone:
    """A client's own model, on the rows that offers are judged by, and on its training rows."""

    client: ClientId
    budget: float | None
    view: View
    trained: View


@dataclass(frozen=True)
class Entry:
    """One model that was trained: one of the three."""

    free: Free | None = None
    alone: Alone | None = None
    offer: Offer | None = None


class Memory:
    """Models by their budgets; with a path, also those that an earlier process trained.

    Rows and settings they also depend on: whoever reads an old file must know that it is of these.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.free: Free | None = None
        self._alone: dict[tuple[ClientId, float | None], Alone] = {}
        self._offers: dict[tuple[tuple[ClientId, float], ...], Offer] = {}
        self._path = path
        if path is not None and path.exists():
            kept = _read_entries(path)
            for entry in kept:
                self._take(entry)
            replace_file(path, "".join(map(_as_line, kept)).encode())  # without a torn last line

    def alone(self, client: ClientId, budget: float | None) -> Alone | None:
        """A client's own model with a budget, or without one."""
        return self._alone.get((client, budget))

    def offer(self, budgets: Mapping[ClientId, float], found_by: str) -> Offer | None:
        """A combination; this time it may be found in another way."""
        known = self._offers.get(tuple(budgets.items()))
        return None if known is None else replace(known, found_by=found_by)

    def add(self, entry: Entry) -> None:
        """Remember a model, on disk too."""
        self._take(entry)
        if self._path is None:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(_as_line(entry))
            file.flush()
            os.fsync(file.fileno())

    def _take(self, entry: Entry) -> None:
        if entry.free is not None:
            self.free = entry.free
        if entry.alone is not None:
            self._alone[entry.alone.client, entry.alone.budget] = entry.alone
        if entry.offer is not None:
            self._offers[tuple(entry.offer.budgets.items())] = entry.offer


def _as_line(entry: Entry) -> str:
    return to_json(entry).decode() + "\n"


def _read_entries(path: Path) -> list[Entry]:
    """All whole lines; what cannot be read is trained again."""
    entries = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entries.append(msgspec.json.decode(line, type=Entry))
        except msgspec.DecodeError:
            continue
    return entries
