"""`train`: the one way from a federation and a model to a trained one.

The command line, the estimator, `fcfl.torch`, sweeps, comparisons, the reproduction and runs over
sites all come through here. Everything is asked of the federation, so that it works wherever the
clients are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from fcfl._checks import (
    check_confidence,
    check_non_negative,
    check_params,
    check_positive,
    check_share,
    check_starts,
)
from fcfl._types import Vector
from fcfl.errors import AbsentClientError
from fcfl.federation.federation import Federation
from fcfl.models.group_thresholds import Thresholds
from fcfl.models.model import Model, at_threshold
from fcfl.results import Selection, Start
from fcfl.rules import Rule, without_budgets
from fcfl.server.method import traits_of
from fcfl.server.problem import Problem
from fcfl.training.degenerate import find_degenerate, with_advice
from fcfl.training.held import Held
from fcfl.training.holding import Holding
from fcfl.training.margins import MOST_CHANGE
from fcfl.training.open_settings import objective_of, open_settings
from fcfl.training.private_fit import check_private, train_privately
from fcfl.training.progress_bar import progress_bar
from fcfl.training.rounds import Session
from fcfl.training.run_stages import Run, forget, prepare
from fcfl.training.selection import OpenSettings
from fcfl.training.selection_rule import checked_forecast
from fcfl.training.thresholding import Thresholded, check_thresholds, with_thresholds
from fcfl.training.trained import Trained


def train(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule] = (),
    *,
    method: Any = "sqp",
    l2: float | Literal["auto"] | None = None,
    objective: float | Literal["max", "mean", "auto"] | None = None,
    confidence: float | None = None,
    most_change: float = MOST_CHANGE,
    relative_budget: float | None = None,
    excess_loss: bool = False,
    min_group_rows: float | None = None,
    starts: int | None = None,
    threshold: float | None = None,
    thresholds: Thresholds = "common",
    groups: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    start: Vector | None = None,
    session: Session = Session(),  # noqa: B008 - frozen
    verbose: bool | None = None,
) -> Trained:
    """Train one model for all clients, each within its budgets.

    Parameters
    ----------
    federation : the clients
    model : what is trained
    rules : `Difference` and `Ratio`, on attributes that the clients have
        A client that insists on stricter rules of its own gets them.
    method : a name, or a method of ours or yours as an object
    l2 : weight of ``|params|**2 / 2`` in every loss
        By default cross-validated for a linear model trained by "sqp", the model's own for a
        network trained by it, 0 for other methods; with ``excess_loss`` 0.001 for a linear model.
    objective : what is minimised over clients
        "max" (the largest loss), "mean", a temperature between them, or "auto": cross-validated.
        By default that of a method that is given as an object, else as for ``l2``.
    confidence : how sure to be that each budget holds on new rows, as far as a client's rows allow
        Training is then held to tighter bounds; 0 trains with the plain budgets. Either way it
        goes on until decisions on training rows keep them, for methods that can go on. By default
        0.9 for a linear model, 0 for a network, whose training would be repeated.
    most_change : how far the rate of a client's groups together may move for that confidence
    relative_budget : budgets as this share of the disparity each client has without budgets
        They are given to the `Difference` rules that have none.
    excess_loss : compare what each client loses beyond its own best model
    min_group_rows : groups with fewer rows at a client are not compared there
        By default 30, more for a small budget: see `Difference.least_rows`.
    starts : how many starts are compared; the best is kept
        By default 4 for a linear model, 1 for a network or where ``start`` is given.
    threshold : the probability from which on a row is selected; by default the model's, .5
        Group rates are taken there, smooth and hard. Lower it for a rare label:
        `Trained.degenerate` says if nearly nobody is selected, and at which threshold not.
    thresholds : "common", or "group": one score for everybody, decisions by client and group
        The score is then trained without budgets, and every client chooses thresholds for its
        groups that keep them; whoever uses the model needs each row's client and group.
    groups : the groups to compare, by attribute; by default all that any client has
    seed : draws the folds of the cross-validation
    start : first parameters, by default the model's own
    session : the folder to write to, and who is told
    verbose : whether to show a progress bar
        By default only if stdout is a terminal or a notebook, and ``session`` has no ``on_round``.
    """
    _check_arguments(confidence, most_change, relative_budget, min_group_rows, starts)
    session = replace(session, on_message=_once(session.on_message))
    model = at_threshold(model, threshold)
    run = prepare(federation, model, rules, method, groups, min_group_rows, session)
    settings = open_settings(method, model, l2, objective, excess_loss=excess_loss)
    first = model.start() if start is None else _check_start(start, model)
    relative, by_group = relative_budget is not None, thresholds == "group"
    more = relative or excess_loss or by_group or {confidence, starts} != {None}
    check_thresholds(thresholds, run.setup.rules, federation, relative=relative)
    starts = starts or (1 if start is not None else model.default_starts)
    confidence = model.default_confidence if confidence is None else confidence
    with _naming_absent(federation), _begun(run, first, verbose) as run:
        if traits_of(run.method).is_private:
            return _privately(run, first, settings, more)
        run, selection = _settled(run, settings, excess_loss, seed, by_group)
        rules = _bounds(run, rules, relative_budget)
        problem, notes = run.problem(without_budgets(rules) if by_group else rules, first)
        first, compared = _best_start(run, problem, first, starts)
        holding = Holding(run, rules, run.train(problem, first))
        if by_group:
            chosen = with_thresholds(run, rules, holding.stages[0], confidence, most_change)
            return _trained(run, holding, chosen.held, selection, compared, notes, chosen)
        keeps = traits_of(run.method).keeps_decisions
        held = holding.hold(confidence, most_change) if keeps else holding.as_it_is(confidence)
        run.write_history(holding.stages)
        return _trained(run, holding, held, selection, compared, notes)


@contextmanager
def _begun(run: Run, first: Vector, verbose: bool | None) -> Iterator[Run]:
    """Meet the clients, open the folder, count exchanges and show progress until the run ends."""
    session, folder = run.session, run.session.folder
    if traits_of(run.method).is_private:
        check_private(run, run.setup.rules)
    else:
        run = run.met(first)
    session.on_met(run)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if not session.resume:
            forget(folder)
    if session.on_round is not None and verbose is None:
        verbose = False
    with (
        run.federation.exchanges.kept_in(folder, resume=session.resume),
        progress_bar(run.method.name, verbose) as bar,
    ):
        yield run if bar is None else replace(run, session=session.also(bar))


def _settled(
    run: Run, settings: OpenSettings, excess_loss: bool, seed: int, by_group: bool
) -> tuple[Run, Selection | None]:
    """The run with what was left to cross-validation chosen, and how."""
    free = without_budgets(run.setup.rules) if by_group else None
    selection = run.choose(settings, seed, free)
    return run.settled(settings, selection, excess_loss, seed), selection


def _bounds(run: Run, asked: Sequence[Rule], relative_budget: float | None) -> tuple[Rule, ...]:
    """The rules in force, with relative budgets measured."""
    if relative_budget is None:
        return run.setup.rules
    return run.measured(asked, run.setup.model.start(), relative_budget)


def _best_start(
    run: Run, problem: Problem, first: Vector, count: int
) -> tuple[Vector, tuple[Start, ...]]:
    """The best of several starts, and what became of each, where there can be several optima."""
    may_differ = traits_of(run.method).is_cross_validated and len(problem.constraints) > 0
    return run.best_start(problem, first, count) if count > 1 and may_differ else (first, ())


def _warnings(selection: Selection | None, held: Held, session: Session) -> tuple[str, ...]:
    """What to know of the model that was kept; thresholds by group were not forecast."""
    said = checked_forecast(selection, held.found.train, held.found.test)
    for sentence in said:
        session.on_message(sentence)
    return said


def _check_arguments(
    confidence: float | None,
    most_change: float,
    relative_budget: float | None,
    min_group_rows: float | None,
    starts: int | None,
) -> None:
    """Refuse what would only be found out after a whole stage."""
    if confidence is not None:
        check_confidence("confidence", confidence)
    check_share("most_change", most_change)
    if min_group_rows is not None:
        check_non_negative("min_group_rows", min_group_rows)
    if relative_budget is not None:
        check_positive("relative_budget", relative_budget)
    if starts is not None:
        check_starts("starts", starts)


def _privately(run: Run, first: Vector, settings: OpenSettings, asks_more: bool) -> Trained:
    """By noisy sums alone; what would ask more of clients is refused."""
    if asks_more:
        raise ValueError(
            "`confidence`, `starts`, `relative_budget`, `excess_loss` and `thresholds` must be "
            "left out with method 'private', which has none of them."
        )
    return train_privately(run, run.setup.rules, first, float(settings.l2))


def _check_start(start: Vector, model: Model) -> Vector:
    params = check_params(start)
    if params.size != model.n_params:
        raise ValueError(
            f"`start` must have the model's {model.n_params} parameters, got {params.size}."
        )
    return params


def _trained(
    run: Run,
    holding: Holding,
    held: Held,
    selection: Selection | None,
    starts: tuple[Start, ...],
    notes: tuple[str, ...],
    chosen: Thresholded | None = None,
) -> Trained:
    """What the last turn left, and what its model does on every client's rows."""
    warned = _warnings(selection if chosen is None else None, held, run.session)
    said = (*notes, *warned, *(holding.notes if chosen is None else chosen.notes))
    degenerate = find_degenerate(run.setup.model, held.found.train)
    if degenerate is not None:
        degenerate = with_advice(run, held.params, degenerate)
        said = (*said, degenerate.in_python)
    return Trained(
        model=run.setup.model,
        method=run.method,
        params=held.params,
        state=held.state,
        at=held.at,
        evaluations=held.found,
        rules=held.found.rules,
        l2=run.l2,
        objective=objective_of(run.method),
        selection=selection,
        starts=starts,
        turns=tuple(holding.stages),
        notes=tuple(dict.fromkeys(said)),
        exceeded=holding.exceeded(held) if chosen is None else chosen.exceeded,
        exchanges=dict(run.federation.exchanges.by_phase),
        thresholds=None if chosen is None else chosen.thresholds,
        degenerate=degenerate,
    )


def check_rules(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    *,
    method: Any = "sqp",
    relative: bool = False,
    min_group_rows: float | None = None,
    thresholds: Thresholds = "common",
    groups: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Refuse budgets that nothing would be held to: where no two groups can be compared.

    And those that ``thresholds`` cannot keep. `train` only notes which groups are left out, so
    that a fold of a grid search may lack one.
    """
    run = prepare(federation, model, rules, method, groups, min_group_rows, Session())
    if traits_of(run.method).is_private:
        check_private(run, run.setup.rules)
        return
    check_thresholds(thresholds, run.setup.rules, federation, relative=relative)
    with _naming_absent(federation):
        run.met(model.start()).check_comparable(relative=relative)


@contextmanager
def _naming_absent(federation: Federation) -> Iterator[None]:
    """Add to an error about absent clients why they were left out."""
    try:
        yield
    except AbsentClientError as error:
        why = [
            f"Client {name!r}: {said}"
            for name, said in federation.failures.items()
            if said not in str(error)
        ]
        raise AbsentClientError(" ".join([str(error), *why])) from None


def _once(on_message: Callable[[str], None]) -> Callable[[str], None]:
    """Pass a sentence on when it is new: several stages have the same to say."""
    told: set[str] = set()

    def tell(sentence: str) -> None:
        if sentence not in told:
            told.add(sentence)
            on_message(sentence)

    return tell
