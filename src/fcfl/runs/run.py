"""Run an experiment and write its folder; stopped half way, it goes on from its checkpoint."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fcfl._files import write_json
from fcfl._types import Vector
from fcfl.errors import CheckpointError, FCFLError, Interrupted
from fcfl.results import Result
from fcfl.results.files import RESULT
from fcfl.results.findings import exceeded_budgets
from fcfl.results.result import DataSource
from fcfl.runs.folder import check_folder, prepare_folder, writing
from fcfl.runs.opening import Opened, Opener, open_run
from fcfl.runs.settings import Experiment
from fcfl.training.fit import check_rules, train
from fcfl.training.margins import Pooling
from fcfl.training.progress_share import OnRound, OverPhases
from fcfl.training.rounds import Session
from fcfl.training.stages import Run
from fcfl.training.trained import Trained

GIVEN = "given"  # the name of a start that the caller gives


@dataclass(frozen=True)
class Finished:
    """A run that came to an end."""

    folder: Path
    result: Result
    params: Vector

    @property
    def budgets_met(self) -> bool:
        """Whether decisions on the training rows meet every budget that can be compared."""
        return not exceeded_budgets(self.result)


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_round: OnRound | None = None,
    on_message: Callable[[str], None] = lambda sentence: None,
    first_params: Vector | None = None,
) -> Finished:
    """Train and write ``result.json``, ``model.json``, ``history.jsonl`` and the settings.

    ``on_round`` is called after every round with its info and the share of everything that is
    done, choosing settings and later turns included; ``on_message`` gets
    sentences a person should read. ``first_params`` replaces the experiment's own start.
    """
    try:
        check_folder(experiment, folder, resume=resume, overwrite=overwrite)
    except CheckpointError:
        raise
    except FCFLError:
        open_run(experiment)  # a misspelt column is told before "other settings"
        raise
    session = Session(folder, resume, on_round, on_message)
    return run_session(experiment, session, overwrite=overwrite, first_params=first_params)


def run_session(
    experiment: Experiment,
    session: Session,
    *,
    opener: Opener = open_run,
    overwrite: bool = False,
    first_params: Vector | None = None,
) -> Finished:
    """The same as the session says it, with the rows wherever ``opener`` finds them."""
    began, folder = time.monotonic(), session.required_folder
    if session.on_round is not None:
        session = replace(session, on_round=OverPhases(session.on_round))
    check_folder(experiment, folder, resume=session.resume, overwrite=overwrite)
    opened = opener(experiment)
    for note in opened.notes:
        session.on_message(note)
    return _run_opened(experiment, opened, session, began, first_params)


def _run_opened(
    experiment: Experiment,
    opened: Opened,
    session: Session,
    began: float,
    first_params: Vector | None,
) -> Finished:
    """Train what was opened and write the folder."""
    folder = session.required_folder

    def begin(run: Run) -> None:
        """Check the budgets against the groups before anything is written."""
        if experiment.privacy is None:
            relative = experiment.relative_budget is not None
            run.check_comparable(relative=relative, pooling=_pooling(experiment))
        prepare_folder(
            experiment,
            opened.checksum,
            folder,
            resume=session.resume,
            on_message=session.on_message,
        )

    with writing(folder), resumable():
        trained = train(
            opened.federation,
            opened.model,
            opened.rules,
            method=experiment.make_method() if opened.method is None else opened.method,
            l2=_unless_alone(experiment.l2_or_default, opened, 0.0),
            objective=_unless_alone(experiment.objective_or_default, opened, "max"),
            confidence=experiment.confidence,
            relative_budget=experiment.relative_budget,
            excess_loss=experiment.excess_loss,
            min_group_rows=opened.min_group_rows,
            max_accuracy_loss=experiment.max_accuracy_loss,
            max_rate_shift=experiment.max_rate_shift,
            pooling=experiment.pooling,
            new_rows=experiment.new_rows,
            starts=experiment.starts,
            thresholds=experiment.thresholds,
            groups=opened.groups,
            seed=experiment.seed,
            start=first_params,
            session=replace(session, on_met=begin),
            verbose=False,  # the command line has a bar of its own
        )
        start = experiment.start if first_params is None else GIVEN
        result = _result(trained, experiment, opened, start)
        result = result.replace(seconds=time.monotonic() - began)
        inputs = opened.inputs
        if inputs is not None:
            inputs = replace(inputs, thresholds=trained.thresholds)
        opened.model.write(trained.params, folder, inputs)
        write_json(folder / RESULT, result)
    return Finished(folder, result, trained.params)


def _result(trained: Trained, experiment: Experiment, opened: Opened, start: str) -> Result:
    """What is written of the run, with the settings that were chosen."""
    settled = replace(experiment, l2=trained.l2, objective=trained.objective)
    result = trained.result(
        seed=experiment.seed,
        start=start,
        settings=asdict(settled),
        data=DataSource(experiment.table, _told_checksum(experiment, opened), opened.policy_sha256),
        notes=opened.notes,
    )
    if opened.deployment is None:
        return result
    return result.replace(deployment=opened.deployment(not exceeded_budgets(result)))


def _told_checksum(experiment: Experiment, opened: Opened) -> str:
    """That of the rows; of private ones it would tell whether a guess at all of them is right."""
    return opened.checksum if experiment.privacy is None else "not told: the rows are private"


def _unless_alone(setting: Any, opened: Opened, otherwise: Any) -> Any:
    """A setting; where the model has its own L2 weight, nothing is left to be chosen."""
    return otherwise if setting == "auto" and opened.model.default_l2 is not None else setting


def check_groups(experiment: Experiment, opened: Opened) -> None:
    """Refuse budgets where no two groups can be compared, before anything is written."""
    check_rules(
        opened.federation,
        opened.model,
        opened.rules,
        method=experiment.make_method(),
        relative=experiment.relative_budget is not None,
        min_group_rows=opened.min_group_rows,
        thresholds=experiment.thresholds,
        pooling=_pooling(experiment),
        groups=opened.groups,
    )


def _pooling(experiment: Experiment) -> Pooling:
    """Whether comparisons may be pooled; thresholds by group never are."""
    return "none" if experiment.thresholds == "group" else experiment.pooling


@contextmanager
def resumable() -> Iterator[None]:
    """Stopped outside the rounds, as while choosing settings, a run can be resumed too."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Stopped.") from None
