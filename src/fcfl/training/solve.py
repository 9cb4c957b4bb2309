"""Choose, fit, tighten once, project once: how a run under budgets goes by SQP.

0. A fit without budgets, from which everything starts. It fixes which budgets are estimates over
   clients, where rates may shift to, and what budgets cost (`margins.enforced`).
1. The L2 weight and the objective are chosen under the budgets (`choose`).
2. The fit with the plain budgets. From here on rates are limited, too: to near those of the model
   without budgets at the same L2 weight, which was trained along with the candidates.
3. Margins for the confidence asked for, by a formula from these (`margins.tightened`).
4. A fit under the tightened bounds. Where it costs more accuracy than allowed, or does not
   converge, the largest confidence among `RUNGS` for which it does.
5. The smallest change of the model that brings its decisions within the bounds
   (`server.decisions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcfl._files import read_json, write_json
from fcfl._types import ClientId, Matrix, Point, Reports, Vector
from fcfl.audit.forecast import OPTIMISM
from fcfl.errors import ReportError
from fcfl.federation.loop import Progress
from fcfl.methods.decisions import KEPT, DecisionState, RestoreDecisions, confusions
from fcfl.methods.method_checks import next_state
from fcfl.models.gradient_spread import GradientSpread
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE, Constraints, exceeded_by
from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point
from fcfl.results.findings import times_as_many
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
from fcfl.training.open_settings import (
    MAX_ACCURACY_LOSS,
    MAX_RATE_SHIFT,
    OpenSettings,
    with_objective,
)
from fcfl.training.stages import FREE, MOST_TOLD, SELECTION, Run, Stage
from fcfl.training.starts import best_start
from fcfl.training.together import Lane

FREE_TOLERANCE = 1e-3  # KKT residual of the fit without budgets
# KKT residual of a tightened fit. With 1e-3 runs take 6 % more exchanges (`benchmarks.promise`, 80
# runs on Adult, seeds 10 to 29), 103 instead of 67 at most; accuracy is .0002 higher.
TIGHT_TOLERANCE = 2.5e-3
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
    """Where a run ended, and what it is known to do on training rows.

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
    return _Solving(
        run, first, settings, demands, asked, relative, starts, start_is_given, bounded
    ).solve()


class _Solving:
    """One run, step by step; each step adds to ``stages`` and ``notes``."""

    def __init__(
        self,
        run: Run,
        first: Vector,
        settings: OpenSettings,
        demands: Demands,
        asked: Sequence[Rule],
        relative: float | None,
        starts: int | None,
        start_is_given: bool,
        bounded: bool,
    ) -> None:
        self.rules = run.setup.rules if bounded else without_budgets(run.setup.rules)
        self.run, self.settings, self.demands = run, settings, demands
        self.first, self.asked, self.relative, self.n_starts = first, asked, relative, starts
        self.is_given = start_is_given
        self.stages: list[Stage] = []
        self.notes: list[str] = []

    def solve(self) -> Solved:
        """All steps."""
        if not (self._is_bounded or self.settings.is_open):
            return self._fit_once()
        free = self._fit_free()
        rules = self.rules
        hard = self._decisions(free) if self._is_bounded else None
        if self.relative is not None and hard is not None:
            rules = self.run.relative_rules(self.asked, hard, self.relative)
        known, problem = self._bounded_problem(rules, free, hard)
        chosen, selection, free = self._choose(problem, free)
        problem = replace(problem, l2=self.run.l2)
        if known is not None and self.demands.shift is not None:
            limits = rate_limits(known, self._smooth_rates(free), self.demands.shift)
            problem = replace(problem, constraints=problem.constraints.plus(limits))
        plain, starts = self._fit_plain(problem, free, chosen)
        solved = Solved(
            self.run, plain.params, plain.state, problem, (), (), selection, starts, rules
        )
        if known is None:
            return self._ended(solved)
        if plain.state.status in ("infeasible", "failed"):
            return self._ended(replace(solved, decisive=known.decisive))
        return self._ended(_Enforcing(self, solved, known, plain, free.state).enforce())

    @property
    def _is_bounded(self) -> bool:
        given = any(rule.budget is not None for rule in self.rules)
        return self.relative is not None or given

    def _ended(self, solved: Solved) -> Solved:
        self.run.write_history(self.stages)
        return replace(solved, stages=tuple(self.stages), notes=tuple(dict.fromkeys(self.notes)))

    def _fit_once(self) -> Solved:
        """One fit: there is nothing to choose and no budget to keep."""
        self.run = run = replace(self.run, l2=float(self.settings.l2))
        problem, left_out = run.build(self.rules)
        self.notes += run.told(left_out)
        problem = run.own_best(problem, self.first)
        method = with_objective(run.method, self.settings.objective)
        state, _ = next_state(method, method.init(self.first, problem), run.counts)
        state = replace(state, rounds=(0, 0))  # that round was the first request
        self.run = run = replace(run, method=method)
        with run.federation.phase("fit"):
            stage = run.fit(method, state)
        self.stages.append(stage)
        rules = self.rules
        return self._ended(
            Solved(run, stage.params, stage.state, stage.state.problem, (), (), None, (), rules)
        )

    def _fit_free(self) -> Stage:
        """The fit without budgets; clients were met by its first request."""
        run = self.run
        l2, objective = self.settings.first
        method = with_objective(run.method, objective)
        method = replace(method, tolerance=method.tolerance or FREE_TOLERANCE)
        self.run = run = replace(run, l2=l2)
        problem, _ = run.build(without_budgets(run.setup.rules))
        problem = run.own_best(problem, self.first)
        state, _ = next_state(method, method.init(self.first, problem), run.counts)
        state = replace(state, rounds=(0, 0))  # that round was the first request
        with run.federation.phase("meet"):
            stage = run.answered(run.fit(method, state, FREE))
        self.stages.append(stage)
        return stage

    def _decisions(self, free: Stage) -> Reports:
        points = (Point(free.params, "decisions"),)
        with self.run.federation.phase("check"):
            return self.run.ask(points, "how a model without budgets decides")

    def _bounded_problem(
        self, rules: Sequence[Rule], free: Stage, hard: Reports | None
    ) -> tuple[Enforced | None, Problem]:
        """The problem under the budgets, and which of its rows are estimates over clients."""
        run = self.run
        plain, left_out = run.build(rules)
        plain = replace(plain, own_best_losses=free.state.problem.own_best_losses)
        if hard is None:
            self.notes += run.told(left_out)
            return None, plain
        every, _ = run.build(rules, run.min_group_rows or 1.0)
        at = evaluate_point(plain, free.params, hard)
        counts = np.concatenate([report.group_counts for report in at.reports])
        known = enforced(
            *(every.constraints, rules, counts, at.rates),
            *(self.demands.pooling, run.min_group_rows),
        )
        self.notes += run.told(left_out if not known.pools else ())
        if not len(known.budgets):
            return None, replace(plain, constraints=known.budgets)
        return known, replace(plain, constraints=known.budgets)

    def _smooth_rates(self, stage: Stage) -> Vector:
        """Smooth rates where a fit ended, from the reports on its last request."""
        reports, request = self.run.reports_of(stage), stage.state.request
        for place, point in enumerate(request.points):
            if np.array_equal(point.params, stage.params):
                at = evaluate_point(stage.state.problem, stage.params, reports, place)
                return np.asarray(at.rates)
        reports = self.run.ask((Point(stage.params),), "how a model without budgets does")
        return np.asarray(evaluate_point(stage.state.problem, stage.params, reports).rates)

    def _choose(self, problem: Problem, free: Stage) -> tuple[Lane | None, Selection | None, Stage]:
        """Settle what is left open; read back what was chosen before a run was stopped.

        Returns the fit of the settings chosen, and the one without budgets at their L2 weight.
        """
        run, settings = self.run, self.settings
        if not settings.is_open:
            self.run = replace(run, method=with_objective(run.method, settings.objective))
            return None, None, free
        folder, session = run.session.folder, run.session
        path = None if folder is None else folder / SELECTION
        start = free.state, run.reports_of(free)
        with run.federation.phase("choose"):
            selection, lane, without = choose(
                run.clients, problem, run.method, settings, start, session.on_round
            )
        if path is not None and session.resume and path.exists():
            selection = read_json(path, Selection)
        elif path is not None:
            write_json(path, selection)
        session.on_message(selection.sentence)
        method = with_objective(run.method, objective_setting(selection.objective))
        self.run = replace(run, method=method, l2=float(selection.l2))
        if without is not None:
            free = Stage(Progress(without.state), (), "", without.reports)
        return lane, selection, free

    def _fit_plain(
        self, problem: Problem, free: Stage, chosen: Lane | None
    ) -> tuple[Stage, tuple[Start, ...]]:
        """The fit under the plain budgets, from the best of the starts that are compared."""
        run, method = self.run, self.run.method
        if self._has_margins(problem):
            method = replace(method, tolerance=method.tolerance or PLAIN_TOLERANCE)
        starts: tuple[Start, ...] = ()
        is_exact = method.is_exact(self.first.size)
        is_alone = chosen is not None or self.is_given or not is_exact
        n_starts = self.n_starts or (1 if is_alone else 2)
        if chosen is not None:
            state = method.restart(chosen.state, problem, chosen.reports)
        elif n_starts == 1:
            state = method.init(self.first, problem)
        else:
            state = method.restart(free.state, problem, run.reports_of(free))
        if n_starts > 1 and len(problem.constraints):
            others = {"first": self.first}
            others |= run.setup.model.other_starts(n_starts - 2, run.seed)
            with run.federation.phase("starts"):
                state, starts = best_start(method, state, others, run.clients, run.session.on_round)
        with run.federation.phase("fit"):
            stage = run.answered(run.fit(method, state))
        self.stages.append(stage)
        return stage, starts

    def _has_margins(self, problem: Problem) -> bool:
        return self.demands.confidence > 0 and len(problem.constraints) > 0


@dataclass(frozen=True)
class _Model:
    """A model and what it decides on training rows."""

    params: Vector
    state: Any
    hard: Vector
    confusion: Matrix
    confidence: float = 0.0


class _Enforcing:
    """Steps 3 to 5: margins, the tightened fit, and decisions within the bounds."""

    def __init__(
        self, solving: _Solving, solved: Solved, known: Enforced, plain: Stage, free: Any
    ) -> None:
        self.solving, self.run, self.demands = solving, solving.run, solving.demands
        self.solved, self.known, self.plain, self.free = solved, known, plain, free
        self.threshold = float(solving.run.setup.model.threshold)
        self.limits: Constraints | None = None  # on hard rates

    def enforce(self) -> Solved:
        """The model that the run ends with, and what is known of it."""
        solving, confidence = self.solving, self.demands.confidence
        looked = self._look()
        budgets = self.known.budgets.bounds
        model, tight = looked, None
        if confidence > 0:
            self.traces = self._bias_traces(self.first_report)
            tight = self._tightened(looked, confidence)
            model, tight = self._tighten(looked, tight, confidence)
        bounds = budgets if tight is None or model.confidence == 0 else tight.decided
        model = self._project(model, bounds, budgets, looked)
        exceeded = self._exceeded(model.hard)
        solving.notes += self._sentences(model, tight, exceeded)
        return replace(
            self.solved,
            params=model.params,
            state=model.state,
            exceeded=exceeded,
            drifts=self._drifts(model),
            price=self._price(looked, model),
            margins=self._margin_summary(model, tight),
            pooling=self._pooling_summary(model),
        )

    # What the plain fit does

    def _look(self) -> _Model:
        """How the plain model and the one without budgets decide; and the losses' curvature."""
        plain, free = self.plain, self.free
        points = [Point(plain.params, "decisions"), Point(free.params, "decisions")]
        if self._is_exact and self.demands.confidence > 0:
            points.append(loss_curvature(plain.state))
        with self.run.federation.phase("check"):
            reports = self.run.ask(points, "how models decide")
        problem = plain.state.problem
        self.without = evaluate_point(problem, free.params, reports, 1)
        shift = self.demands.shift
        if shift is not None:
            self.limits = rate_limits(self.known, self.without.rates, shift)
        self.bent = evaluate_point(problem, plain.params, reports, 2) if len(points) > 2 else None
        at = evaluate_point(problem, plain.params, reports)
        self.first_report = at
        return _Model(plain.params, plain.state, at.rates, confusions(at))

    @property
    def _is_exact(self) -> bool:
        return bool(self.run.method.is_exact(self.plain.params.size))

    def _bias_traces(self, at: Evaluation) -> Vector | None:
        """The traces of all rates by which multipliers become biases; None if not known."""
        sent = all(said.sends_spread for said in self.run.introductions.values())
        if self.bent is None or not sent:
            return None
        factor = inverse_factor(self.bent, self.plain.state)
        if factor is None:
            return None
        question = Point(self.plain.params, extras=(GradientSpread(factor),))
        try:
            with self.run.federation.phase("tighten"):
                reports = self.run.ask((question,), "how much gradients of rates vary")
        except ReportError:  # a client of your own need not know the question
            return None
        told = evaluate_point(at.problem, self.plain.params, reports).reports
        return np.concatenate([report.extras["gradient_spread"] for report in told])

    def _bias(self, state: Any) -> Vector:
        """By how much each budget's row is expected to be larger on new rows."""
        constraints: Constraints = state.problem.constraints
        net = constraints.weigh_rates(state.row_weights)
        if self.traces is not None:
            return self.known.budgets.apply(net * self.traces)
        sampling = sample(self.known.own, self.known.counts, self.first_report.rates)
        return OPTIMISM * sampling.deviation * np.sign(self.known.budgets.apply(net))

    def _tightened(self, plain: _Model, confidence: float) -> Tightened:
        smooth = self._smooth(self.plain)
        rows = self.known.budgets.rows
        new = rows_per_new_row(self.plain.state.problem, rows, self.demands.new_rows)
        bias = self._bias(plain.state)
        return tightened(self.known, smooth, plain.hard, bias, confidence, new)

    def _smooth(self, stage: Stage) -> Vector:
        return self.solving._smooth_rates(stage)

    # Tighten

    def _tighten(
        self, plain: _Model, tight: Tightened, confidence: float
    ) -> tuple[_Model, Tightened]:
        """The model under the largest margins that it can bear, the whole ones first."""
        if (self.known.budgets.bounds - tight.smooth).max(initial=0.0) <= KEPT:
            return replace(plain, confidence=confidence), tight
        found = self._fit_tight(plain, tight, confidence)
        if found is not None or not self._is_exact:
            return (plain if found is None else found), tight
        budgets = self.known.budgets.bounds
        rungs = [rung for rung in RUNGS if rung < confidence] + [confidence]
        best, low, high = (plain, tight), -1, len(rungs)
        if not tight.can_tell.any():  # every rung would have the plain bounds
            return best
        if tight.can_tell.all():  # the last rung is the fit that failed
            high = len(rungs) - 1
            middle = (low + high) // 2
        else:
            middle = high - 1
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
        """The model under tightened bounds; None if it costs too much or does not converge."""
        solving, run, state = self.solving, self.run, self.plain.state
        constraints = state.problem.constraints
        bounds = np.append(tight.smooth, constraints.bounds[len(tight.smooth) :])
        problem = replace(state.problem, constraints=constraints.with_bounds(bounds))
        method = run.method
        if self._is_exact:
            one_stage = method.objective != "max"
            rounds = (TIGHT_ROUNDS, 0 if one_stage else TIGHT_ROUNDS)
            method = replace(
                method, tolerance=TIGHT_TOLERANCE, rounds=rounds, max_penalty=MAX_PENALTY
            )
        begun = method.restart(state, problem, run.reports_of(self.plain))
        with run.federation.phase("tighten"):
            stage = run.answered(run.fit(method, begun, f"fit-{len(solving.stages)}-tightened"))
        solving.stages.append(stage)
        inside = evaluate_violation(problem, self.solving._smooth_rates(stage)) <= 1e-3
        if not inside or (stage.state.status != "converged" and self._is_exact):
            return None
        with run.federation.phase("check"):
            reports = run.ask((Point(stage.params, "decisions"),), "how the model decides")
        at = evaluate_point(problem, stage.params, reports)
        found = _Model(stage.params, stage.state, at.rates, confusions(at), confidence)
        return None if self._costs_too_much(found, plain) else found

    def _accuracy(self, confusion: Matrix) -> float:
        """Share decided correctly; with a threshold P wrong decisions weigh as P and 1 - P."""
        _, false_positive, false_negative, _ = confusion.sum(axis=0)
        P, n = self.threshold, confusion.sum()
        return float(1.0 - 2.0 * ((1.0 - P) * false_negative + P * false_positive) / n)

    def _costs_too_much(self, model: _Model, plain: _Model) -> bool:
        lost = self._accuracy(plain.confusion) - self._accuracy(model.confusion)
        return bool(lost > self.demands.max_accuracy_loss)

    # Project

    def _project(self, model: _Model, bounds: Vector, budgets: Vector, plain: _Model) -> _Model:
        """Bring decisions within ``bounds``; within the budgets at least."""
        found = self._projected(model, bounds, "projected")
        if found is not None and self._costs_too_much(found, plain):
            found = None
        model = model if found is None else found
        if self._exceeded(model.hard):
            again = self._projected(model, budgets, "within")
            if again is not None and self._outside(again) < self._outside(model):
                model = again
        return model

    def _outside(self, model: _Model) -> float:
        return sum(self._exceeded(model.hard).values())

    def _projected(self, model: _Model, bounds: Vector, name: str) -> _Model | None:
        """The smallest change that brings decisions within bounds; None if none is needed."""
        problem = replace(self.plain.state.problem, constraints=self._decided_rows(bounds))
        if (problem.constraints.violations(model.hard) <= KEPT).all():
            return None
        method = RestoreDecisions(exact=self._is_exact)
        folder = f"fit-{len(self.solving.stages)}-{name}"
        with self.run.federation.phase("project"):
            stage = self.run.fit(method, method.init(model.params, problem), folder)
        self.solving.stages.append(stage)
        state: DecisionState = stage.state
        if not state.decided.size:
            return None
        return replace(model, params=state.params, hard=state.decided, confusion=state.confusion)

    def _decided_rows(self, bounds: Vector) -> Constraints:
        """Estimates within ``bounds``, own rows that can tell, and the rates' limits."""
        known = self.known
        own = np.flatnonzero(known.tells & known.is_pooled)
        rows = known.budgets.with_bounds(bounds).plus(known.own.take(own))
        return rows if self.limits is None else rows.plus(self.limits)

    def _exceeded(self, hard: Vector) -> dict[str, float]:
        """What decisions exceed: budgets that they must keep, and limits on rates, by name."""
        rows = self.known.decisive
        rows = rows if self.limits is None else rows.plus(self.limits)
        return exceeded_by(rows, hard, self._tolerance)

    @property
    def _tolerance(self) -> float:
        """Counts are exact; smooth rates, which stand in where a client counts none, are not."""
        counted = not np.isnan(self.first_report.reports[0].loss) and all(
            report.confusion is not None for report in self.first_report.reports
        )
        return KEPT if counted else FEASIBILITY_TOLERANCE

    # What is reported

    def _drifts(self, model: _Model) -> Vector | None:
        """By how much each rate is expected to differ on new rows, at the model's multipliers."""
        if self.demands.confidence == 0 or self.traces is None:
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
        cut = model.confidence if model.confidence < asked else None
        ordered = sorted(needed.items(), key=lambda item: -item[1])
        short = {name: times if np.isfinite(times) else None for name, times in ordered}
        return MarginSummary(asked, cut, short)

    def _pooling_summary(self, model: _Model) -> PoolingSummary | None:
        known = self.known
        if not known.pools:
            return None
        weights: dict[ClientId, float] = {}
        tells: dict[ClientId, bool] = {}
        exceed: dict[ClientId, None] = {}
        over = known.own.violations(model.hard)
        for i, row in enumerate(known.own.rows):
            if row.client is None:
                continue
            weights[row.client] = min(weights.get(row.client, 1.0), round(known.weight[i], 4))
            tells[row.client] = tells.get(row.client, True) and bool(known.tells[i])
            if over[i] > KEPT and not known.tells[i]:
                exceed[row.client] = None
        spread = {name: round(value, 4) for name, value in known.spread.items()}
        deciding = tuple(client for client, can in tells.items() if can)
        return PoolingSummary(spread, weights, deciding, tuple(exceed), known.odd)

    def _sentences(
        self, model: _Model, tight: Tightened | None, exceeded: Mapping[str, float]
    ) -> list[str]:
        said = [*self._on_margins(model, tight), *self._on_pooling(model)]
        for sentence in said:
            self.run.session.on_message(sentence)
        if exceeded:  # in `notes`; whoever prints a run ends with its exit code and the ways out
            listed = [f"{name} by {by:.3g}" for name, by in exceeded.items()]
            more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
            said.append(
                f"Decisions on training rows exceed {', '.join(listed[:5])}{more}. A larger "
                "budget, more rows, or `--scope global` may help."
            )
        return said

    def _on_margins(self, model: _Model, tight: Tightened | None) -> list[str]:
        if tight is None:
            return []
        said, asked = [], self.demands.confidence
        if model.confidence < asked:
            reached = f"made for {model.confidence:g}" if model.confidence else "left out"
            said.append(
                f"Margins for {asked:g} confidence were {reached}: with more, training does "
                f"not converge or loses over {self.demands.max_accuracy_loss:g} of accuracy "
                "(--max-accuracy-loss)."
            )
        summary = self._margin_summary(model, tight)
        rows_short = {} if summary is None or self.known.pools else summary.rows_short
        never = [name for name, times in rows_short.items() if times is None]
        if never:
            said.append(
                f"No number of rows gives {asked:g} confidence at {_listed(never)}: the budget "
                "there leaves no margin. Allow a larger budget."
            )
        short = {name: times for name, times in rows_short.items() if times is not None}
        if short:
            listed = [
                f"{times_as_many(times)} times as many at {name!r}" for name, times in short.items()
            ]
            more = f" and less at {len(listed) - MOST_TOLD} more" if len(listed) > MOST_TOLD else ""
            kinds = {with_label(row.kind) for row in self.known.budgets.rows}  # type: ignore[arg-type]
            said.append(
                f"Rows{kinds.pop() if len(kinds) == 1 else ''} are too few for {asked:g} "
                f"confidence: it would take about {', '.join(listed[:MOST_TOLD])}{more}. A larger "
                "budget or `--scope global` needs fewer."
            )
        return said

    def _on_pooling(self, model: _Model) -> list[str]:
        pooled = self._pooling_summary(model)
        if pooled is None:
            return []
        n = len(pooled.weights)
        n_over = len(pooled.exceed_on_own_rows)
        exceed = "exceeds" if n_over == 1 else "exceed"
        over = f"; {n_over} of them {exceed} a budget on their own training rows" if n_over else ""
        said = [
            f"Budgets of {n - len(pooled.own_rows_decide)} of {n} clients, whose rows are too few "
            f"to tell, are kept by estimates over all clients{over} (--pooling none: by own rows)."
        ]
        if pooled.odd:
            said.append(
                f"{_listed(pooled.odd)} differ from the other clients by more than chance: their "
                "estimates may be too low."
            )
        return said


def evaluate_violation(problem: Problem, rates: Vector) -> float:
    """The largest violation of a problem's rows at some rates."""
    return float(problem.constraints.violations(rates).max(initial=-np.inf))


def _price_step(clients: Sequence[ClientId], confusion: Matrix) -> PriceStep:
    def share(counts: Vector) -> Share:
        true_negative, false_positive, _, true_positive = counts
        n = max(float(counts.sum()), 1e-300)
        return Share(
            float(true_negative + true_positive) / n, float(false_positive + true_positive) / n
        )

    overall = share(confusion.sum(axis=0))
    each = {client: share(own) for client, own in zip(clients, confusion, strict=True)}
    return PriceStep(overall.accuracy, overall.selected, each)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12]))
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
