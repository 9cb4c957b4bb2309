"""What is kept of a run: counts and rates of every client, small enough to be committed."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fcfl.federation.history import read_history
from fcfl.results import ClientResult, Overall, Part, Result

SEEN = 0.01  # a point of a path that moved less is left out
_DIGITS = 5


def record_of(result: Result, budgets_met: bool) -> dict[str, Any]:
    """The part of ``result.json`` that tables and figures need."""
    return {
        "status": result.status,
        "budgets_met": budgets_met,
        "rounds": result.n_rounds,
        "seconds": round(result.seconds or 0.0, 2),
        "l2": result.l2,
        "objective": result.objective,
        "chosen": None if result.selection is None else result.selection.sentence,
        "clients": {
            name: _holder(who) | {"rows": asdict(who.rows)} for name, who in result.clients.items()
        },
        "global": _holder(result.overall),
    }


def failed_record(message: str) -> dict[str, Any]:
    """A run that did not come to an end, and why."""
    return {"status": "failed", "message": message}


def _holder(who: ClientResult | Overall) -> dict[str, Any]:
    return {"train": _part(who.train), "test": _part(who.test)}


def _part(part: Part) -> dict[str, Any]:
    first = part.disparities[0] if part.disparities else None
    return {
        "loss": _rounded(part.loss),
        "accuracy": _rounded(part.accuracy),
        "disparity": _rounded(first.value if first else None),
        "smooth": _rounded(first.smooth if first else None),
        "budget": _rounded(first.budget if first else None),
        "groups": [[group.rows, group.selected] for group in first.groups] if first else [],
    }


def path_of(history: Path, budget: float) -> list[list[float]]:
    """Both objectives of the synthetic problem, round by round, where they moved visibly."""
    kept: list[list[float]] = []
    points = [(r.worst_loss, r.largest_violation + budget) for r in read_history(history)]
    for point in points:
        if not kept or math.dist(point, kept[-1]) >= SEEN or point is points[-1]:
            kept.append([round(value, 4) for value in point])
    return kept


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)
