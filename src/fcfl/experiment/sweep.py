"""The trade-off curve: the same run under one budget after another, each from the one before."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcfl._types import Vector
from fcfl.experiment.folder import SETTINGS, write_json
from fcfl.experiment.model_file import load_model
from fcfl.experiment.running import Finished, run_experiment
from fcfl.experiment.settings import Experiment
from fcfl.experiment.training import Session


def run_sweep(
    experiment: Experiment, budgets: Sequence[float], session: Session, *, relative: bool
) -> dict[str, Any]:
    """Train under each budget, the loosest first, and write ``sweep.json`` with one point each.

    What is left to cross-validation is chosen at the first budget and kept. A point whose folder
    holds its finished run is not trained again.
    """
    if not budgets:
        raise ValueError("`budgets` must hold at least one number.")
    if experiment.is_constrained:
        raise ValueError("A sweep sets the budgets itself; leave budget and ratio out.")
    name = "relative_budget" if relative else "budget"
    points: list[dict[str, Any]] = []
    params: Vector | None = None
    last: dict[str, Any] = {}
    for position, value in enumerate(sorted(budgets, reverse=True)):
        one = replace(experiment, **{name: value})  # type: ignore[arg-type]
        folder = session.folder / f"{name.replace('_', '-')}-{value:g}"
        finished = _run_or_read(one, folder, session, params, position / len(budgets))
        params, last = finished.params, finished.result
        if experiment.wants_selection:
            experiment = experiment.settled(last["l2"], last["consistency"])
        points.append(_point("relative" if relative else "budget", value, finished))
        session.folder.mkdir(parents=True, exist_ok=True)
        write_json(session.folder / "sweep.json", {"points": points})
    write_json(session.folder / "result.json", {**last, "sweep": points})
    return {"points": points}


def _run_or_read(
    experiment: Experiment, folder: Path, session: Session, first: Vector | None, done: float
) -> Finished:
    """A finished run of these settings as it is, else a new one, from ``first`` if given."""
    result = folder / "result.json"
    settings = folder / SETTINGS
    if session.resume and result.exists() and Experiment.from_toml(settings) == experiment:
        return _read(folder)
    session.tell(f"{folder.name}:")
    return run_experiment(
        experiment,
        folder,
        overwrite=True,
        watch=session.watch,
        tell=session.tell if done == 0 else lambda sentence: None,
        first_params=first,
    )


def _read(folder: Path) -> Finished:
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return Finished(folder, result, True, load_model(folder).params)


def _point(name: str, value: float, finished: Finished) -> dict[str, Any]:
    """What the curve shows of one run."""
    result = finished.result
    worst = result["worst_client"]
    return {
        name: value,
        "status": result["status"],
        "rounds": sum(result["rounds"].values()),
        "worst_client": worst["name"],
        "worst_client_train_loss": worst["train_loss"],
        "worst_client_test_accuracy": worst["test_accuracy"],
        "test_accuracy": result["global"]["test"]["accuracy"],
        "largest_train_disparity": _largest(result, "train", "smooth"),
        "largest_test_disparity": _largest(result, "test", "value"),
        "folder": finished.folder.name,
    }


def _largest(result: dict[str, Any], part: str, key: str) -> float | None:
    values = [
        entry[key]
        for client in result["clients"].values()
        for entry in client[part]["disparities"]
        if entry[key] is not None and entry["rule"] == "difference"
    ]
    return max(values) if values else None


def parse_budgets(text: str) -> tuple[float, ...]:
    """``0.2,0.1,0.05`` as numbers."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(
            f"Budgets must be numbers with commas, such as 0.2,0.1,0.05, got {text!r}."
        ) from None
