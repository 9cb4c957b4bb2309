"""Run an experiment and write its folder; stopped half way, it goes on from its checkpoint."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from fcfl.runtime.checkpoint import (
    checkpoint_path,
    load_checkpoint,
    previous_path,
    replace_file,
    save_checkpoint,
)
from fcfl.runtime.codec import same
from fcfl.runtime.history import History
from fcfl.runtime.loop import Progress, run
from fcfl.server.method import FEASIBILITY_TOLERANCE, RoundInfo
from fcfl.server.problem import evaluate_point

Watch = Callable[[RoundInfo, float], None]
CHECKPOINT_SECONDS = 2.0
SETTINGS = "experiment.toml"
ROWS = "rows.sha256"
UNCONSTRAINED = "unconstrained"  # folder of the run that relative budgets are measured on


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
    check_folder(experiment, folder, resume=resume, overwrite=overwrite)
    task: Task = open_task(experiment)
    for note in task.notes:
        tell(note)
    with _writing(folder):
        prepare_folder(experiment, task.checksum, folder, resume=resume, tell=tell)
        if experiment.relative_budget is not None:
            task = _measure_budgets(experiment, task, folder, resume, watch, tell)
        progress, notes = train(experiment, task, folder, resume=resume, watch=watch, tell=tell)
        result = compose_result(experiment, task, progress, notes)
        result["seconds"] = time.monotonic() - began
        task.save_model(progress.state.params, folder)
        write_json(folder / "result.json", result)
    return Finished(folder, result, _largest_violation(task, progress) <= FEASIBILITY_TOLERANCE)


def check_folder(experiment: Experiment, folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to mix two runs in one folder, before any row is read."""
    settings = folder / SETTINGS
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; `--out` needs a folder.")
    if resume and not settings.exists():
        raise CheckpointError(f"There is no run to resume in {str(folder)!r}.")
    kept = resume or (settings.exists() and not overwrite)
    if kept and Experiment.from_toml(settings) != experiment:
        raise FCFLError(
            f"The folder {str(folder)!r} holds a run with other settings. "
            "Choose another `--out`, or pass `--overwrite`."
        )


def prepare_folder(
    experiment: Experiment,
    rows_sha256: str,
    folder: Path,
    *,
    resume: bool,
    tell: Callable[[str], None],
) -> None:
    """Write the settings and the rows' checksum; without ``resume``, clear an older run away."""
    checksum = folder / ROWS
    if resume:
        if checksum.exists() and checksum.read_text(encoding="utf-8").strip() != rows_sha256:
            raise CheckpointError(
                f"The rows differ from those of the run in {str(folder)!r}; "
                "it cannot be resumed with them."
            )
        return
    if checkpoint_path(folder).exists() and not (folder / "result.json").exists():
        tell(f"The unfinished run in {str(folder)!r} starts again; `--resume` would have gone on.")
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / UNCONSTRAINED):
        for name in ("result.json", "model.json", "params.txt", "history.jsonl"):
            (place / name).unlink(missing_ok=True)
        checkpoint_path(place).unlink(missing_ok=True)
        previous_path(place).unlink(missing_ok=True)
    replace_file(checksum, (rows_sha256 + "\n").encode())
    replace_file(folder / SETTINGS, experiment.to_toml().encode())


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """A folder that cannot be written is told in a sentence."""
    try:
        yield
    except OSError as error:
        raise FCFLError(
            f"Cannot write to the folder {str(folder)!r}: {error.strerror or error}."
        ) from error


def train(
    experiment: Experiment,
    task: Task,
    folder: Path,
    *,
    resume: bool,
    watch: Watch | None,
    tell: Callable[[str], None],
) -> tuple[Progress[Any], tuple[str, ...]]:
    """The loop, with history and checkpoints in ``folder``; stopped, it says so and can go on."""
    method: Any = experiment.make_method()
    problem, notes = task.state(experiment.l2)
    for note in notes:
        tell(note)
    progress = Progress(method.init(task.first_params(experiment), problem))
    if resume:
        progress = _resumed(folder, progress, tell)
    keeper = _Keeper(folder, tell)
    path = folder / "history.jsonl"
    try:
        with History(path, rounds_kept=sum(progress.state.rounds)) as history:
            history.flush()
            for reached, info in run(method, progress, task.runtime):
                history.append(info)  # first: a line too many is cut on resuming, one less is lost
                progress = reached
                if keeper.is_due():
                    history.flush()
                    keeper.save(progress)
                if watch is not None:
                    watch(info, method.fraction_done(progress.state))
    except KeyboardInterrupt:
        keeper.save(progress)
        raise Interrupted(f"Stopped after round {sum(progress.state.rounds)}.") from None
    except FCFLError:
        keeper.save(progress)
        raise
    except OSError:
        _cut_torn_line(path)
        keeper.save(progress)
        raise
    keeper.save(progress)
    return progress, notes


def _cut_torn_line(path: Path) -> None:
    """Leave only whole lines of a file whose disk ran full; this needs no room."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


class _Keeper:
    """Saves a checkpoint now and then; a full disk is told once and does not stop training."""

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
    """The checkpoint's progress, if it is of the same problem; without one, the beginning."""
    if not checkpoint_path(folder).exists() and not previous_path(folder).exists():
        tell("No checkpoint was written before the run stopped; it starts from the beginning.")
        return fresh
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
    place = folder / UNCONSTRAINED
    place.mkdir(exist_ok=True)
    tell("Training without budgets first, to measure what they are relative to.")
    share = experiment.relative_budget
    assert share is not None
    started = resume and checkpoint_path(place).exists()
    progress, _ = train(experiment, task, place, resume=started, watch=watch, tell=tell)
    budgets = task.relative_budgets(progress.state.params, share)
    for position, by_client in enumerate(budgets):
        whose = f" for {experiment.sensitive[position]}" if len(budgets) > 1 else ""
        listed = ", ".join(f"{c!r} {v:.4f}" for c, v in list(by_client.items())[:12])
        more = ", …" if len(by_client) > 12 else ""
        tell(
            f"Budgets{whose} are {share:g} of the smooth disparity without budgets: {listed}{more}."
        )
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
