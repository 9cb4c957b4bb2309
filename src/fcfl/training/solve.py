"""Train under budgets by SQP: choose settings, fit, tighten once, project once.

0. Fit without budgets, as the warm start of later fits. This fit determines which budgets are
   pooled estimates (`margins.enforced`) and is the reference for rate shifts and accuracy.
1. Choose the L2 weight and the objective under the budgets (`choose`).
2. Fit with the plain budgets. This fit and all later ones limit the shift of rates from the model
   without budgets at the same L2 weight, which was trained together with the candidates.
3. Compute margins for the requested confidence from this fit (`margins.tightened`).
4. Fit under the tightened bounds. If the fit costs too much accuracy or does not converge, use the
   largest confidence in `RUNGS` with an acceptable fit.
5. Project: apply the smallest change of the model that brings its decisions within the bounds
   (`methods.decisions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ClientId, Matrix, Point, Vector
from fcfl.audit.verdicts import OPTIMISM
from fcfl.errors import ReportError
from fcfl.federation.loop import Progress
from fcfl.federation.session import FREE
from fcfl.methods.decisions import KEPT, RestoreDecisions, confusions
from fcfl.methods.method import traits_of
from fcfl.methods.sqp.sqp import inverse_factor, loss_curvature
from fcfl.models.influence import GradientSpread
from fcfl.problem import FEASIBILITY_TOLERANCE, Constraints, Problem, evaluate_point, exceeded_by
from fcfl.results import result as results
from fcfl.results.findings import margin_notes, pooling_notes
from fcfl.rules import Rule, with_label, without_budgets
from fcfl.training import choose as choosing
from fcfl.training import margins
from fcfl.training.margins import RUNGS, Enforced, Tightened
from fcfl.training.run import Run, Stage

FREE_TOLERANCE = 1e-3  # KKT residual of the fit without budgets
# KKT residual of a tightened fit, and the violation that remains for the projection. With 2.5e-3
# and 1e-6, runs on adult-5 take 44 and 41 exchanges instead of 37 and 36, and accuracy is .0007
# higher (`benchmarks.promise`, seeds 10 to 29).
TIGHT_TOLERANCE, TIGHT_FEASIBILITY = 5e-3, 1e-3
PLAIN_TOLERANCE = 1e-4  # KKT residual of the fit from which margins are computed
MAX_PENALTY = 100.0  # of a tightened fit: a margin of .01 may cost at most one nat of loss
TIGHT_ROUNDS = 25  # of a tightened fit: the longest of 53 converged fits took 19 rounds


@dataclass(frozen=True)
class Demands:
    """Requirements of a run in addition to its budgets; see `fcfl.training.train.train`."""

    confidence: float = 0.9
    max_accuracy_loss: float = margins.MAX_ACCURACY_LOSS
    max_rate_shift: float | None = None
    pooling: margins.Pooling = "auto"
    new_rows: float | None = None
    relative_budget: float | None = None
    starts: int | None = None

    @property
    def shift(self) -> float | None:
        """Limit on rate shifts, by default None with the plain budgets of the paper."""
        if self.max_rate_shift is not None:
            return self.max_rate_shift if self.max_rate_shift < 1.0 else None
        return margins.MAX_RATE_SHIFT if self.confidence > 0 else None


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Result of the fits of a run.

    ``turns`` are all fits, from the one without budgets to the projection. ``starts`` has the
    losses reached from each starting point. ``state`` is the final state of the fit that returned
    ``params``.

    ``exceeded`` maps names of budgets and rate limits to the excess of decisions on training rows.
    With pooling, a client is judged by its own rows if they suffice, otherwise by its estimate.
    """

    params: Vector
    state: Any
    turns: tuple[Stage, ...]
    notes: tuple[str, ...]
    rules: tuple[Rule, ...]
    selection: results.Selection | None = None
    starts: tuple[results.Start, ...] = ()
    exceeded: Mapping[str, float] = field(default_factory=dict)
    price: results.PriceOfBudgets | None = None
    margins: results.MarginSummary | None = None
    pooling: results.PoolingSummary | None = None
    privacy: results.Privacy | None = None


@dataclass(frozen=True, kw_only=True)
class Solved(Fitted):
    """Result of the fits of a run, before the decisions of its model are counted.

    ``decisive`` are the constraints that decisions must satisfy, or None if ``exceeded`` is already
    known. ``biases`` are the expected changes of all rates on new rows, stacked by client.
    """

    run: Run
    decisive: Constraints | None = None
    biases: Vector | None = None


def solve(
    run: Run,
    first: Vector,
    settings: choosing.OpenSettings,
    demands: Demands,
    *,
    requested: Sequence[Rule],
    is_bounded: bool = True,
) -> Solved:
    """Train under the rules of the run; see the module.

    Ignore the budgets unless ``is_bounded``. ``requested`` are the rules before clients' own rules
    are merged.
    """
    rules = run.setup.rules if is_bounded else without_budgets(run.setup.rules)
    has_budgets = demands.relative_budget is not None or any(r.budget is not None for r in rules)
    if traits_of(run.method).is_cross_validated and (has_budgets or settings.is_open):
        solving = _Solving(run, first, settings, demands)
        solved = solving.solve(rules, requested, has_budgets)
        solved = replace(solved, turns=tuple(solving.stages), notes=tuple(solving.notes))
    else:
        solved = _solve_once(run, first, settings, demands, rules, requested)
    run.write_history(solved.turns)
    return solved


def _solve_once(
    run: Run,
    first: Vector,
    settings: choosing.OpenSettings,
    demands: Demands,
    rules: tuple[Rule, ...],
    requested: Sequence[Rule],
) -> Solved:
    """Fit once, without a choice of settings and without margins."""
    method = choosing.with_objective(run.method, settings.objective)
    run = replace(run, l2=float(settings.l2), method=method)
    stages = []
    if demands.relative_budget is not None:
        run.session.on_message("Training without budgets first, to measure relative budgets.")
        free, _ = run.plain_problem(without_budgets(rules), first)
        stages.append(run.first_fit(method, free, first, "reference", FREE))
        decided = run.decisions(free, stages[0].params)
        rules = run.relative_rules(requested, decided, demands.relative_budget)
    problem, notes = run.plain_problem(rules, first)
    stages.append(run.first_fit(method, problem, first, "fit"))
    if len(problem.constraints) and demands.confidence > 0 and traits_of(method).enforces_budgets:
        notes += run.noted((
            f"Method {method.name!r} does not support margins, so `confidence` "
            f"{demands.confidence:g} has no effect: budgets may be exceeded on new rows.",
        ))  # fmt: skip
    return Solved(
        run=run,
        params=stages[-1].params,
        state=stages[-1].state,
        turns=tuple(stages),
        notes=notes,
        rules=rules,
        decisive=problem.constraints,
    )


@dataclass(frozen=True)
class _Model:
    """A model, its fit, and its hard rates and confusion counts on training rows.

    ``confidence`` is the confidence of the margins in its fit, 0 without margins.
    """

    params: Vector
    stage: Stage
    hard: Vector
    confusion: Matrix
    confidence: float = 0.0


class _Solving:
    """The steps of one run; each step appends to ``stages`` and ``notes``."""

    known: Enforced  # the enforced budgets, set after the fit without budgets
    plain: _Model  # the fit with the plain budgets
    without: Matrix  # confusion counts of the model without budgets
    limits: Constraints | None = None  # limits on the shift of hard rates
    traces: Vector | None = None  # factors that convert multipliers to biases
    tolerance: float  # largest excess of a hard rate that counts as rounding

    def __init__(
        self, run: Run, first: Vector, settings: choosing.OpenSettings, demands: Demands
    ) -> None:
        self.run, self.first, self.settings, self.demands = run, first, settings, demands
        self.stages: list[Stage] = []
        self.notes: list[str] = []
        self.is_exact = bool(run.method.is_exact(first.size))

    def solve(
        self, rules: tuple[Rule, ...], requested: Sequence[Rule], has_budgets: bool
    ) -> Solved:
        """Run all steps."""
        free = self._fit_free()
        problem, rules = self._bounded_problem(rules, requested, free, has_budgets)
        has_budgets = len(problem.constraints) > 0
        chosen, selection, free = self._choose(problem, free)
        problem = replace(problem, l2=self.run.l2)
        if has_budgets and self.demands.shift is not None:
            rates = self._smooth_rates(free)
            limits = margins.rate_limits(self.known, rates, self.demands.shift)
            problem = replace(problem, constraints=problem.constraints.plus(limits))
        plain, compared = self._fit_plain(problem, free, chosen)
        solved = Solved(
            run=self.run,
            params=plain.params,
            state=plain.state,
            turns=(),
            notes=(),
            rules=rules,
            selection=selection,
            starts=compared,
            decisive=self.known.decisive if has_budgets else problem.constraints,
        )
        if not has_budgets or plain.state.status in ("infeasible", "failed"):
            return solved
        return self._enforce(solved, plain, free.params)

    # Steps 0 to 2: fit without budgets, choose, fit with the plain budgets

    def _fit_free(self) -> Stage:
        """Fit without budgets under the first settings."""
        l2, objective = self.settings.first
        self.run = run = replace(self.run, l2=l2)
        method = choosing.with_objective(run.method, objective)
        method = replace(method, tolerance=method.tolerance or FREE_TOLERANCE)
        problem, _ = run.build(without_budgets(run.setup.rules))
        free = run.first_fit(method, problem, self.first, "meet", FREE, reports=True)
        self.stages.append(free)
        return free

    def _bounded_problem(
        self, rules: tuple[Rule, ...], requested: Sequence[Rule], free: Stage, has_budgets: bool
    ) -> tuple[Problem, tuple[Rule, ...]]:
        """Return the problem under the budgets, and the rules with values for relative budgets."""
        run, demands = self.run, self.demands
        if not has_budgets:
            problem, left_out = run.build(rules)
            self.notes += run.noted(left_out)
            return problem, rules
        hard = run.decisions(free.state.problem, free.params)
        if demands.relative_budget is not None:
            rules = run.relative_rules(requested, hard, demands.relative_budget)
        problem, left_out = run.build(rules)
        comparisons, _ = run.build(rules, run.min_group_rows or 1.0)
        counts = np.concatenate([report.group_counts for report in hard.reports])
        self.known = margins.enforced(
            comparisons.constraints, rules, counts, hard.rates, demands.pooling, run.min_group_rows
        )
        self.notes += run.noted(() if self.known.pools else left_out)
        return replace(problem, constraints=self.known.budgets), rules

    def _smooth_rates(self, stage: Stage) -> Vector:
        """Return the smooth rates at the end of a fit, if possible from its last reports."""
        problem, params = stage.state.problem, stage.params
        for place, point in enumerate(stage.state.request.points):
            if stage.reports and np.array_equal(point.params, params):
                return evaluate_point(problem, params, stage.reports, place).rates
        reports = self.run.ask((Point(params),), "the rates of a fitted model")
        return evaluate_point(problem, params, reports).rates

    def _choose(
        self, problem: Problem, free: Stage
    ) -> tuple[choosing.Lane | None, results.Selection | None, Stage]:
        """Choose the open settings.

        Return the fit under the chosen settings, the selection, and the fit without budgets at the
        chosen L2 weight.
        """
        run, settings = self.run, self.settings
        if not settings.is_open:
            self.run = replace(run, method=choosing.with_objective(run.method, settings.objective))
            return None, None, free
        selection, lane, without = choosing.choose(run, problem, settings, free)
        run.session.on_message(selection.sentence)
        objective = results.objective_setting(selection.objective)
        method = choosing.with_objective(run.method, objective)
        self.run = replace(run, method=method, l2=float(selection.l2))
        if without is not None:
            free = Stage(Progress(without.state), reports=without.reports)
        return lane, selection, free

    def _fit_plain(
        self, problem: Problem, free: Stage, chosen: choosing.Lane | None
    ) -> tuple[Stage, tuple[results.Start, ...]]:
        """Fit under the plain budgets from the best start; return also the compared starts."""
        run, method, compared = self.run, self.run.method, tuple[results.Start, ...]()
        if self.demands.confidence > 0 and len(problem.constraints):
            method = replace(method, tolerance=method.tolerance or PLAIN_TOLERANCE)
        n_starts = self.demands.starts or (1 if chosen is not None or not self.is_exact else 2)
        if chosen is not None:
            state = method.restart(chosen.state, problem, chosen.reports or None)
        elif n_starts == 1:
            state = method.init(self.first, problem)
        else:
            state = method.restart(free.state, problem, free.reports)
        if n_starts > 1 and len(problem.constraints):
            others = {"first": self.first}
            others |= run.setup.model.other_starts(n_starts - 2, run.seed)
            state, compared = choosing.best_start(run, method, state, others)
        stage = run.fit(method, state, "fit", reports=True)
        self.stages.append(stage)
        return stage, compared

    # Steps 3 to 5: margins, the tightened fit, decisions within the bounds

    def _enforce(self, solved: Solved, stage: Stage, free: Vector) -> Solved:
        """Tighten and project the fit; return the final model with its summaries."""
        known, on_message = self.known, self.run.session.on_message
        self.plain = model = self._look(stage, free)
        bounds, tight = known.budgets.bounds, None
        if self.demands.confidence > 0:
            model, tight = self._tighten()
            bounds = tight.decided if model.confidence else bounds
        model = self._project(model, bounds)
        exceeded = self._exceeded(model.hard)
        notes, summary, pooling = list[str](), None, self._pooling_summary(model)
        if tight is not None:
            names = [row.client or "all clients together" for row in known.budgets.rows]
            summary = results.MarginSummary.of(
                self.demands.confidence, model.confidence, names, tight.rows_short
            )
            kinds = {with_label(row.kind) for row in known.budgets.rows}  # type: ignore[arg-type]
            kind = kinds.pop() if len(kinds) == 1 else ""
            notes += margin_notes(summary, kind, pools=known.pools)
        if pooling is not None:
            notes += pooling_notes(pooling)
        for sentence in notes:
            on_message(sentence)
        if exceeded:  # the exit code and the suggestions are derived from `exceeded` elsewhere
            listed = first_of((f"{name} by {by:.3g}" for name, by in exceeded.items()), 5)
            notes.append(
                f"Decisions on training rows exceed {listed}. A larger budget, more rows, or "
                "`--scope global` may help."
            )
        self.notes += notes
        return replace(
            solved,
            params=model.params,
            state=model.stage.state,
            decisive=None,
            exceeded=exceeded,
            biases=None if self.traces is None else _net_weights(model.stage) * self.traces,
            price=self._price(model),
            margins=summary,
            pooling=pooling,
        )

    def _look(self, stage: Stage, free: Vector) -> _Model:
        """Measure decisions of the models with and without budgets, and traces for the biases.

        This takes two exchanges: one for decisions and the curvature of the losses, one for the
        traces.
        """
        problem, run = stage.state.problem, self.run
        points = [Point(stage.params, "decisions"), Point(free, "decisions")]
        has_traces = self.is_exact and self.demands.confidence > 0
        if has_traces:
            points.append(loss_curvature(stage.state))
        with run.federation.phase("check"):
            reports = run.ask(points, "the decisions of models")
        at = evaluate_point(problem, stage.params, reports)
        without = evaluate_point(problem, free, reports, 1)
        self.without, shift = confusions(without), self.demands.shift
        if shift is not None:
            self.limits = margins.rate_limits(self.known, without.rates, shift)
        is_counted = not np.isnan(at.reports[0].loss) and all(
            report.confusion is not None for report in at.reports
        )  # otherwise reports have smooth rates instead of counts, which are not exact
        self.tolerance = KEPT if is_counted else FEASIBILITY_TOLERANCE
        if has_traces and all(client.sends_spread for client in run.introductions.values()):
            factor = inverse_factor(evaluate_point(problem, stage.params, reports, 2), stage.state)
            self.traces = None if factor is None else self._bias_traces(stage, factor)
        return _Model(stage.params, stage, at.rates, confusions(at))

    def _bias_traces(self, stage: Stage, factor: Matrix) -> Vector | None:
        """Return tr(H⁻¹ C) of every rate, stacked by client."""
        point = Point(stage.params, extras=(GradientSpread(factor),))
        try:
            with self.run.federation.phase("tighten"):
                reports = self.run.ask((point,), "the covariance of gradients")
        except ReportError:  # optional for user-defined clients
            return None
        clients = stage.state.problem.clients
        return np.concatenate([reports[c][0].extras["gradient_spread"] for c in clients])

    def _tightened(self, confidence: float) -> Tightened:
        """Return the bounds for a confidence, with biases from the multipliers of the plain fit."""
        known, plain, stage = self.known, self.plain, self.plain.stage
        net = _net_weights(stage)
        if self.traces is not None:
            bias = known.budgets.apply(net * self.traces)
        else:
            deviation = margins.sample(known.own, known.counts, plain.hard).deviation
            bias = OPTIMISM * deviation * np.sign(known.budgets.apply(net))
        problem, new_rows = stage.state.problem, self.demands.new_rows
        per_new_row = margins.rows_per_new_row(problem, known.budgets.rows, new_rows)
        smooth = self._smooth_rates(stage)
        return margins.tightened(known, smooth, plain.hard, bias, confidence, per_new_row)

    def _tighten(self) -> tuple[_Model, Tightened]:
        """Return the model under the full margins, or else under the largest acceptable ones."""
        confidence, budgets, plain = self.demands.confidence, self.known.budgets.bounds, self.plain
        tight = self._tightened(confidence)
        if (budgets - tight.smooth).max(initial=0.0) <= KEPT:
            return replace(plain, confidence=confidence), tight
        model = self._fit_tight(tight, confidence)
        if model is not None or not self.is_exact:
            return model or plain, tight
        if not tight.can_tell.any():  # then every rung has the plain bounds
            return plain, tight
        rungs = [rung for rung in RUNGS if rung < confidence] + [confidence]
        best, low, high = (plain, tight), -1, len(rungs)
        middle = high - 1
        if tight.can_tell.all():  # then the last rung equals the fit that failed
            high = len(rungs) - 1
            middle = (low + high) // 2
        while high - low > 1:
            bounds = self._tightened(rungs[middle]).where_rows_tell(budgets)
            model = self._fit_tight(bounds, rungs[middle])
            if model is None:
                high = middle
            else:
                low, best = middle, (model, bounds)
            middle = (low + high) // 2
        return best

    def _fit_tight(self, tight: Tightened, confidence: float) -> _Model | None:
        """Fit under tightened bounds; return None if it costs too much or does not converge."""
        run, plain, method = self.run, self.plain.stage, self.run.method
        problem: Problem = plain.state.problem
        constraints = problem.constraints
        bounds = np.append(tight.smooth, constraints.bounds[len(tight.smooth) :])
        problem = replace(problem, constraints=constraints.with_bounds(bounds))
        if self.is_exact:
            rounds = (TIGHT_ROUNDS, TIGHT_ROUNDS if method.objective == "max" else 0)
            method = replace(
                method,
                tolerance=TIGHT_TOLERANCE,
                feasibility=TIGHT_FEASIBILITY,
                rounds=rounds,
                max_penalty=MAX_PENALTY,
            )
        begun = method.restart(plain.state, problem, plain.reports)
        folder = f"fit-{len(self.stages)}-tightened"
        stage = run.fit(method, begun, "tighten", folder, reports=True)
        self.stages.append(stage)
        violation = problem.constraints.violations(self._smooth_rates(stage)).max(initial=-np.inf)
        has_converged = stage.state.status == "converged" or not self.is_exact
        if violation > TIGHT_FEASIBILITY or not has_converged:
            return None
        at = run.decisions(problem, stage.params)
        model = _Model(stage.params, stage, at.rates, confusions(at), confidence)
        return None if self._costs_too_much(model) else model

    def _costs_too_much(self, model: _Model) -> bool:
        """Return whether a model loses more accuracy than allowed, compared with the plain fit."""
        lost = self._accuracy(self.plain.confusion) - self._accuracy(model.confusion)
        return bool(lost > self.demands.max_accuracy_loss)

    def _accuracy(self, confusion: Matrix) -> float:
        """Return the accuracy, with false positives weighted by 2 P and false negatives 2 (1 - P).

        P is the model's threshold; at .5 this is the plain accuracy.
        """
        P = float(self.run.setup.model.threshold)
        _, false_positive, false_negative, _ = confusion.sum(axis=0)
        weighted = (1.0 - P) * false_negative + P * false_positive
        return float(1.0 - 2.0 * weighted / confusion.sum())

    def _project(self, model: _Model, bounds: Vector) -> _Model:
        """Project decisions onto ``bounds``; if they still exceed budgets, onto the budgets."""
        projected = self._projected(model, bounds, "projected")
        if projected is not None and not self._costs_too_much(projected):
            model = projected
        excess = sum(self._exceeded(model.hard).values())
        if excess:
            again = self._projected(model, self.known.budgets.bounds, "within")
            if again is not None and sum(self._exceeded(again.hard).values()) < excess:
                model = again
        return model

    def _projected(self, model: _Model, bounds: Vector, name: str) -> _Model | None:
        """Return the model after the smallest change that satisfies all bounds by decisions.

        Estimates must satisfy ``bounds``, own rows that suffice their budgets, and the federation's
        rates their limits. Return None if no change is needed or none was found.
        """
        rows = self._limited(self.known.budgets.with_bounds(bounds).plus(self.known.telling))
        if (rows.violations(model.hard) <= KEPT).all():
            return None
        problem = replace(self.plain.stage.state.problem, constraints=rows)
        method = RestoreDecisions(exact=self.is_exact)
        state, folder = method.init(model.params, problem), f"fit-{len(self.stages)}-{name}"
        self.stages.append(self.run.fit(method, state, "project", folder))
        state = self.stages[-1].state
        if not state.decided.size:
            return None
        return replace(model, params=state.params, hard=state.decided, confusion=state.confusion)

    def _exceeded(self, hard: Vector) -> dict[str, float]:
        """Return the excess of decisions over decisive budgets and rate limits, by name."""
        return exceeded_by(self._limited(self.known.decisive), hard, self.tolerance)

    def _limited(self, rows: Constraints) -> Constraints:
        """Return the constraints together with the rate limits."""
        return rows if self.limits is None else rows.plus(self.limits)

    # Summaries

    def _price(self, model: _Model) -> results.PriceOfBudgets | None:
        """Return accuracies without budgets, with budgets and with margins, if counts are known."""
        steps = [self.without, self.plain.confusion, model.confusion]
        if any(np.isnan(step).any() for step in steps):
            return None
        clients = self.plain.stage.state.problem.clients
        lost = self._accuracy(steps[0]) - self._accuracy(steps[-1])
        without, budgets, tight = (results.PriceStep.of(clients, step) for step in steps)
        return results.PriceOfBudgets(without, budgets, tight, lost)

    def _pooling_summary(self, model: _Model) -> results.PoolingSummary | None:
        """Return the weights and spreads of pooled comparisons, or None without any."""
        known, over = self.known, self.known.own.violations(model.hard) > KEPT
        if not known.pools:
            return None
        weights: dict[ClientId, float] = {}
        tells: dict[ClientId, bool] = {}
        for row, weight, can_tell in zip(known.own.rows, known.weight, known.tells, strict=True):
            if row.client is not None:
                weights[row.client] = min(weights.get(row.client, 1.0), round(weight, 4))
                tells[row.client] = tells.get(row.client, True) and bool(can_tell)
        exceed = {known.own.rows[i].client: None for i in np.flatnonzero(over & ~known.tells)}
        return results.PoolingSummary(
            spread={name: round(value, 4) for name, value in known.spread.items()},
            weights=weights,
            own_rows_decide=tuple(client for client, can_tell in tells.items() if can_tell),
            exceed_on_own_rows=tuple(client for client in exceed if client is not None),
            odd=known.odd,
        )


def _net_weights(stage: Stage) -> Vector:
    """Return the net multiplier of each rate at the end of a fit."""
    state = stage.state
    weights: Vector = state.problem.constraints.weigh_rates(state.row_weights)
    return weights
