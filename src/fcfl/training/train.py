"""Train a model over a federation: every kind of run calls `train` and gets a `Trained`.

The command line, the estimator, `fcfl.torch`, sweeps, comparisons, the reproduction and runs over
sites all use this function. It reads data only through requests to the federation, so it works
in-process and over sites.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from fcfl import __version__
from fcfl import _checks as checks
from fcfl._types import ClientId, RateId, Vector
from fcfl.client.counts import Counts
from fcfl.errors import AbsentClientError, FCFLError
from fcfl.federation.federation import Federation
from fcfl.federation.loop import sum_tallies
from fcfl.federation.session import Session, forget, progress_bar
from fcfl.methods.decisions import KEPT
from fcfl.methods.method import RoundInfo, traits_of
from fcfl.models.loss import HALF
from fcfl.models.model import THRESHOLDS, GroupThresholds, Model, Thresholds, at_threshold
from fcfl.problem import (
    FEASIBILITY_TOLERANCE,
    Evaluation,
    Price,
    budget_prices,
    evaluate_point,
    exceeded_by,
)
from fcfl.results import result as results
from fcfl.results.evaluations import (
    AuditTerms,
    Evaluations,
    find_degenerate,
    row_sections,
    threshold_selecting,
)
from fcfl.rules import Rule
from fcfl.training.choose import objective_of, open_settings
from fcfl.training.margins import MAX_ACCURACY_LOSS, Pooling
from fcfl.training.run import Run, prepare
from fcfl.training.solve import Demands, Fitted, Solved, solve

WEIGHT_SHOWN = 1e-3  # smallest weight in the worst loss at which a client is listed


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
) -> "Trained":
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


@dataclass(frozen=True, kw_only=True)
class Trained(Fitted):
    """A trained model with its evaluation and the record of its training.

    ``at`` is the solved problem, evaluated at ``params`` with smooth rates of training rows.
    ``evaluations`` has the hard counts of all rows and compares them with the ``rules``.

    With ``thresholds``, decisions depend on a row's client and group. With ``privacy``, every count
    is noisy and losses are unknown. ``exchanges`` is the number of completed exchanges by phase
    (`ExchangeCount`). ``degenerate`` is set if the model selects almost nobody or almost everybody.
    """

    model: Model
    method: Any
    at: Evaluation
    evaluations: Evaluations
    l2: float
    objective: float | Literal["max", "mean"] | None
    exchanges: Mapping[str, int]
    thresholds: GroupThresholds | None = None
    degenerate: results.Degenerate | None = None

    def __repr__(self) -> str:
        """Return method, status, exchanges, and one line per disparity of the first clients."""
        return repr(self._shown)

    def _repr_html_(self) -> str:
        """Return the summary as an HTML table for notebooks."""
        return self._shown._repr_html_()

    @property
    def _shown(self) -> results.Result:
        return self.result(seed=0, start="", settings={}, data=results.DataSource("", ""))

    @property
    def history(self) -> tuple[RoundInfo, ...]:
        """Rounds that this process ran, over all fits."""
        return tuple(info for turn in self.turns for info in turn.history)

    @property
    def status(self) -> str:
        """Final status: converged, stopped, infeasible or failed."""
        return str(self.state.status)

    @property
    def message(self) -> str:
        """Reason why training ended, in one sentence."""
        return str(self.state.message)

    @property
    def rounds(self) -> tuple[int, ...]:
        """Number of rounds in each stage, summed over all fits."""
        counts = [turn.progress.state.rounds for turn in self.turns]
        return tuple(map(sum, zip_longest(*counts, fillvalue=0)))

    @property
    def kkt(self) -> float | None:
        """KKT residual of the model, or None for methods that do not compute one."""
        return getattr(self.state, "kkt", None)

    @property
    def losses(self) -> dict[ClientId, float]:
        """Each client's mean training loss without the L2 term."""
        clients = self.at.problem.clients
        return {c: report.loss for c, report in zip(clients, self.at.reports, strict=True)}

    @property
    def rates(self) -> tuple[RateId, ...]:
        """Rates that are compared, in the order of the counts."""
        return self.evaluations.rates

    @property
    def counts(self) -> Mapping[ClientId, Counts]:
        """Hard counts of each client's training rows."""
        return self.evaluations.train

    @property
    def prices(self) -> tuple[Price, ...]:
        """Price of each budget, the highest first; empty for methods without prices."""
        if not hasattr(self.state, "prices"):
            return ()
        return tuple(budget_prices(self.at, self.state.prices))

    @property
    def largest_violation(self) -> float:
        """Largest excess of a smooth rate over its training bound, on training rows."""
        return self.at.largest_violation

    @property
    def budgets_met(self) -> bool:
        """Whether decisions on training rows exceed no budget and no rate limit."""
        return not self.exceeded

    def result(
        self,
        *,
        seed: int,
        start: str,
        settings: Mapping[str, object],
        data: results.DataSource,
        notes: Sequence[str] = (),
    ) -> results.Result:
        """Return the content of ``result.json``, with ``notes`` before the notes of training."""
        # `degenerate` has a field of its own, so its note is omitted.
        repeated = None if self.degenerate is None else self.degenerate.in_python
        prices, state = self.prices, self.state
        cost = sum_tallies(turn.progress.tally for turn in self.turns)
        rows = row_sections(self.evaluations, prices)
        losses = [c.train.loss for c in rows.clients.values() if c.train.loss is not None]
        only = results.Start(
            start, max(losses, default=None), sum(losses) / len(losses) if losses else None
        )
        pays = zip(state.problem.clients, state.worst_weights, strict=True) if prices else ()
        return results.Result(
            method=self.method.name,
            status=state.status,
            message=state.message,
            rounds={f"stage{i + 1}": count for i, count in enumerate(self.rounds)},
            exchanges=results.Exchanges.of(self.exchanges),
            evaluations=results.EvaluationCounts(cost.values, cost.gradients, cost.curvatures),
            bytes_from_clients=cost.bytes_from_clients,
            kkt_residual=None if self.kkt is None or not np.isfinite(self.kkt) else float(self.kkt),
            l2=self.l2,
            objective=results.objective_name(self.objective),
            selection=self.selection,
            threshold=self.model.threshold,
            thresholds=self.thresholds,
            degenerate=self.degenerate,
            seed=seed,
            fcfl_version=__version__,
            worst_client=rows.worst_client,
            clients=rows.clients,
            overall=rows.overall,
            starts=self.starts or (only,),
            exceeded=dict(self.exceeded),
            price=self.price,
            margins=self.margins,
            pooling=self.pooling,
            privacy=self.privacy,
            audit=rows.audit,
            prices=prices,
            worst_clients={c: float(weight) for c, weight in pays if weight > WEIGHT_SHOWN},
            settings={
                key: "mean" if key == "objective" and value == np.inf else value
                for key, value in settings.items()
                if value is not None
            },
            data=data,
            versions=results.versions(),
            notes=(*notes, *(note for note in self.notes if note != repeated)),
        )


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


def _with_advice(run: Run, params: Vector, degenerate: results.Degenerate) -> results.Degenerate:
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
