"""`train`: the one way from a federation and a model to a trained one.

The command line, the estimator, `fcfl.torch`, sweeps, comparisons, the reproduction and runs over
sites all come through here. Everything is requested of the federation, so that it works wherever
the clients are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from fcfl import _checks as checks
from fcfl._types import Vector
from fcfl.errors import AbsentClientError, FCFLError
from fcfl.federation.federation import Federation
from fcfl.federation.session import Session, forget, progress_bar
from fcfl.methods.decisions import KEPT
from fcfl.methods.method import traits_of
from fcfl.models.loss import HALF
from fcfl.models.model import THRESHOLDS, Model, Thresholds, at_threshold
from fcfl.problem import FEASIBILITY_TOLERANCE, evaluate_point, exceeded_by
from fcfl.results.evaluations import AuditTerms, Evaluations, find_degenerate, threshold_selecting
from fcfl.results.result import Degenerate
from fcfl.rules import Rule
from fcfl.training.choose import objective_of, open_settings
from fcfl.training.margins import MAX_ACCURACY_LOSS, Pooling
from fcfl.training.run import Run, prepare
from fcfl.training.solve import Demands, Solved, solve
from fcfl.training.trained import Fitted, Trained


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
    table: tuple[tuple[str, Any, Callable[[str, Any], object]], ...] = (
        ("confidence", confidence, checks.check_confidence),
        ("max_accuracy_loss", max_accuracy_loss, checks.check_share),
        ("max_rate_shift", max_rate_shift, checks.check_share),
        ("relative_budget", relative_budget, checks.check_positive),
        ("min_group_rows", min_group_rows, checks.check_non_negative),
        ("new_rows", new_rows, checks.check_positive),
        ("starts", starts, checks.check_at_least_one),
    )
    for name, value, check in table:
        if value is not None:
            check(name, value)
    checks.check_choice("pooling", pooling, ("auto", "none"))
    model = at_threshold(model, threshold)
    first = model.start() if start is None else checks.check_params(start)
    if first.size != model.n_params:
        raise ValueError(
            f"`start` must have the model's {model.n_params} parameters, got {first.size}."
        )
    session = replace(session, on_message=cache(session.on_message))  # each sentence once
    run = prepare(federation, model, rules, method, groups, min_group_rows, session)
    settings = open_settings(method, model, l2, objective)
    relative, by_group = relative_budget is not None, thresholds == "group"
    checks.check_choice("thresholds", thresholds, THRESHOLDS)
    if by_group:
        from fcfl.training.thresholds import check_thresholds, with_thresholds

        check_thresholds(run.setup.rules, federation, relative=relative)
    is_private = traits_of(run.method).is_private
    if is_private and (relative or by_group or {confidence, starts} != {None}):
        raise ValueError(
            "`confidence`, `starts`, `relative_budget` and `thresholds` must be "
            "left out with method 'private', which has none of them."
        )
    if is_private:
        from fcfl.training.private import check_private, solve_privately

        check_private(run, run.setup.rules)
    demands = Demands(
        confidence=model.default_confidence if confidence is None else confidence,
        max_accuracy_loss=max_accuracy_loss,
        max_rate_shift=max_rate_shift,
        pooling=pooling,
        new_rows=new_rows,
        relative_budget=None if by_group else relative_budget,
        starts=1 if starts is None and start is not None else starts,
    )
    run = replace(run, seed=seed)
    with _naming_absent(federation), _begun(run, first, verbose) as run:
        if is_private:
            return _trained(*solve_privately(replace(run, l2=float(settings.l2)), first))
        solved = solve(run, first, settings, demands, asked=rules, is_bounded=not by_group)
        if by_group:
            run, setup = solved.run, solved.run.setup
            if relative_budget is not None:
                hard = run.decisions(solved.state.problem, solved.params)
                setup = replace(setup, rules=run.relative_rules(rules, hard, relative_budget))
            solved = with_thresholds(solved, setup, demands)
        return _trained(*_counted(solved))


@contextmanager
def _begun(run: Run, first: Vector, verbose: bool | None) -> Iterator[Run]:
    """Meet the clients, open the folder, count exchanges and show progress until the run ends."""
    session, folder = run.session, run.session.folder
    if not traits_of(run.method).is_private:
        run = run.met(first)
    session.on_met(run)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if not session.resume:
            forget(folder)
    with (
        run.federation.exchanges.kept_in(folder, resume=session.resume),
        progress_bar(run.method.name, verbose, session.on_round) as on_round,
    ):
        yield replace(run, session=replace(session, on_round=on_round))


def _counted(solved: Solved) -> tuple[Solved, Evaluations]:
    """Count what the model decides on every client's rows, and what it exceeds by these counts."""
    run, problem = solved.run, solved.state.problem
    with run.federation.phase("check"):
        counted = run.federation.count(run.setup, solved.params)
    if solved.decisive is not None:
        hard = np.concatenate([counted[client].rates for client in problem.clients])
        is_counted = all(said.train.n_rows for said in counted.values())
        tolerance = KEPT if is_counted else FEASIBILITY_TOLERANCE
        solved = replace(solved, exceeded=exceeded_by(solved.decisive, hard, tolerance))
    drifts = None
    if solved.drifts is not None:
        parts = np.split(solved.drifts, len(problem.clients))
        drifts = dict(zip(problem.clients, parts, strict=True))
    return solved, Evaluations(
        run.setup.rates,
        solved.rules,
        {client: said.train for client, said in counted.items()},
        {client: said.test for client, said in counted.items()},
        {client: said.report for client, said in counted.items()},
        AuditTerms(min_group_rows=run.min_group_rows),
        drifts,
    )


def _trained(solved: Solved, found: Evaluations) -> Trained:
    """Return what a run ends with, and advice where its model is of no use."""
    run, state = solved.run, solved.state
    notes = solved.notes
    degenerate = find_degenerate(run.setup.model, found.train, found.count_noise)
    if degenerate is not None:
        if solved.privacy is None:
            degenerate = _with_advice(run, solved.params, degenerate)
        notes = (*notes, degenerate.in_python)
    reports = {client: (report,) for client, report in found.reports.items()}
    known = {part.name: getattr(solved, part.name) for part in fields(Fitted)}
    known["notes"] = tuple(dict.fromkeys(notes))
    return Trained(
        **known,
        model=run.setup.model,
        method=run.method,
        at=evaluate_point(state.problem, solved.params, reports),
        evaluations=found,
        l2=run.l2,
        objective=objective_of(run.method),
        exchanges=dict(run.federation.exchanges.by_phase),
        degenerate=degenerate,
        thresholds=run.setup.thresholds,
    )


def _with_advice(run: Run, params: Vector, found: Degenerate) -> Degenerate:
    """Return the finding with the threshold at which as many are selected as have the label."""
    model = run.setup.model
    named = [one.client for one in found.rows]
    n_rows = sum(one.rows for one in found.rows)

    def select(threshold: float) -> int:
        setup = replace(run.setup, model=at_threshold(model, threshold))
        with run.federation.phase("check"):
            counted = run.federation.count(setup, params)
        chosen = counted if None in named else {name: counted[name] for name in named if name}
        return sum(said.train.n_selected for said in chosen.values())

    if not (model.loss.has_probabilities and 0 < found.positives < n_rows):
        return found
    try:
        at_threshold(model, HALF / 2)  # a model of one's own may have none
        best = threshold_selecting(found.positives, n_rows, select)
    except (FCFLError, ValueError):  # a site's limit on counts: the model is there all the same
        return found
    if best is None:
        return found
    return replace(found, advised_threshold=best[0], would_select=best[1])


@contextmanager
def _naming_absent(federation: Federation) -> Iterator[None]:
    """Add to an error about absent clients why they were left out."""
    try:
        yield
    except AbsentClientError as error:
        failures = federation.failures.items()
        why = [f"Client {name!r}: {said}" for name, said in failures if said not in str(error)]
        raise AbsentClientError(" ".join([str(error), *why])) from None
