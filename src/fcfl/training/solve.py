"""Train under budgets by SQP: choose, fit, tighten once, project once.

0. A fit without budgets, from which everything starts. It fixes which budgets are estimates over
   clients, where rates may shift to, and what budgets cost (`margins.enforced`).
1. The L2 weight and the objective are chosen under the budgets (`choose`).
2. The fit with the plain budgets. From here on rates are limited, too: to near those of the model
   without budgets at the same L2 weight, which was trained along with the candidates.
3. Margins for the confidence asked for, by a formula from these (`margins.tightened`).
4. A fit under the tightened bounds. Where it costs more accuracy than allowed, or does not
   converge, the largest confidence among `RUNGS` for which it does.
5. The smallest change of the model that brings its decisions within the bounds
   (`methods.decisions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._files import read_json, write_json
from fcfl._types import ClientId, Matrix, Point, Reports, Vector
from fcfl.audit.forecast import OPTIMISM
from fcfl.errors import ReportError
from fcfl.federation.exchange_count import Phase
from fcfl.federation.loop import Progress
from fcfl.methods.decisions import KEPT, DecisionState, RestoreDecisions, confusions
from fcfl.methods.method import next_state
from fcfl.models.influence import GradientSpread
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE, Constraints, exceeded_by
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point
from fcfl.results.findings import margin_notes, pooling_notes
from fcfl.results.result import (
    MarginSummary,
    PoolingSummary,
    PriceOfBudgets,
    PriceStep,
    Selection,
    Share,
    Start,
    objective_setting,
)
from fcfl.rules import Rule, with_label, without_budgets
from fcfl.training.choose import choose, inverse_factor, loss_curvature
from fcfl.training.lanes import Lane, best_start
from fcfl.training.margins import (
    Enforced,
    Pooling,
    Tightened,
    enforced,
    rate_limits,
    rows_per_new_row,
    sample,
    tightened,
)
from fcfl.training.run import FREE, SELECTION, Run, Stage
from fcfl.training.settings import (
    MAX_ACCURACY_LOSS,
    MAX_RATE_SHIFT,
    OpenSettings,
    with_objective,
)

FREE_TOLERANCE = 1e-3  # KKT residual of the fit without budgets
# KKT residual of a tightened fit, and the violation that it may leave to the projection. With
# 2.5e-3 and 1e-6 runs on adult-5 take 44 and 41 exchanges in place of 39 and 38, at an accuracy
# that is .0003 higher (`benchmarks.promise`, seeds 10 to 29).
TIGHT_TOLERANCE, TIGHT_FEASIBILITY = 5e-3, 1e-3
PLAIN_TOLERANCE = 1e-4  # of the fit that margins are made for
MAX_PENALTY = 100.0  # of a tightened fit: no margin of .01 is worth a nat of loss
TIGHT_ROUNDS = 25  # of a tightened fit: of 53 that converged the longest took 19
RUNGS = (0.5, 0.8, 0.9, 0.95, 0.99)  # confidences to try where the one asked for costs too much


@dataclass(frozen=True)
class Demands:
    """What a run asks for beyond its budgets."""

    confidence: float = 0.9
    max_accuracy_loss: float = MAX_ACCURACY_LOSS
    max_rate_shift: float | None = None
    pooling: Pooling = "auto"
    new_rows: float | None = None

    @property
    def shift(self) -> float | None:
        """The limit on rate shifts; none with the plain budgets of the paper."""
        if self.max_rate_shift is not None:
            return self.max_rate_shift if self.max_rate_shift < 1.0 else None
        return MAX_RATE_SHIFT if self.confidence > 0 else None


@dataclass(frozen=True)
class Solved:
    """Where a run ended, and what its model does on training rows.

    ``decisive`` are the rows that decisions must keep, if not those of the problem.
    """

    run: Run
    params: Vector
    state: Any
    problem: Problem
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    selection: Selection | None
    starts: tuple[Start, ...] = ()
    rules: tuple[Rule, ...] = ()
    decisive: Constraints | None = None
    exceeded: Mapping[str, float] | None = None
    drifts: Vector | None = None
    price: PriceOfBudgets | None = None
    margins: MarginSummary | None = None
    pooling: PoolingSummary | None = None


def solve(
    run: Run,
    first: Vector,
    settings: OpenSettings,
    demands: Demands,
    *,
    asked: Sequence[Rule],
    relative: float | None,
    starts: int | None,
    start_is_given: bool,
    bounded: bool = True,
) -> Solved:
    """Train under the rules of the run; see the module. If not ``bounded``, without budgets."""
    solving = _Solving(run, first, settings, demands)
    if starts is None and start_is_given:
        starts = 1
    rules = run.setup.rules if bounded else without_budgets(run.setup.rules)
    if relative is None and not settings.is_open and all(rule.budget is None for rule in rules):
        return solving.ended(solving.fit_once(rules))
    return solving.ended(solving.solve(rules, asked, relative, starts))


@dataclass(frozen=True)
class _Model:
    """A model and what it decides on training rows, under margins for ``confidence``."""

    params: Vector
    state: Any
    hard: Vector
    confusion: Matrix
    confidence: float = 0.0


class _Solving:
    """One run, step by step; each step adds to ``stages`` and ``notes``."""

    known: Enforced  # the budgets in force, once the fit without them is there
    plain: Stage  # the fit with the plain budgets
    looked: Evaluation  # its decisions
    without: Evaluation  # decisions of the model without budgets
    limits: Constraints | None  # on hard rates
    traces: Vector | None = None  # by which multipliers become biases

    def __init__(self, run: Run, first: Vector, settings: OpenSettings, demands: Demands) -> None:
        self.run, self.first, self.settings, self.demands = run, first, settings, demands
        self.stages: list[Stage] = []
        self.notes: list[str] = []
        self.is_exact = bool(run.method.is_exact(first.size))

    def ended(self, solved: Solved) -> Solved:
        """Add all fits and notes, and write the history of the run."""
        self.run.write_history(self.stages)
        return replace(solved, stages=tuple(self.stages), notes=tuple(dict.fromkeys(self.notes)))

    def fit_once(self, rules: tuple[Rule, ...]) -> Solved:
        """Fit once: there is nothing to choose and no budget to keep."""
        l2, objective = self.settings.l2, self.settings.objective
        stage = self._first_fit(rules, float(l2), objective, None, "fit", "", is_noted=True)
        problem = stage.state.problem
        return Solved(self.run, stage.params, stage.state, problem, (), (), None, (), rules)

    def solve(
        self,
        rules: tuple[Rule, ...],
        asked: Sequence[Rule],
        relative: float | None,
        starts: int | None,
    ) -> Solved:
        """Run all steps."""
        run = self.run
        is_bounded = relative is not None or any(rule.budget is not None for rule in rules)
        free_rules = without_budgets(run.setup.rules)
        free = self._first_fit(free_rules, *self.settings.first, FREE_TOLERANCE, "meet", FREE)
        free = replace(free, reports=self.run.reports_of(free))
        self.stages[-1] = free
        hard = None
        if is_bounded:
            with run.federation.phase("check"):
                points = (Point(free.params, "decisions"),)
                hard = run.ask(points, "how a model without budgets decides")
            if relative is not None:
                rules = run.relative_rules(asked, hard, relative)
        problem, has_budgets = self._bounded_problem(rules, free, hard)
        chosen, selection, free = self._choose(problem, free)
        problem = replace(problem, l2=self.run.l2)
        if has_budgets and self.demands.shift is not None:
            limits = rate_limits(self.known, self._smooth_rates(free), self.demands.shift)
            problem = replace(problem, constraints=problem.constraints.plus(limits))
        plain, compared = self._fit_plain(problem, free, chosen, starts)
        solved = Solved(
            self.run, plain.params, plain.state, problem, (), (), selection, compared, rules
        )
        if not has_budgets:
            return solved
        if plain.state.status in ("infeasible", "failed"):
            return replace(solved, decisive=self.known.decisive)
        self.plain = plain
        return self._enforce(solved, free.params)

    # Steps 0 to 2: fit without budgets, choose, fit with the plain budgets

    def _first_fit(
        self,
        rules: Sequence[Rule],
        l2: float,
        objective: Any,
        tolerance: float | None,
        phase: Phase,
        folder: str,
        *,
        is_noted: bool = False,
    ) -> Stage:
        """Fit from the first parameters; clients were met by the fit's first request."""
        method = with_objective(self.run.method, objective)
        method = replace(method, tolerance=method.tolerance or tolerance)
        self.run = run = replace(self.run, l2=l2, method=method if is_noted else self.run.method)
        problem, left_out = run.build(rules)
        if is_noted:
            self.notes += run.noted(left_out)
        state, _ = next_state(method, method.init(self.first, problem), run.counts)
        state = replace(state, rounds=(0, 0))  # that round was the first request
        with run.federation.phase(phase):
            stage = run.fit(method, state, folder)
        self.stages.append(stage)
        return stage

    def _bounded_problem(
        self, rules: Sequence[Rule], free: Stage, hard: Reports | None
    ) -> tuple[Problem, bool]:
        """Return the problem under the budgets, and whether any budget is in force."""
        run = self.run
        plain, left_out = run.build(rules)
        if hard is None:
            self.notes += run.noted(left_out)
            return plain, False
        every, _ = run.build(rules, run.min_group_rows or 1.0)
        at = evaluate_point(plain, free.params, hard)
        counts = np.concatenate([report.group_counts for report in at.reports])
        least, pooling = run.min_group_rows, self.demands.pooling
        self.known = enforced(every.constraints, rules, counts, at.rates, pooling, least)
        self.notes += run.noted(() if self.known.pools else left_out)
        budgets = self.known.budgets
        return replace(plain, constraints=budgets), len(budgets) > 0

    def _smooth_rates(self, stage: Stage) -> Vector:
        """Return smooth rates where a fit ended, from the reports on its last request."""
        reports, request = self.run.reports_of(stage), stage.state.request
        for place, point in enumerate(request.points):
            if np.array_equal(point.params, stage.params):
                at = evaluate_point(stage.state.problem, stage.params, reports, place)
                return np.asarray(at.rates)
        reports = self.run.ask((Point(stage.params),), "how a model without budgets does")
        return np.asarray(evaluate_point(stage.state.problem, stage.params, reports).rates)

    def _choose(self, problem: Problem, free: Stage) -> tuple[Lane | None, Selection | None, Stage]:
        """Settle what is left open; read back what was chosen before a run was stopped.

        Return the fit of the settings chosen, and the one without budgets at their L2 weight.
        """
        run, settings, session = self.run, self.settings, self.run.session
        if not settings.is_open:
            self.run = replace(run, method=with_objective(run.method, settings.objective))
            return None, None, free
        start = free.state, run.reports_of(free)
        with run.federation.phase("choose"):
            selection, lane, without = choose(
                run.clients, problem, run.method, settings, start, session.on_round
            )
        if session.folder is not None:
            path = session.folder / SELECTION
            if session.resume and path.exists():
                selection = read_json(path, Selection)
            else:
                write_json(path, selection)
        session.on_message(selection.sentence)
        method = with_objective(run.method, objective_setting(selection.objective))
        self.run = replace(run, method=method, l2=float(selection.l2))
        if without is not None:
            free = Stage(Progress(without.state), (), "", without.reports)
        return lane, selection, free

    def _fit_plain(
        self, problem: Problem, free: Stage, chosen: Lane | None, starts: int | None
    ) -> tuple[Stage, tuple[Start, ...]]:
        """Fit under the plain budgets, from the best of the starts that are compared."""
        run, method = self.run, self.run.method
        if self.demands.confidence > 0 and len(problem.constraints):
            method = replace(method, tolerance=method.tolerance or PLAIN_TOLERANCE)
        n_starts = starts or (1 if chosen is not None or not self.is_exact else 2)
        if chosen is not None:
            state = method.restart(chosen.state, problem, chosen.reports)
        elif n_starts == 1:
            state = method.init(self.first, problem)
        else:
            state = method.restart(free.state, problem, run.reports_of(free))
        compared: tuple[Start, ...] = ()
        if n_starts > 1 and len(problem.constraints):
            others = {"first": self.first}
            others |= run.setup.model.other_starts(n_starts - 2, run.seed)
            with run.federation.phase("starts"):
                state, compared = best_start(
                    method, state, others, run.clients, run.session.on_round
                )
        with run.federation.phase("fit"):
            stage = run.fit(method, state)
            stage = replace(stage, reports=run.reports_of(stage))
        self.stages.append(stage)
        return stage, compared

    # Steps 3 to 5: margins, the tightened fit, decisions within the bounds

    def _enforce(self, solved: Solved, free: Vector) -> Solved:
        """Return the model that the run ends with, and what it does on training rows."""
        plain, tight = self._look(free), None
        model, bounds = plain, self.known.budgets.bounds
        if self.demands.confidence > 0:
            tight = self._tightened(plain, self.demands.confidence)
            model, tight = self._tighten(plain, tight)
            bounds = tight.decided if model.confidence else bounds
        model = self._project(model, bounds, plain)
        exceeded = self._exceeded(model.hard)
        margins, pooling = self._margin_summary(model, tight), self._pooling_summary(model)
        kinds = {with_label(row.kind) for row in self.known.budgets.rows}  # type: ignore[arg-type]
        kind = kinds.pop() if len(kinds) == 1 else ""
        said = [] if margins is None else margin_notes(margins, kind, pools=self.known.pools)
        said += [] if pooling is None else pooling_notes(pooling)
        for sentence in said:
            self.run.session.on_message(sentence)
        if exceeded:  # the exit code and the ways out follow from it elsewhere
            listed = first_of((f"{name} by {by:.3g}" for name, by in exceeded.items()), 5)
            said.append(
                f"Decisions on training rows exceed {listed}. A larger budget, more rows, or "
                "`--scope global` may help."
            )
        self.notes += said
        return replace(
            solved,
            params=model.params,
            state=model.state,
            exceeded=exceeded,
            drifts=self._drifts(model),
            price=self._price(plain, model),
            margins=margins,
            pooling=pooling,
        )

    def _look(self, free: Vector) -> _Model:
        """Ask how the plain model and the one without budgets decide, and what biases rates have.

        Two exchanges: decisions with the curvature of the losses, then the traces.
        """
        plain, problem, run = self.plain, self.plain.state.problem, self.run
        has_margins = self.demands.confidence > 0
        points = [Point(plain.params, "decisions"), Point(free, "decisions")]
        if self.is_exact and has_margins:
            points.append(loss_curvature(plain.state))
        with run.federation.phase("check"):
            reports = run.ask(points, "how models decide")
        at = self.looked = evaluate_point(problem, plain.params, reports)
        self.without = evaluate_point(problem, free, reports, 1)
        shift = self.demands.shift
        self.limits = None if shift is None else rate_limits(self.known, self.without.rates, shift)
        if len(points) > 2 and all(said.sends_spread for said in run.introductions.values()):
            self.traces = self._bias_traces(evaluate_point(problem, plain.params, reports, 2))
        return _Model(plain.params, plain.state, at.rates, confusions(at))

    def _bias_traces(self, bent: Evaluation) -> Vector | None:
        """Return tr(H⁻¹ C) of every rate, stacked by client; None where H is indefinite."""
        factor = inverse_factor(bent, self.plain.state)
        if factor is None:
            return None
        question = Point(self.plain.params, extras=(GradientSpread(factor),))
        try:
            with self.run.federation.phase("tighten"):
                reports = self.run.ask((question,), "how much gradients of rates vary")
        except ReportError:  # a client of your own need not answer this
            return None
        answers = evaluate_point(bent.problem, self.plain.params, reports).reports
        return np.concatenate([report.extras["gradient_spread"] for report in answers])

    def _tightened(self, plain: _Model, confidence: float) -> Tightened:
        """Return the bounds for a confidence; biases are those of the plain fit's multipliers."""
        known, constraints = self.known, plain.state.problem.constraints
        net = constraints.weigh_rates(plain.state.row_weights)
        if self.traces is not None:
            bias = known.budgets.apply(net * self.traces)
        else:
            deviation = sample(known.own, known.counts, self.looked.rates).deviation
            bias = OPTIMISM * deviation * np.sign(known.budgets.apply(net))
        rows, n_new = known.budgets.rows, self.demands.new_rows
        new = rows_per_new_row(self.plain.state.problem, rows, n_new)
        smooth = self._smooth_rates(self.plain)
        return tightened(known, smooth, plain.hard, bias, confidence, new)

    def _tighten(self, plain: _Model, tight: Tightened) -> tuple[_Model, Tightened]:
        """Return the model under the largest margins that it can bear, the whole ones first."""
        confidence, budgets = self.demands.confidence, self.known.budgets.bounds
        if (budgets - tight.smooth).max(initial=0.0) <= KEPT:
            return replace(plain, confidence=confidence), tight
        found = self._fit_tight(plain, tight, confidence)
        if found is not None or not self.is_exact:
            return (plain if found is None else found), tight
        if not tight.can_tell.any():  # every rung would have the plain bounds
            return plain, tight
        rungs = [rung for rung in RUNGS if rung < confidence] + [confidence]
        best, low, high = (plain, tight), -1, len(rungs)
        middle = high - 1
        if tight.can_tell.all():  # the last rung is the fit that failed
            high = len(rungs) - 1
            middle = (low + high) // 2
        while high - low > 1:
            bounds = self._tightened(plain, rungs[middle]).where_rows_tell(budgets)
            found = self._fit_tight(plain, bounds, rungs[middle])
            if found is None:
                high = middle
            else:
                low, best = middle, (found, bounds)
            middle = (low + high) // 2
        return best

    def _fit_tight(self, plain: _Model, tight: Tightened, confidence: float) -> _Model | None:
        """Fit under tightened bounds; None if that costs too much or does not converge."""
        run, state, method = self.run, self.plain.state, self.run.method
        constraints = state.problem.constraints
        bounds = np.append(tight.smooth, constraints.bounds[len(tight.smooth) :])
        problem = replace(state.problem, constraints=constraints.with_bounds(bounds))
        if self.is_exact:
            rounds = (TIGHT_ROUNDS, TIGHT_ROUNDS if method.objective == "max" else 0)
            method = replace(
                method,
                tolerance=TIGHT_TOLERANCE,
                feasibility=TIGHT_FEASIBILITY,
                rounds=rounds,
                max_penalty=MAX_PENALTY,
            )
        begun = method.restart(state, problem, run.reports_of(self.plain))
        with run.federation.phase("tighten"):
            stage = run.fit(method, begun, f"fit-{len(self.stages)}-tightened")
            stage = replace(stage, reports=run.reports_of(stage))
        self.stages.append(stage)
        violation = problem.constraints.violations(self._smooth_rates(stage)).max(initial=-np.inf)
        has_converged = stage.state.status == "converged" or not self.is_exact
        if violation > TIGHT_FEASIBILITY or not has_converged:
            return None
        with run.federation.phase("check"):
            reports = run.ask((Point(stage.params, "decisions"),), "how the model decides")
        at = evaluate_point(problem, stage.params, reports)
        found = _Model(stage.params, stage.state, at.rates, confusions(at), confidence)
        return None if self._costs_too_much(found, plain) else found

    def _costs_too_much(self, model: _Model, plain: _Model) -> bool:
        lost = self._accuracy(plain.confusion) - self._accuracy(model.confusion)
        return bool(lost > self.demands.max_accuracy_loss)

    def _accuracy(self, confusion: Matrix) -> float:
        """Share decided correctly; with a threshold P wrong decisions weigh as P and 1 - P."""
        P = float(self.run.setup.model.threshold)
        _, false_positive, false_negative, _ = confusion.sum(axis=0)
        weighted = (1.0 - P) * false_negative + P * false_positive
        return float(1.0 - 2.0 * weighted / confusion.sum())

    def _project(self, model: _Model, bounds: Vector, plain: _Model) -> _Model:
        """Bring decisions within ``bounds``; within the budgets at least."""
        found = self._projected(model, bounds, "projected")
        if found is not None and not self._costs_too_much(found, plain):
            model = found
        excess = sum(self._exceeded(model.hard).values())
        if excess:
            again = self._projected(model, self.known.budgets.bounds, "within")
            if again is not None and sum(self._exceeded(again.hard).values()) < excess:
                model = again
        return model

    def _projected(self, model: _Model, bounds: Vector, name: str) -> _Model | None:
        """Return the smallest change that brings decisions within bounds; None if none is needed.

        Estimates are within ``bounds``, own rows that can tell within their budgets, and the
        federation's rates within their limits.
        """
        known = self.known
        own = known.own.take(np.flatnonzero(known.tells & known.is_pooled))
        rows = known.budgets.with_bounds(bounds).plus(own)
        rows = rows if self.limits is None else rows.plus(self.limits)
        if (rows.violations(model.hard) <= KEPT).all():
            return None
        problem = replace(self.plain.state.problem, constraints=rows)
        method = RestoreDecisions(exact=self.is_exact)
        folder = f"fit-{len(self.stages)}-{name}"
        with self.run.federation.phase("project"):
            stage = self.run.fit(method, method.init(model.params, problem), folder)
        self.stages.append(stage)
        state: DecisionState = stage.state
        if not state.decided.size:
            return None
        return replace(model, params=state.params, hard=state.decided, confusion=state.confusion)

    def _exceeded(self, hard: Vector) -> dict[str, float]:
        """Return what decisions exceed, by name: budgets that they must keep, limits on rates.

        Counts are exact; smooth rates, which stand in where a client counts none, are not.
        """
        reports = self.looked.reports
        is_counted = not np.isnan(reports[0].loss) and all(
            report.confusion is not None for report in reports
        )
        rows = self.known.decisive
        rows = rows if self.limits is None else rows.plus(self.limits)
        return exceeded_by(rows, hard, KEPT if is_counted else FEASIBILITY_TOLERANCE)

    # What is reported

    def _drifts(self, model: _Model) -> Vector | None:
        """Return the bias of each rate, at the model's multipliers."""
        if self.traces is None:
            return None
        net = model.state.problem.constraints.weigh_rates(model.state.row_weights)
        return np.asarray(net * self.traces)

    def _price(self, plain: _Model, model: _Model) -> PriceOfBudgets | None:
        clients = self.plain.state.problem.clients
        steps = [confusions(self.without), plain.confusion, model.confusion]
        if any(np.isnan(step).any() for step in steps):
            return None
        lost = self._accuracy(steps[0]) - self._accuracy(steps[-1])
        without, budgets, margins = (_price_step(clients, step) for step in steps)
        return PriceOfBudgets(without, budgets, margins, lost)

    def _margin_summary(self, model: _Model, tight: Tightened | None) -> MarginSummary | None:
        if tight is None:
            return None
        asked = self.demands.confidence
        needed: dict[ClientId, float] = {}
        for row, times in zip(self.known.budgets.rows, tight.rows_short, strict=True):
            if times > 1.0:
                name = "all clients together" if row.client is None else row.client
                needed[name] = max(needed.get(name, 0.0), round(float(times), 2))
        ordered = sorted(needed.items(), key=lambda item: -item[1])
        short = {name: times if np.isfinite(times) else None for name, times in ordered}
        return MarginSummary(asked, model.confidence if model.confidence < asked else None, short)

    def _pooling_summary(self, model: _Model) -> PoolingSummary | None:
        known = self.known
        if not known.pools:
            return None
        over = known.own.violations(model.hard) > KEPT
        weights: dict[ClientId, float] = {}
        tells: dict[ClientId, bool] = {}
        exceed: dict[ClientId, None] = {}
        for i, row in enumerate(known.own.rows):
            if row.client is not None:
                weights[row.client] = min(weights.get(row.client, 1.0), round(known.weight[i], 4))
                tells[row.client] = tells.get(row.client, True) and bool(known.tells[i])
                if over[i] and not known.tells[i]:
                    exceed[row.client] = None
        spread = {name: round(value, 4) for name, value in known.spread.items()}
        deciding = tuple(client for client, can in tells.items() if can)
        return PoolingSummary(spread, weights, deciding, tuple(exceed), known.odd)


def _price_step(clients: Sequence[ClientId], confusion: Matrix) -> PriceStep:
    def share(counts: Vector) -> Share:
        true_negative, false_positive, _, true_positive = counts
        n = max(float(counts.sum()), 1e-300)
        right, selected = true_negative + true_positive, false_positive + true_positive
        return Share(float(right) / n, float(selected) / n)

    overall = share(confusion.sum(axis=0))
    each = {client: share(own) for client, own in zip(clients, confusion, strict=True)}
    return PriceStep(overall.accuracy, overall.selected, each)
