"""Run an experiment and write its folder, or resume it from a checkpoint."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fcfl._files import replace_file, write_json
from fcfl._types import Vector
from fcfl.errors import CheckpointError, FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.federation.session import OnRound, OverPhases, Session, forget, may_change
from fcfl.results import RESULT, Result, read_result
from fcfl.results.findings import exceeded_budgets
from fcfl.results.result import DataSource
from fcfl.runs.opening import Opened, Opener, open_run
from fcfl.runs.settings import Experiment
from fcfl.training.choose import open_settings
from fcfl.training.run import Run
from fcfl.training.train import Trained, train

SETTINGS = "experiment.toml"
ROWS = "rows.sha256"
_WRITTEN = ("result.json", "model.json", "params.txt", "report.html")


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    folder: Path
    result: Result
    params: Vector

    @property
    def budgets_met(self) -> bool:
        """Return whether hard rates on the training rows satisfy every budget that is compared."""
        return not exceeded_budgets(self.result)


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_round: OnRound | None = None,
    on_message: Callable[[str], None] = lambda sentence: None,
) -> Finished:
    """Train and write ``result.json``, ``model.json``, ``history.jsonl`` and the settings.

    ``on_round`` is called after every round with its info and the completed share of the work.
    ``on_message`` is called with messages for the user.
    """
    session = Session(folder, resume, on_round, on_message)
    return run_session(experiment, session, overwrite=overwrite)


def run_session(
    experiment: Experiment,
    session: Session,
    *,
    opener: Opener = open_run,
    overwrite: bool = False,
) -> Finished:
    """Run an experiment opened by ``opener`` and write the session's folder."""
    began, folder = time.monotonic(), session.required_folder
    check_folder(experiment, folder, resume=session.resume, overwrite=overwrite)
    opened = opener(experiment)
    for note in opened.notes:
        session.on_message(note)
    on_round = None if session.on_round is None else OverPhases(session.on_round)

    def begin(run: Run) -> None:
        """Check that groups can be compared, then prepare the folder."""
        if experiment.privacy is None:
            pooling = "none" if experiment.thresholds == "group" else experiment.pooling
            relative = experiment.relative_budget is not None
            run.check_comparable(relative=relative, pooling=pooling)
        prepare_folder(experiment, opened.checksum, session)

    with writing(folder):
        session = replace(session, on_round=on_round, on_met=begin)
        trained = _train(experiment, opened, session)
        result = _result(trained, experiment, opened)
        result = result.replace(seconds=time.monotonic() - began)
        inputs = opened.inputs
        if inputs is not None:
            inputs = replace(inputs, thresholds=trained.thresholds)
        opened.model.write(trained.params, folder, inputs)
        write_json(folder / RESULT, result)
    return Finished(folder, result, trained.params)


def run_or_read(
    experiment: Experiment, session: Session, rows_sha256: str, opener: Opener = open_run
) -> Result:
    """Run one of many experiments, or return its stored result if the session resumes.

    Raise `CheckpointError` if the stored run has other rows, identified by ``rows_sha256``. A
    finished run with other ``rounds`` is trained again.
    """
    folder = session.required_folder
    settings = folder / SETTINGS
    session = replace(session, resume=session.resume and settings.exists())
    if session.resume and (folder / RESULT).exists():
        check_folder(experiment, folder, resume=True, overwrite=False)
        if Experiment.from_toml(settings).rounds == experiment.rounds:
            prepare_folder(experiment, rows_sha256, session)
            return read_result(folder / RESULT)
        session = replace(session, resume=False)
    overwrite = not session.resume  # `_check_folders` has rejected folders with other settings
    return run_session(experiment, session, opener=opener, overwrite=overwrite).result


def _train(experiment: Experiment, opened: Opened, session: Session) -> Trained:
    """Train an opened run with the settings of the experiment."""
    settings = open_settings(experiment.method, opened.model, experiment.l2, experiment.objective)
    return train(
        opened.federation,
        opened.model,
        opened.rules,
        method=experiment.make_method() if opened.method is None else opened.method,
        l2=settings.l2,
        objective=settings.objective,
        confidence=experiment.confidence,
        relative_budget=experiment.relative_budget,
        min_group_rows=opened.min_group_rows,
        max_accuracy_loss=experiment.max_accuracy_loss,
        max_rate_shift=experiment.max_rate_shift,
        pooling=experiment.pooling,
        new_rows=experiment.new_rows,
        starts=experiment.starts,
        thresholds=experiment.thresholds,
        groups=opened.groups,
        seed=experiment.seed,
        session=session,
        verbose=False,  # the command line shows its own progress bar
    )


def _result(trained: Trained, experiment: Experiment, opened: Opened) -> Result:
    """Return the result to write, with the chosen settings in place of open ones."""
    checksum = opened.checksum
    if experiment.privacy is not None:  # a checksum would confirm a guess of all rows
        checksum = "withheld: the rows are private"
    result = trained.result(
        seed=experiment.seed,
        start=experiment.start,
        settings=asdict(replace(experiment, l2=trained.l2, objective=trained.objective)),
        data=DataSource(experiment.table, checksum, opened.policy_sha256),
        notes=opened.notes,
    )
    if opened.deployment is None:
        return result
    return result.replace(deployment=opened.deployment(not exceeded_budgets(result)))


# --- the folder of a run --------------------------------------------------------------------------


def may_change_on_resume(stored: Experiment) -> set[str]:
    """Return the settings that may differ from the stored ones when the run is resumed."""
    return {"max_clients", *may_change(stored.make_method())}


def check_folder(experiment: Experiment, folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise if the folder holds a run with other settings."""
    settings = folder / SETTINGS
    _check_is_no_file(folder)
    if resume and not settings.exists():
        raise CheckpointError(f"There is no run to resume in {str(folder)!r}.")
    if not resume and (overwrite or not settings.exists()):
        return
    stored = Experiment.from_toml(settings)
    allowed = may_change_on_resume(stored) if resume else set()
    names = _differing(stored, experiment, allowed)
    if names:
        before, now = getattr(stored, names[0]), getattr(experiment, names[0])
        more = f", and {len(names) - 1} more" if names[1:] else ""
        raise FCFLError(
            f"The folder {str(folder)!r} holds a run with other settings ({names[0]} is "
            f"{before!r}, got {now!r}{more}). Choose another `--out`, or pass `--overwrite`."
        )


def is_same_run(stored: Experiment, given: Experiment) -> bool:
    """Return whether a run with settings ``stored`` may be resumed with settings ``given``."""
    return not _differing(stored, given, may_change_on_resume(stored))


def _differing(stored: Experiment, given: Experiment, allowed: set[str]) -> list[str]:
    """Return the names of settings that differ, except the ``allowed`` names."""
    before, now = asdict(stored), asdict(given)
    return [name for name in before if before[name] != now[name] and name not in allowed]


def check_free_folder(folder: Path) -> None:
    """Raise `FCFLError` if the folder holds a training run or is a file."""
    _check_is_no_file(folder)
    if (folder / SETTINGS).exists():
        raise FCFLError(f"The folder {str(folder)!r} holds a training run. Choose another `--out`.")


def _check_is_no_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"`--out` must be a folder, got the file {str(folder)!r}.")


def prepare_folder(experiment: Experiment, rows_sha256: str, session: Session) -> None:
    """Write the settings and the rows' checksum; delete an older run unless the session resumes."""
    folder = session.required_folder
    checksum = folder / ROWS
    if session.resume:
        if checksum.exists() and checksum.read_text(encoding="utf-8").strip() != rows_sha256:
            raise CheckpointError(
                f"The run in {str(folder)!r} cannot be resumed, because its rows were different. "
                "Choose another `--out`."
            )
    else:
        if checkpoint_path(folder).exists() and not (folder / "result.json").exists():
            session.on_message(
                f"Restarting the unfinished run in {str(folder)!r}; `--resume` would continue it."
            )
        folder.mkdir(parents=True, exist_ok=True)
        forget(folder)
        for name in _WRITTEN:
            (folder / name).unlink(missing_ok=True)
        replace_file(checksum, (rows_sha256 + "\n").encode())
    replace_file(folder / SETTINGS, experiment.to_toml().encode())


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise `FCFLError` with the folder for an `OSError`, and `Interrupted` for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Stopped.") from None
    except OSError as error:
        raise FCFLError(
            f"Cannot write to the folder {str(folder)!r}: {error.strerror or error}."
        ) from error
