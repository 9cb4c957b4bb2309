"""What is kept of a run: counts and rates of every client, small enough to be committed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcfl.federation.history import read_history

SEEN = 0.01  # a point of a path that moved less is left out
_DIGITS = 5


def record_of(result: Mapping[str, Any], budgets_met: bool) -> dict[str, Any]:
    """The part of ``result.json`` that tables and figures need."""
    selection = result.get("selection") or {}
    return {
        "status": result["status"],
        "budgets_met": budgets_met,
        "rounds": sum(result["rounds"].values()),
        "seconds": round(result["seconds"], 2),
        "l2": result["l2"],
        "objective": result["objective"],
        "chosen": selection.get("sentence"),
        "clients": {
            name: _holder(who) | {"rows": who["rows"]} for name, who in result["clients"].items()
        },
        "global": _holder(result["global"]),
    }


def failed_record(message: str) -> dict[str, Any]:
    """A run that did not come to an end, and why."""
    return {"status": "failed", "message": message}


def _holder(who: Mapping[str, Any]) -> dict[str, Any]:
    return {part: _part(who[part]) for part in ("train", "test")}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    entries = part["disparities"]
    first = entries[0] if entries else {}
    groups = first.get("groups", ())
    return {
        "loss": _rounded(part["loss"]),
        "accuracy": _rounded(part["accuracy"]),
        "disparity": _rounded(first.get("value")),
        "smooth": _rounded(first.get("smooth")),
        "budget": _rounded(first.get("budget")),
        "groups": [[group["rows"], group["selected"]] for group in groups],
    }


def path_of(history: Path, budget: float) -> list[list[float]]:
    """Both objectives of the synthetic problem, round by round, where they moved visibly."""
    kept: list[list[float]] = []
    points = [(r["worst_loss"], r["largest_violation"] + budget) for r in read_history(history)]
    for point in points:
        if not kept or math.dist(point, kept[-1]) >= SEEN or point is points[-1]:
            kept.append([round(value, 4) for value in point])
    return kept


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)
