"""Train a model over a federation; every kind of run calls `train`.

The command line, the estimator, `fcfl.torch`, sweeps, comparisons, the reproduction and runs over
sites all use this function. It reads data only through requests to the federation, so it works
in-process and over sites.
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
    """Train one model for all clients under each client's budgets.

    Parameters
    ----------
    federation : the clients
    model : the model to train
    rules : `Difference` and `Ratio` rules on attributes of the clients
        A client's own rules replace these for that client where they are stricter.
    method : the name of a method, or a method object (built-in or user-defined)
    l2 : weight of ``|params|**2 / 2`` in every loss
        By default chosen by leave-one-out losses for a linear model trained by "sqp", the model's
        default for a network trained by "sqp", and 0 for other methods.
    objective : function of the clients' losses to minimise
        "max" (the largest loss), "mean", a temperature between the two, or "auto" (chosen together
        with ``l2``). By default the objective of a method object, otherwise as for ``l2``.
    confidence : probability with which each budget should hold on new rows
        Training tightens the budgets by margins, as far as the number of rows allows. With 0 it
        uses the plain budgets. By default 0.9 for a linear model and 0 for a network. Only "sqp"
        supports margins.
    max_accuracy_loss : largest training accuracy that margins may cost in addition to the budgets
    max_rate_shift : largest change of the federation's rates from the model without budgets
        By default 0.05, or no limit with ``confidence`` 0.
    pooling : "auto" or "none"
        With "auto" and at least eight clients, the budget of a client with few rows applies to an
        estimate that also uses the other clients' rates. "none" always compares its own rows only.
    new_rows : number of new rows per client on which the budgets should hold
        By default the budgets should hold for each client's population.
    relative_budget : budget as a share of each client's disparity without budgets
        Applied to the `Difference` rules that have no budget.
    min_group_rows : minimum number of rows for a client's group to be compared
        By default 30, more for a small budget (`Difference.least_rows`), and 1 for pooled
        comparisons.
    starts : number of starting points to compare; the best result is kept
        They are the model's start, the model without budgets, then random points. By default 2.
        The default is 1 for a network, with ``start``, and if ``l2`` or the objective is chosen.
    threshold : smallest probability at which a row is selected, by default the model's (.5)
        Smooth and hard group rates both use it. Lower it for a rare label: if the model selects
        almost nobody, `Trained.degenerate` suggests a better threshold.
    thresholds : "common", or "group" for one score with a threshold per client and group
        With "group" the score is trained without budgets and every client chooses thresholds that
        satisfy them. Predictions then require each row's client and group.
    groups : groups to compare, by attribute; by default all groups of any client
    seed : random seed of further starting points
    start : initial parameters, by default the model's
    session : output folder, callbacks and the choice to resume
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
            "`confidence`, `starts`, `relative_budget` and `thresholds` are not supported by "
            "method 'private'; omit them."
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
        solved = solve(run, first, settings, demands, requested=rules, is_bounded=not by_group)
        if by_group:
            run, setup = solved.run, solved.run.setup
            if relative_budget is not None:
                hard = run.decisions(solved.state.problem, solved.params)
                setup = replace(setup, rules=run.relative_rules(rules, hard, relative_budget))
            solved = with_thresholds(solved, setup, demands)
        return _trained(*_counted(solved))


@contextmanager
def _begun(run: Run, first: Vector, verbose: bool | None) -> Iterator[Run]:
    """Count the clients' groups, open the folder, record exchanges and show progress."""
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
    """Return every client's counts of decisions, and the budgets that these counts exceed."""
    run, problem = solved.run, solved.state.problem
    with run.federation.phase("check"):
        counted = run.federation.count(run.setup, solved.params)
    if solved.decisive is not None:
        hard = np.concatenate([counted[client].rates for client in problem.clients])
        is_counted = all(parts.train.n_rows for parts in counted.values())
        tolerance = KEPT if is_counted else FEASIBILITY_TOLERANCE
        solved = replace(solved, exceeded=exceeded_by(solved.decisive, hard, tolerance))
    drifts = None
    if solved.biases is not None:
        by_client = np.split(solved.biases, len(problem.clients))
        drifts = dict(zip(problem.clients, by_client, strict=True))
    return solved, Evaluations(
        run.setup.rates,
        solved.rules,
        {client: parts.train for client, parts in counted.items()},
        {client: parts.test for client, parts in counted.items()},
        {client: parts.report for client, parts in counted.items()},
        AuditTerms(min_group_rows=run.min_group_rows),
        drifts,
    )


def _trained(solved: Solved, evaluations: Evaluations) -> Trained:
    """Return the result of a run, with advice if the model selects almost nobody or everybody."""
    run, state = solved.run, solved.state
    notes = solved.notes
    degenerate = find_degenerate(run.setup.model, evaluations.train, evaluations.count_noise)
    if degenerate is not None:
        if solved.privacy is None:
            degenerate = _with_advice(run, solved.params, degenerate)
        notes = (*notes, degenerate.in_python)
    reports = {client: (report,) for client, report in evaluations.reports.items()}
    known = {part.name: getattr(solved, part.name) for part in fields(Fitted)}
    known["notes"] = tuple(dict.fromkeys(notes))
    return Trained(
        **known,
        model=run.setup.model,
        method=run.method,
        at=evaluate_point(state.problem, solved.params, reports),
        evaluations=evaluations,
        l2=run.l2,
        objective=objective_of(run.method),
        exchanges=dict(run.federation.exchanges.by_phase),
        degenerate=degenerate,
        thresholds=run.setup.thresholds,
    )


def _with_advice(run: Run, params: Vector, degenerate: Degenerate) -> Degenerate:
    """Add the threshold at which the number of selected rows equals that of positive labels."""
    model = run.setup.model
    affected = [row.client for row in degenerate.rows]
    n_rows = sum(row.rows for row in degenerate.rows)

    def select(threshold: float) -> int:
        setup = replace(run.setup, model=at_threshold(model, threshold))
        with run.federation.phase("check"):
            counted = run.federation.count(setup, params)
        chosen = counted if None in affected else {name: counted[name] for name in affected if name}
        return sum(parts.train.n_selected for parts in chosen.values())

    if not (model.loss.has_probabilities and 0 < degenerate.positives < n_rows):
        return degenerate
    try:
        at_threshold(model, HALF / 2)  # raises for a user-defined model without a threshold
        best = threshold_selecting(degenerate.positives, n_rows, select)
    except (FCFLError, ValueError):  # such as a site's limit on counts; the model remains valid
        return degenerate
    if best is None:
        return degenerate
    return replace(degenerate, advised_threshold=best[0], would_select=best[1])


@contextmanager
def _naming_absent(federation: Federation) -> Iterator[None]:
    """Add to an `AbsentClientError` the reason why each client is absent."""
    try:
        yield
    except AbsentClientError as error:
        failures = federation.failures.items()
        reasons = [f"Client {name!r}: {why}" for name, why in failures if why not in str(error)]
        raise AbsentClientError(" ".join([str(error), *reasons])) from None
