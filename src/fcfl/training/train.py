"""`train`: the one way from a federation and a model to a trained one.

The command line, the estimator, `fcfl.torch`, sweeps, comparisons, the reproduction and runs over
sites all come through here. Everything is requested of the federation, so that it works wherever
the clients are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fcfl._checks import (
    check_at_least_one,
    check_choice,
    check_confidence,
    check_non_negative,
    check_params,
    check_positive,
    check_share,
)
from fcfl._types import ClientId, Point, Vector
from fcfl.client.client import Counted, Setup
from fcfl.errors import AbsentClientError
from fcfl.federation.federation import Federation
from fcfl.methods.decisions import KEPT
from fcfl.methods.method import traits_of
from fcfl.models.model import Model, at_threshold
from fcfl.models.rates import Thresholds
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE, exceeded_by
from fcfl.problem.evaluation import evaluate_point
from fcfl.rules import Rule, without_budgets
from fcfl.training.degenerate import find_degenerate, with_advice
from fcfl.training.margins import Pooling
from fcfl.training.private import check_private, train_privately
from fcfl.training.progress import progress_bar
from fcfl.training.run import FREE, Run, forget, prepare
from fcfl.training.session import Session
from fcfl.training.settings import (
    MAX_ACCURACY_LOSS,
    OpenSettings,
    objective_of,
    open_settings,
    with_objective,
)
from fcfl.training.solve import Demands, Solved, solve
from fcfl.training.thresholds import check_thresholds, with_thresholds
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
    max_accuracy_loss: float = MAX_ACCURACY_LOSS,
    max_rate_shift: float | None = None,
    pooling: Pooling = "auto",
    new_rows: float | None = None,
    relative_budget: float | None = None,
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
        By default chosen by leave-one-out losses for a linear model trained by "sqp", the model's
        own for a network trained by it, 0 for other methods.
    objective : what is minimised over clients
        "max" (the largest loss), "mean", a temperature between them, or "auto": chosen with
        ``l2``. By default that of a method that is given as an object, else as for ``l2``.
    confidence : how sure to be that each budget holds on new rows, as far as rows allow
        Training is then held to tighter bounds by margins; 0 trains with the plain budgets. By
        default 0.9 for a linear model, 0 for a network. Only "sqp" has margins.
    max_accuracy_loss : how much accuracy on training rows margins may cost beside the budgets
    max_rate_shift : how far rates may move from those of the model without budgets
        Those of all clients together. By default 0.05; no limit with ``confidence`` 0.
    pooling : "auto", or "none"
        With eight clients or more, the budget of a client whose rows are few is kept by an
        estimate that borrows from the other clients; "none" always compares its own rows.
    new_rows : keep budgets on samples of so many rows of each client
        By default for its population.
    relative_budget : budgets as this share of the disparity each client has without budgets
        They are given to the `Difference` rules that have none.
    min_group_rows : groups with fewer rows at a client are not compared there
        By default 30, more for a small budget (`Difference.least_rows`), and 1 where comparisons
        are pooled.
    starts : how many starts are compared; the best is kept
        First the model's own start, then the model without budgets, then others. By default 2; 1
        for a network, where ``start`` is given, and where settings are chosen, by fits of their
        own.
    threshold : the probability from which on a row is selected; by default the model's, .5
        Group rates are taken there, smooth and hard. Lower it for a rare label:
        `Trained.degenerate` says if nearly nobody is selected, and at which threshold not.
    thresholds : "common", or "group": one score for everybody, decisions by client and group
        The score is then trained without budgets, and every client chooses thresholds for its
        groups that keep them; whoever uses the model needs each row's client and group.
    groups : the groups to compare, by attribute; by default all that any client has
    seed : draws further starts
    start : first parameters, by default the model's own
    session : the folder to write to, and who is told
    verbose : whether to show a progress bar
        By default only if stdout is a terminal or a notebook, and ``session`` has no ``on_round``.
    """
    if confidence is not None:
        check_confidence("confidence", confidence)
    check_share("max_accuracy_loss", max_accuracy_loss)
    if max_rate_shift is not None:
        check_share("max_rate_shift", max_rate_shift)
    if relative_budget is not None:
        check_positive("relative_budget", relative_budget)
    if min_group_rows is not None:
        check_non_negative("min_group_rows", min_group_rows)
    if new_rows is not None:
        check_positive("new_rows", new_rows)
    if starts is not None:
        check_at_least_one("starts", starts)
    check_choice("pooling", pooling, ("auto", "none"))
    session = replace(session, on_message=_once(session.on_message))
    model = at_threshold(model, threshold)
    run = prepare(federation, model, rules, method, groups, min_group_rows, session)
    settings = open_settings(method, model, l2, objective)
    first = model.start() if start is None else _check_start(start, model)
    relative, by_group = relative_budget is not None, thresholds == "group"
    more = relative or by_group or {confidence, starts} != {None}
    check_thresholds(thresholds, run.setup.rules, federation, relative=relative)
    confidence = model.default_confidence if confidence is None else confidence
    demands = Demands(confidence, max_accuracy_loss, max_rate_shift, pooling, new_rows)
    run = replace(run, seed=seed)
    with _naming_absent(federation), _begun(run, first, verbose) as run:
        if traits_of(run.method).is_private:
            return _privately(run, first, settings, more)
        if not traits_of(run.method).is_cross_validated:
            solved = _solve_once(run, first, settings, rules, relative_budget, demands)
        else:
            solved = solve(
                run,
                first,
                settings,
                demands,
                asked=rules,
                relative=None if by_group else relative_budget,
                starts=starts,
                start_is_given=start is not None,
                bounded=not by_group,
            )
        if by_group:
            setup = _with_relative(solved, rules, relative_budget)
            solved = with_thresholds(solved, setup, demands)
        with federation.phase("check"):
            counted = solved.run.federation.count(solved.run.setup, solved.params)
        return _trained(solved, counted)


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


def _with_relative(solved: Solved, asked: Sequence[Rule], share: float | None) -> Setup:
    """The setup with budgets as shares of what the score decides by one threshold for everybody."""
    run = solved.run
    if share is None:
        return run.setup
    with run.federation.phase("check"):
        hard = run.ask((Point(solved.params, "decisions"),), "how a model without budgets decides")
    return replace(run.setup, rules=run.relative_rules(asked, hard, share))


def _solve_once(
    run: Run,
    first: Vector,
    settings: OpenSettings,
    asked: Sequence[Rule],
    relative: float | None,
    demands: Demands,
) -> Solved:
    """One fit by a method that is not SQP: nothing is chosen, and there are no margins."""
    method = with_objective(run.method, settings.objective)
    run = replace(run, l2=float(settings.l2), method=method)
    stages, rules = [], run.setup.rules
    if relative is not None:
        run.session.on_message("Training without budgets first: budgets are relative to it.")
        free, _ = run.plain_problem(without_budgets(rules), first)
        with run.federation.phase("reference"):
            stages.append(run.fit_from(free, first, FREE))
            point = Point(stages[0].params, "decisions")
            decided = run.ask((point,), "how a model without budgets decides")
        rules = run.relative_rules(asked, decided, relative)
    problem, notes = run.plain_problem(rules, first)
    with run.federation.phase("fit"):
        stages.append(run.fit_from(problem, first))
    if demands.confidence > 0 and len(problem.constraints):
        notes += run.noted(_no_margins(run.method, demands.confidence))
    params, state = stages[-1].params, stages[-1].state
    return Solved(run, params, state, problem, tuple(stages), notes, None, rules=rules)


def _trained(solved: Solved, counted: Mapping[ClientId, Counted]) -> Trained:
    """What a run ends with, and what its model does on every client's rows."""
    run, state = solved.run, solved.state
    found = run.evaluations(counted, solved.rules)
    clients = state.problem.clients
    if solved.drifts is not None:
        split = np.split(solved.drifts, len(clients))
        found = replace(found, drifts=dict(zip(clients, split, strict=True)))
    reports = {client: (report,) for client, report in found.reports.items()}
    exceeded = solved.exceeded
    if exceeded is None:
        hard = np.concatenate([counted[client].rates for client in clients])
        decisive = solved.problem.constraints if solved.decisive is None else solved.decisive
        is_counted = all(said.train.n_rows for said in counted.values())
        exceeded = exceeded_by(decisive, hard, KEPT if is_counted else FEASIBILITY_TOLERANCE)
    notes, degenerate = solved.notes, find_degenerate(run.setup.model, found.train)
    if degenerate is not None:
        with run.federation.phase("check"):
            degenerate = with_advice(run, solved.params, degenerate)
        notes = (*notes, degenerate.in_python)
    return Trained(
        model=run.setup.model,
        method=run.method,
        params=solved.params,
        state=state,
        at=evaluate_point(state.problem, solved.params, reports),
        evaluations=found,
        rules=found.rules,
        l2=run.l2,
        objective=objective_of(run.method),
        selection=solved.selection,
        starts=solved.starts,
        turns=solved.stages,
        notes=tuple(dict.fromkeys(notes)),
        exceeded=exceeded,
        exchanges=dict(run.federation.exchanges.by_phase),
        degenerate=degenerate,
        thresholds=run.setup.thresholds,
        price=solved.price,
        margins=solved.margins,
        pooling=solved.pooling,
    )


def _no_margins(method: Any, confidence: float) -> tuple[str, ...]:
    """That a method which keeps budgets in training has no margins for new rows."""
    if not traits_of(method).enforces_budgets:
        return ()
    return (
        f"Method {method.name!r} trains with the plain budgets: `confidence` {confidence:g} has no "
        "margins there, and budgets may be exceeded on new rows.",
    )


def _privately(run: Run, first: Vector, settings: OpenSettings, asks_more: bool) -> Trained:
    """By noisy sums alone; what would ask more of clients is refused."""
    if asks_more:
        raise ValueError(
            "`confidence`, `starts`, `relative_budget` and `thresholds` must be "
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


def check_rules(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    *,
    method: Any = "sqp",
    relative: bool = False,
    min_group_rows: float | None = None,
    thresholds: Thresholds = "common",
    pooling: Pooling = "none",
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
        run.met(model.start()).check_comparable(relative=relative, pooling=pooling)


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
