"""Run an experiment and write its folder; stopped half way, it goes on from its checkpoint."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fcfl._types import Point, Request, Vector
from fcfl.errors import DataError, FCFLError, Interrupted
from fcfl.runs.folder import (
    SELECTION,
    UNCONSTRAINED,
    UNTIGHTENED,
    check_folder,
    prepare_folder,
    writing,
)
from fcfl.results import DataSource, EvaluationCounts, Result, Selection, write_result
from fcfl.results.compose import compose_result, has_prices
from fcfl.results.result import objective_setting
from fcfl.results.result_file import RESULT, read_selection, write_selection
from fcfl.training.selection import Rows, select
from fcfl.runs.settings import Experiment
from fcfl.runs.tasks import ResultSource, TableTask, Task, open_task
from fcfl.training.margins import tighten
from fcfl.training.rounds import Session, Watch, train
from fcfl.rules import Rule
from fcfl.federation.loop import Progress
from fcfl.server.method import FEASIBILITY_TOLERANCE
from fcfl.server.problem import Evaluation, evaluate_point


GIVEN = "given"  # the name of a start that the caller gives


@dataclass(frozen=True)
class Finished:
    """A run that came to an end; ``budgets_met`` speaks of smooth disparities on training rows."""

    folder: Path
    result: Result
    budgets_met: bool
    params: Vector


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_round: Watch | None = None,
    on_message: Callable[[str], None] = lambda sentence: None,
    first_params: Vector | None = None,
) -> Finished:
    """Train and write ``result.json``, ``model.json``, ``history.jsonl`` and the settings.

    ``on_round`` is called after every round with its info and the share done; ``on_message`` gets sentences
    a person should read. ``first_params`` replaces the experiment's own start.
    """
    began = time.monotonic()
    check_folder(experiment, folder, resume=resume, overwrite=overwrite)
    task: Task = open_task(experiment)
    for note in task.notes:
        on_message(note)
    check_groups(experiment, task)
    session = Session(folder, resume, on_round, on_message)
    with writing(folder):
        prepare_folder(experiment, task.checksum, folder, resume=resume, on_message=on_message)
    with writing(folder), resumable():
        settled, selection = choose_settings(experiment, task, session)
        if experiment.relative_budget is not None:
            task = measure_budgets(settled, task, session)
        start = experiment.start if first_params is None else GIVEN
        notes: tuple[str, ...] = ()
        if experiment.confidence is not None:
            task, first_params, notes = tighten_budgets(settled, task, session, first_params)
        progress, left_out = train(settled, task, session, first_params)
        result = describe_run(
            settled, task, progress, [*task.notes, *left_out, *notes], start, selection
        )
        result = replace(result, seconds=time.monotonic() - began)
        task.save_model(progress.state.params, folder)
        write_result(folder / RESULT, result)
    met = _evaluate(task, progress.state).largest_violation <= FEASIBILITY_TOLERANCE
    return Finished(folder, result, met, progress.state.params)


@contextmanager
def resumable() -> Iterator[None]:
    """Stopped outside the rounds, as while choosing settings, a run can be resumed too."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Stopped.") from None


def check_groups(experiment: Experiment, task: Task) -> None:
    """Refuse budgets where no two groups can be compared: nothing would be held to them."""
    if not isinstance(task, TableTask):
        return
    bounded = _bounded_rules(experiment, task)
    if not bounded or replace(task, rules=bounded).state(0.0)[0].constraints.rows:
        return
    attribute = bounded[0].attribute
    groups = _groups_present(task, attribute)
    wayout = "Name another column with `--sensitive`, or leave the budget out."
    if len(groups) == 1:
        raise DataError(
            f"The only group of {attribute!r} among the training rows is {groups[0]!r}: a budget "
            f"needs two to compare. {wayout}"
        )
    where = "Among the training rows"
    if all(rule.scope == "client" for rule in bounded):
        where = "Among the training rows of each client with a budget"
        wayout = f"Compare all rows together with `--scope global`. {wayout}"
    raise DataError(
        f"{where} there are no two groups of {attribute!r} with the rows that "
        f"{bounded[0].metric} compares. {wayout}"
    )


def _bounded_rules(experiment: Experiment, task: TableTask) -> tuple[Rule, ...]:
    """The rules with budgets; relative ones are yet to be measured, and any number will do."""
    if experiment.relative_budget is not None:
        return tuple(replace(rule, budget=1.0) for rule in task.rules)
    return tuple(rule for rule in task.rules if rule.budget is not None)


def _groups_present(task: TableTask, attribute: str) -> list[str]:
    """The groups that some client has training rows of."""
    clients = task.federation.train.values()
    codes = {int(code) for data in clients for code in set(data.groups[attribute].tolist())}
    return [task.federation.levels[attribute][code] for code in sorted(codes) if code >= 0]


def choose_settings(
    experiment: Experiment, task: Task, session: Session
) -> tuple[Experiment, Selection | None]:
    """Settle what is left to cross-validation; chosen once, it is read back on resuming."""
    if not experiment.wants_selection:
        return experiment, None
    if not isinstance(task, TableTask):
        return experiment.settled(0.0, "max"), None
    path = session.folder / SELECTION
    if session.resume and path.exists():
        chosen = read_selection(path)
    else:
        rows = Rows(task.federation.train, task.rules, task.rates, task.min_group_rows)
        chosen = select(experiment, rows, session.on_round)
        write_selection(path, chosen)
        session.on_message(chosen.sentence)
    return experiment.settled(chosen.l2, objective_setting(chosen.objective)), chosen


def measure_budgets(experiment: Experiment, task: Task, session: Session) -> Task:
    """Train without budgets first: the disparities there are what budgets are relative to."""
    session.on_message("Training without budgets first, to measure what they are relative to.")
    share = experiment.relative_budget
    assert share is not None
    progress, _ = train(experiment, task, session.inside(UNCONSTRAINED))
    budgets = task.relative_budgets(progress.state.params, share)
    for position, by_client in enumerate(budgets):
        whose = f" for {experiment.sensitive[position]}" if len(budgets) > 1 else ""
        listed = ", ".join(f"{c!r} {v:.4f}" for c, v in list(by_client.items())[:12])
        more = ", …" if len(by_client) > 12 else ""
        session.on_message(
            f"Budgets{whose} are {share:g} of the smooth disparity without budgets: {listed}{more}."
        )
    return task.with_relative_budgets(budgets)


def tighten_budgets(
    experiment: Experiment, task: Task, session: Session, first_params: Vector | None
) -> tuple[Task, Vector, tuple[str, ...]]:
    """Train with the budgets as they are, then lower each by the margin its rows need."""
    if not isinstance(task, TableTask) or experiment.confidence is None:
        raise FCFLError("`confidence` needs a table.")
    progress, _ = train(experiment, task, session.inside(UNTIGHTENED), first_params)
    tightened = tighten(task, progress.state.params, experiment.confidence)
    for note in tightened.notes:
        session.on_message(note)
    return tightened.task, progress.state.params, tightened.notes


def describe_run(
    experiment: Experiment,
    source: ResultSource,
    progress: Progress[Any],
    notes: Sequence[str],
    start: str,
    selection: Selection | None = None,
) -> Result:
    """Everything ``result.json`` says of a run that came to an end."""
    state, tally = progress.state, progress.tally
    return compose_result(
        source.sections(state.params),
        state,
        _evaluate(source, state) if has_prices(state) else None,
        method=experiment.method,
        l2=experiment.l2_weight,
        objective=experiment.objective_or_default,
        seed=experiment.seed,
        start=start,
        settings=asdict(experiment),
        data=DataSource(experiment.table, source.checksum),
        evaluations=EvaluationCounts(tally.values, tally.gradients, tally.curvatures),
        bytes_from_clients=tally.bytes_from_clients,
        notes=notes,
        selection=selection,
    )


def _evaluate(task: ResultSource, state: Any) -> Evaluation:
    reports = task.runtime.evaluate(Request((Point(state.params),)))
    return evaluate_point(state.problem, state.params, reports)
