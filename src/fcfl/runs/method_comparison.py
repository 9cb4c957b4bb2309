"""Several methods on the same rows: one run for each method and seed, and what they add up to."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from fcfl._checks import check_choice
from fcfl.errors import FCFLError, Interrupted
from fcfl._files import write_json
from fcfl.runs.folder import (SETTINGS, prepare_folder)
from fcfl.runs.run import check_groups, run_experiment
from fcfl.runs.settings import Experiment
from fcfl.server.registry import METHODS
from fcfl.runs.tasks import open_federation, open_task
from fcfl.training.rounds import Session
from fcfl.federation.checkpoint import checkpoint_path

SCHEMA = 1
COMPARISON = "comparison.json"
CONFIDENCE = 0.95  # of the intervals over seeds
_MEASURED = (
    "worst_accuracy", "accuracy", "worst_train_loss", "largest_disparity", "rounds",
    "bytes_from_clients", "seconds",
)  # fmt: skip


def parse_methods(text: str | None) -> tuple[str, ...]:
    """Names with commas; left out, all methods."""
    if text is None:
        return tuple(METHODS)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("`methods` is empty. Example: --methods sqp,two-stage,fedavg")
    for name in names:
        check_choice("methods", name, METHODS)
    return names


def run_comparison(
    experiment: Experiment, methods: Sequence[str], seeds: Sequence[int], session: Session
) -> dict[str, Any]:
    """Run every method with every seed and write ``comparison.json`` after each.

    With ``session.resume`` a finished run is read back and an unfinished one goes on; rows that
    differ from theirs are an error. A method that fails is told and listed; the others still run.
    A table that cannot be read, or has no two groups to compare, is an error before the first.
    """
    first = for_method(experiment, methods[0], seeds[0])
    check_groups(first, open_task(first))
    rows = {seed: open_federation(replace(experiment, seed=seed)).checksum for seed in seeds}
    runs: list[dict[str, Any]] = []
    session.folder.mkdir(parents=True, exist_ok=True)
    for method in methods:
        for seed in seeds:
            folder = session.folder / (method if len(seeds) == 1 else f"{method}-seed-{seed}")
            one = for_method(experiment, method, seed)
            done, total = len(runs) + 1, len(methods) * len(seeds)
            session.on_message(f"{folder.name}, run {done} of {total}")
            runs.append(_run(one, folder, replace(session, on_message=_quiet), rows[seed]))
            if runs[-1]["status"] == "failed":
                session.on_message(f"{folder.name} failed: {runs[-1]['message']}")
            content = compose(experiment, runs)
            write_json(session.folder / COMPARISON, content)
    return content


def for_method(experiment: Experiment, method: str, seed: int) -> Experiment:
    """The same experiment by another method; what only one method knows is left to it."""
    own = method == experiment.method
    return replace(
        experiment,
        method=method,
        seed=seed,
        objective=experiment.objective if own else None,
        curvature=experiment.curvature if own else "auto",
        l2=None if experiment.l2 == "auto" and method != "sqp" else experiment.l2,
    )


def _quiet(sentence: str) -> None:
    """Notes are in each run's result; eleven times the same would hide what differs."""


def _run(experiment: Experiment, folder: Path, session: Session, rows: str) -> dict[str, Any]:
    """One run as it is on disk, or as it goes on, or from its beginning."""
    result, settings = folder / "result.json", folder / SETTINGS
    same = session.resume and settings.exists() and Experiment.from_toml(settings) == experiment
    if same:
        prepare_folder(experiment, rows, folder, resume=True, on_message=session.on_message)
    if same and result.exists():
        return summarise(folder, json.loads(result.read_text(encoding="utf-8")))
    try:
        finished = run_experiment(
            experiment,
            folder,
            resume=same and checkpoint_path(folder).exists(),
            overwrite=True,
            on_round=session.on_round,
            on_message=session.on_message,
        )
    except Interrupted:
        raise
    except FCFLError as error:
        return _failed(experiment, folder, str(error))
    return summarise(folder, finished.result)


def _failed(experiment: Experiment, folder: Path, message: str) -> dict[str, Any]:
    nothing = dict.fromkeys((*_MEASURED, "worst_client", "largest_client", "low", "high"))
    return {
        "folder": folder.name, "method": experiment.method, "seed": experiment.seed,
        "status": "failed", "message": message, "part": None, **nothing,
        "verdicts": {}, "clients": {},
    }  # fmt: skip


def summarise(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """What a comparison says of one run, on held-out rows where there are any."""
    clients = result["clients"]
    part = "test" if any(who["rows"]["test"] for who in clients.values()) else "train"
    served = {c: who[part]["accuracy"] for c, who in clients.items()}
    known = {c: value for c, value in served.items() if value is not None}
    worst = min(known, key=lambda c: known[c]) if known else None
    shown = {c: _largest(who[part]["disparities"]) for c, who in clients.items()}
    measured = {c: entry for c, entry in shown.items() if entry.get("value") is not None}
    largest = max(measured, key=lambda c: measured[c]["value"]) if measured else None
    entry = measured[largest] if largest is not None else {}
    budgeted = [e for who in clients.values() for e in who[part]["disparities"] if e["verdict"]]
    verdicts = [e["verdict"] for e in budgeted]
    return {
        "folder": folder.name,
        "method": result["method"],
        "seed": result["seed"],
        "status": result["status"],
        "message": result["message"],
        "part": part,
        "worst_client": worst,
        "worst_accuracy": known[worst] if worst is not None else None,
        "accuracy": result["global"][part]["accuracy"],
        "worst_train_loss": result["worst_client"]["train_loss"],
        "largest_client": largest,
        "largest_disparity": entry.get("value"),
        "low": entry.get("low"),
        "high": entry.get("high"),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        "rounds": sum(result["rounds"].values()),
        "bytes_from_clients": result["bytes_from_clients"],
        "seconds": result["seconds"],
        "clients": {
            c: {"accuracy": served[c], **{k: shown[c].get(k) for k in ("value", "verdict")}}
            for c in clients
        },
    }


def _largest(disparities: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The largest difference of group rates among a client's rules; ratios are not comparable."""
    found = [e for e in disparities if e["value"] is not None and e["rule"] != "ratio"]
    return max(found, key=lambda e: e["value"], default={})


def compose(experiment: Experiment, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything ``comparison.json`` says."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_method.setdefault(run["method"], []).append(run)
    return {
        "schema": SCHEMA,
        "table": experiment.table,
        "confidence_over_seeds": CONFIDENCE,
        "methods": [_over_seeds(method, found) for method, found in by_method.items()],
        "runs": list(runs),
    }


def _over_seeds(method: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, each with an interval where there are several."""
    clients = dict.fromkeys(c for run in runs for c in run["clients"])
    return {
        "method": method,
        "what": METHODS[method].help,
        "seeds": [run["seed"] for run in runs],
        "failed": sum(run["status"] == "failed" for run in runs),
        **{key: over_seeds([run[key] for run in runs]) for key in _MEASURED},
        "verdicts": _added([run["verdicts"] for run in runs]),
        "clients": {
            c: {
                "accuracy": over_seeds([run["clients"].get(c, {}).get("accuracy") for run in runs]),
                "disparity": over_seeds([run["clients"].get(c, {}).get("value") for run in runs]),
            }
            for c in clients
        },
    }


def over_seeds(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean, and the ends of Student's interval for it where there are two values or more."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if known.size == 0:
        return {"mean": None, "low": None, "high": None, "sd": None}
    mean = float(known.mean())
    if known.size == 1:
        return {"mean": mean, "low": None, "high": None, "sd": None}
    spread = float(known.std(ddof=1))
    half = float(student.ppf(0.5 + CONFIDENCE / 2, known.size - 1)) * spread / math.sqrt(known.size)
    return {"mean": mean, "low": mean - half, "high": mean + half, "sd": spread}


def _added(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for count in counts for name in count)
    return {name: sum(count.get(name, 0) for count in counts) for name in names}
