"""Run an experiment and write its folder; stopped half way, it goes on from its checkpoint."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcfl import __version__
from fcfl._types import Point, Request
from fcfl.errors import CheckpointError, FCFLError, Interrupted
from fcfl.experiment.results import SCHEMA
from fcfl.experiment.settings import Experiment
from fcfl.experiment.tasks import Task, open_task
from fcfl.runtime.checkpoint import load_checkpoint, replace_file, save_checkpoint
from fcfl.runtime.codec import same
from fcfl.runtime.history import History
from fcfl.runtime.loop import Progress, run
from fcfl.server.method import FEASIBILITY_TOLERANCE, RoundInfo
from fcfl.server.problem import evaluate_point

Watch = Callable[[RoundInfo, float], None]
CHECKPOINT_SECONDS = 2.0


@dataclass(frozen=True)
class Finished:
    """A run that came to an end; ``budgets_met`` speaks of smooth disparities on training rows."""

    folder: Path
    result: dict[str, Any]
    budgets_met: bool


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Finished:
    """Train and write ``result.json``, ``model.json``, ``history.jsonl`` and the settings.

    ``watch`` is called after every round with its info and the share done; ``tell`` gets sentences
    a person should read.
    """
    began = time.monotonic()
    prepare_folder(experiment, folder, resume=resume, overwrite=overwrite)
    task: Task = open_task(experiment)
    for note in task.notes:
        tell(note)
    if experiment.relative_budget is not None:
        task = _measure_budgets(experiment, task, folder, resume, watch, tell)
    progress, notes = train(experiment, task, folder, resume=resume, watch=watch, tell=tell)
    result = compose_result(experiment, task, progress, notes)
    result["seconds"] = time.monotonic() - began
    task.save_model(progress.state.params, folder)
    write_json(folder / "result.json", result)
    return Finished(folder, result, _largest_violation(task, progress) <= FEASIBILITY_TOLERANCE)


def prepare_folder(
    experiment: Experiment, folder: Path, *, resume: bool, overwrite: bool = False
) -> None:
    """Make the folder and write the settings; refuse to mix two runs in one."""
    settings = folder / "experiment.toml"
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; `--out` needs a folder.")
    if settings.exists():
        before = Experiment.from_toml(settings)
        if before != experiment and not overwrite:
            raise FCFLError(
                f"The folder {str(folder)!r} holds a run with other settings. "
                "Choose another `--out`, or pass `--overwrite`."
            )
    elif resume:
        raise CheckpointError(f"There is no run to resume in {str(folder)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(settings, experiment.to_toml().encode())


def train(
    experiment: Experiment,
    task: Task,
    folder: Path,
    *,
    resume: bool,
    watch: Watch | None,
    tell: Callable[[str], None],
) -> tuple[Progress[Any], tuple[str, ...]]:
    """The loop, with history and checkpoints in ``folder``."""
    method: Any = experiment.make_method()
    problem, notes = task.state(experiment.l2)
    for note in notes:
        tell(note)
    progress = Progress(method.init(task.first_params(experiment), problem))
    if resume:
        progress = _resumed(folder, progress, tell)
    keeper = _Keeper(folder, tell)
    with History(folder / "history.jsonl", rounds_kept=sum(progress.state.rounds)) as history:
        try:
            for reached, info in run(method, progress, task.runtime):
                progress = reached
                history.append(info)
                if keeper.is_due():
                    history.flush()
                    keeper.save(progress)
                if watch is not None:
                    watch(info, method.fraction_done(progress.state))
        except KeyboardInterrupt:
            keeper.save(progress)
            raise Interrupted(
                f"Stopped after round {sum(progress.state.rounds)}. "
                f"Go on with: fcfl train --resume --out {folder}"
            ) from None
        except FCFLError:
            keeper.save(progress)
            raise
    keeper.save(progress)
    return progress, notes


class _Keeper:
    """Saves a checkpoint now and then; a full disk is told once and does not stop the run."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._last = time.monotonic()
        self._failed = False

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= CHECKPOINT_SECONDS

    def save(self, progress: Progress[Any]) -> None:
        self._last = time.monotonic()
        try:
            save_checkpoint(self._folder, progress)
        except OSError as error:
            if not self._failed:
                self._tell(f"Cannot write a checkpoint ({error.strerror}); training goes on.")
            self._failed = True


def _resumed(folder: Path, fresh: Progress[Any], tell: Callable[[str], None]) -> Progress[Any]:
    """The checkpoint's progress, if it is of the same problem."""
    try:
        loaded = load_checkpoint(folder)
    except CheckpointError as error:
        tell(f"{error} Starting from the beginning.")
        return fresh
    if loaded.warning:
        tell(loaded.warning)
    if not same(loaded.progress.state.problem, fresh.state.problem):
        raise CheckpointError(
            f"The checkpoint in {str(folder)!r} is of other rows or budgets than these; "
            "it cannot be resumed with them."
        )
    return loaded.progress


def _measure_budgets(
    experiment: Experiment,
    task: Task,
    folder: Path,
    resume: bool,
    watch: Watch | None,
    tell: Callable[[str], None],
) -> Task:
    """Train without budgets first: the disparities there are what budgets are relative to."""
    place = folder / "unconstrained"
    place.mkdir(exist_ok=True)
    tell("Training without budgets first, to measure what they are relative to.")
    assert experiment.relative_budget is not None
    started = resume and (place / "checkpoint.fcfl").exists()
    progress, _ = train(experiment, task, place, resume=started, watch=watch, tell=tell)
    budgets = task.relative_budgets(progress.state.params, experiment.relative_budget)
    for attribute_budgets in budgets:
        listed = ", ".join(f"{c} {v:.4f}" for c, v in list(attribute_budgets.items())[:12])
        tell(f"Budgets at {experiment.relative_budget:g} of the unconstrained disparity: {listed}.")
    return task.with_relative_budgets(budgets)


def compose_result(
    experiment: Experiment, task: Task, progress: Progress[Any], notes: tuple[str, ...]
) -> dict[str, Any]:
    """Everything ``result.json`` says."""
    state, tally = progress.state, progress.tally
    return {
        "schema": SCHEMA,
        "method": experiment.method,
        "status": state.status,
        "message": state.message,
        "rounds": {f"stage{i + 1}": count for i, count in enumerate(state.rounds)},
        "evaluations": {
            "value": tally.values,
            "gradient": tally.gradients,
            "curvature": tally.curvatures,
        },
        "bytes_from_clients": tally.bytes_from_clients,
        "seconds": None,
        "kkt_residual": None,
        "l2": experiment.l2,
        "consistency": "max" if experiment.method == "two-stage" else None,
        "selection": None,
        "seed": experiment.seed,
        "fcfl_version": __version__,
        **task.sections(state.params),
        "settings": {k: v for k, v in asdict(experiment).items() if v is not None},
        "data": {"table": experiment.table, "sha256": task.checksum},
        "notes": [*task.notes, *notes],
    }


def _largest_violation(task: Task, progress: Progress[Any]) -> float:
    state = progress.state
    reports = task.runtime.evaluate(Request((Point(state.params),)))
    return evaluate_point(state.problem, state.params, reports).largest_violation


def write_json(path: Path, content: Any) -> None:
    """Write JSON in one step; numbers that are not finite become null."""
    text = json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(path, (text + "\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
