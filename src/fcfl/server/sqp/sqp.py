"""Our fast method: sequential quadratic programming for the min-max problem under budgets.

Each round linearises all losses and violations at the iterate, takes the curvature of the
Lagrangian (exact, a sum over clients, or learnt from gradients), and solves one small quadratic
programme for the step and the multipliers. Stage 1 minimises the largest loss; stage 2 the mean
loss with no client above its loss of stage 1 (plus a small slack, without which the feasible set
has no interior). With a fixed temperature instead of the maximum, one stage is enough: its
optimum is Pareto-optimal.

A request carries the full step with everything the next round needs, and shorter steps with values
only: when the full step is refused, the line search is already answered.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fcfl._checks import (
    check_choice,
    check_count,
    check_non_negative,
    check_params,
    check_positive,
    check_stage_rounds,
)
from fcfl._types import Point, Reports, Request, Vector
from fcfl.server.conflict import conflict_sentence
from fcfl.server.method import FEASIBILITY_TOLERANCE, RoundInfo, Status, describe_round
from fcfl.server.problem import Evaluation, Problem, evaluate_point
from fcfl.server.sqp.elastic import FIRMER, PENALTY_LIMIT, find_step, is_stuck
from fcfl.server.sqp.lagrangian import (
    Multipliers,
    active_grads,
    curvature_weights,
    lagrangian_grad,
    lagrangian_hessian,
    loss_weights,
)
from fcfl.server.sqp.merit import Merit, Search
from fcfl.server.sqp.quasi_newton import Curvature, Exact, LimitedMemory, no_memory
from fcfl.server.sqp.subproblem import Step, Target, kkt_residual

EXACT_PARAMS = 2000  # up to here a client sends its n × n part of the curvature
_SHORTEST = 1e-12  # step length at which the search gives up
_TOLERANCE = 1e-6
_EXACT_ROUNDS, _LEARNT_ROUNDS = 200, 1000  # in each stage
_NEAR = 3e-3  # KKT residual below which the rows with weight are taken for the active ones
_STIFFNESS = 1e4  # of the curvature while landing
_FIRMEST = 1e8  # penalty while landing; far above it programmes cannot be solved
_LANDING, _LANDING_LEARNT = 5, 8  # last rounds of a stage that will be cut short
_NEARLY = 100.0  # times the feasibility: from this residual on a stage may end without landing


@dataclass(frozen=True)
class SQPState:
    """The iterate, the step being tried, the multipliers, and what has been learnt of curvature.

    ``search.lengths[i]`` is the step length of the request's point ``i``.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    stage: int
    rounds: tuple[int, int]
    caps: Vector
    penalty: float
    direction: Vector
    search: Search
    loss_weights: Vector
    row_weights: Vector
    lagrangian_grad: Vector
    memory: LimitedMemory
    kkt: float
    prices: Vector
    worst_weights: Vector
    cut_short: bool

    @property
    def multipliers(self) -> Multipliers:
        """The weights under which the Lagrangian's curvature is asked for or learnt."""
        return Multipliers(self.loss_weights, self.row_weights)


@dataclass(frozen=True)
class SQP:
    r"""Options of the fast method.

    Parameters
    ----------
    objective
        ``"max"`` minimises the largest loss (the paper); a temperature :math:`\delta` the smooth
        maximum: small is near the maximum, infinite is the mean of the clients' losses.
    curvature
        ``"exact"``: each client sends its part of the Lagrangian's Hessian; ``"lbfgs"``: learnt
        from gradients, for any number of parameters; ``"auto"``: exact up to 2,000 parameters.
    rounds
        At most so many exchanges in each stage; by default 200 with exact curvature, 1,000 with
        learnt.
    tolerance
        KKT residual at which a stage ends; by default 1e-6.
    feasibility
        A stage ends only when no budget is violated by more than this, nor by more than
        ``tolerance``.
    lookahead
        Shorter step lengths that are asked for together with the full step.
    rich
        So many of the lengths, the full one first, are asked for with everything the next iterate
        needs; the others with values only. Taking one of those costs a second round. By default 3
        with exact curvature, 2 otherwise.
    penalty
        Largest multiplier of a budget, and first weight of its violation in the merit. Raised when
        a budget needs more; with learnt curvature the weight is also lowered.
    slack
        How much a client's loss may rise in stage 2.
    patience
        A step is compared with the worst merit of so many last iterates, so that the curvature of
        the constraints does not block full steps (the Maratos effect).
    memory
        So many of the last steps are learnt from, when curvature is.
    """

    objective: Literal["max"] | float = "max"
    curvature: Literal["auto", "exact", "lbfgs"] = "auto"
    rounds: tuple[int, int] | None = None
    tolerance: float | None = None
    feasibility: float = FEASIBILITY_TOLERANCE
    lookahead: tuple[float, ...] = (0.5, 0.2, 0.05, 0.01)
    rich: int | None = None
    penalty: float = 10.0
    slack: float = 5e-5
    patience: int = 10
    memory: int = 30
    name: str = "sqp"

    def __post_init__(self) -> None:
        if isinstance(self.objective, str):
            check_choice("objective", self.objective, ("max",))
        elif not self.objective > 0:
            raise ValueError(
                f"`objective` must be 'max' or a positive number, got {self.objective!r}."
            )
        check_choice("curvature", self.curvature, ("auto", "exact", "lbfgs"))
        check_positive("tolerance", self._tolerance)
        check_positive("feasibility", self.feasibility)
        check_positive("penalty", self.penalty)
        check_non_negative("slack", self.slack)
        for length in self.lookahead:
            if not 0 < length < 1:
                raise ValueError(f"`lookahead` must hold lengths between 0 and 1, got {length!r}.")
        if self.rounds is not None:
            check_stage_rounds("rounds", self.rounds)
        for name in ("patience", "memory"):
            check_count(name, getattr(self, name))
        rich = 1 if self.rich is None else check_count("rich", self.rich)
        first = 1 if self.rounds is None else self.rounds[0]
        if min(first, self.patience, self.memory, rich) < 1:
            raise ValueError(
                "`rounds` of stage 1, `patience`, `memory` and `rich` must be at least 1."
            )

    def fraction_done(self, state: SQPState) -> float:
        """How far the residual has come on the way to the tolerance, in powers of ten."""
        if state.status != "running":
            return 1.0
        decades = np.log10(max(state.kkt, self._tolerance) / self._tolerance)
        part = 1.0 - min(decades / 6.0, 1.0)
        stages = 2 if self.objective == "max" and len(state.problem.clients) > 1 else 1
        return float((state.stage - 1 + part) / stages)

    @property
    def _tolerance(self) -> float:
        return _TOLERANCE if self.tolerance is None else self.tolerance

    def _limit(self, state: SQPState) -> int:
        """The most rounds of the present stage."""
        if self.rounds is not None:
            return self.rounds[state.stage - 1]
        return _EXACT_ROUNDS if self.is_exact(state.params.size) else _LEARNT_ROUNDS

    def is_exact(self, n_params: int) -> bool:
        """Whether clients send curvature."""
        return self.curvature == "exact" or (self.curvature == "auto" and n_params <= EXACT_PARAMS)

    def init(self, params: Vector, problem: Problem) -> SQPState:
        """Ask for everything at ``params``, every client weighing the same."""
        params = check_params(params)
        n_clients, n_rows = len(problem.clients), len(problem.constraints)
        state = SQPState(
            problem=problem,
            params=params,
            request=Request(()),
            status="running",
            message="",
            stage=1,
            rounds=(0, 0),
            caps=np.zeros(0),
            penalty=self.penalty,
            direction=np.zeros(params.size),
            search=Search((1.0,), True, (), (0.0, np.zeros(0)), np.zeros(0)),
            loss_weights=np.full(n_clients, 1.0 / n_clients),
            row_weights=np.zeros(n_rows),
            lagrangian_grad=np.zeros(0),
            memory=no_memory(params.size),
            kkt=np.inf,
            prices=np.zeros(n_rows),
            worst_weights=np.zeros(n_clients),
            cut_short=False,
        )
        return replace(state, request=self._request(state))

    def step(self, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
        """Take the longest acceptable step of the request, or search on."""
        points = [
            evaluate_point(state.problem, point.params, reports, index)
            for index, point in enumerate(state.request.points)
        ]
        stage = state.stage
        first, second = state.rounds
        state = replace(state, rounds=(first + (stage == 1), second + (stage == 2)))
        search, target = state.search, self._target(state)
        passing = (i for i, at in enumerate(points) if search.accepts(i, target.merit(at)))
        accepted = next(passing, None)
        if accepted is None:
            shown, length = points[-1], 0.0
            state = self._shorten(state, min(search.lengths) / 4, settled=False)
        else:
            shown, length = points[accepted], search.lengths[accepted]
            if state.request.points[accepted].want == "values":
                state = self._shorten(state, length, settled=True)
            else:
                state = self._arrive(replace(state, search=search.ended(length)), shown)
        return state, describe_round(shown, round=sum(state.rounds), stage=stage, step=length)

    # --- the line search --------------------------------------------------------------------------

    def _shorten(self, state: SQPState, length: float, *, settled: bool) -> SQPState:
        """Ask for a shorter step: a known good one, or another look further in."""
        if length < _SHORTEST:
            return self._finish_stage(replace(state, cut_short=True), None)
        lengths = (length,) if settled else (length, *(length * part for part in self.lookahead))
        state = replace(state, search=replace(state.search, lengths=lengths, settled=settled))
        if self._out_of_rounds(state):
            return self._finish_stage(replace(state, cut_short=True), None)
        return replace(state, request=self._request(state))

    def _request(self, state: SQPState) -> Request:
        """The longest steps with all the next iterate needs, the others with values."""
        exact = self.is_exact(state.params.size)
        weights = curvature_weights(state.problem, state.multipliers) if exact else None
        rich = (3 if exact else 2) if self.rich is None else self.rich
        if self._rounds_left(state) <= max(self._landing_rounds(state), 1):
            rich = len(state.search.lengths)  # there is no second round to take a shorter step in
        points = []
        for position, length in enumerate(state.search.lengths):
            params = state.params + length * state.direction
            if position >= rich:
                points.append(Point(params, "values"))
            else:
                points.append(Point(params, "curvature" if exact else "gradients", weights))
        return Request(tuple(points))

    # --- a new iterate ----------------------------------------------------------------------------

    def _arrive(self, state: SQPState, at: Evaluation) -> SQPState:
        """Make ``at`` the iterate, and solve for the next step."""
        curvature: Curvature
        if self.is_exact(at.params.size):
            target, near = self._target(state), state.kkt * state.loss_weights.sum() <= _NEAR
            active = active_grads(state.multipliers, target, at) if near else None
            hessian = lagrangian_hessian(state.multipliers, target, at)
            curvature = Exact.from_hessian(hessian, active)
        else:
            state = replace(state, memory=self._learn(state, at))
            curvature = state.memory
        return self._aim(replace(state, params=at.params), at, curvature)

    def _aim(self, state: SQPState, at: Evaluation, curvature: Curvature) -> SQPState:
        """Solve for the next step, and see whether the stage is over."""
        target = self._target(state)
        if 1 <= self._rounds_left(state) <= self._landing_rounds(state):
            return self._land(state, at, curvature)
        step, penalty, curvature = find_step(
            at, target, curvature, state.penalty, state.loss_weights
        )
        if isinstance(curvature, LimitedMemory):
            state = replace(state, memory=curvature)
        kkt = kkt_residual(at, target, step)
        n_caps = state.caps.size
        state = replace(
            state,
            penalty=penalty,
            direction=step.direction,
            search=self._search(state, target.merit(at), step, penalty),
            loss_weights=loss_weights(target, at, step),
            row_weights=step.constraint_weights[n_caps:],
            lagrangian_grad=step.lagrangian_grad,
            kkt=kkt,
        )
        if kkt <= self._tolerance and at.largest_violation <= self.feasibility:
            return self._finish_stage(state, (at, curvature))
        if is_stuck(at, target, step, penalty, self._tolerance):
            if penalty >= PENALTY_LIMIT:
                return self._give_up(state, at)
            state = replace(_anew(state), penalty=FIRMER * penalty)
            return self._aim(state, at, curvature)
        if self._out_of_rounds(state):
            return self._finish_stage(replace(state, cut_short=True), (at, curvature))
        return replace(state, request=self._request(state))

    def _search(self, state: SQPState, merit: Merit, step: Step, penalty: float) -> Search:
        """All lengths, to be compared with the last merits; a firmer penalty begins anew.

        With learnt curvature penalties are lowered when they refuse full steps; with the exact one
        that cost rounds (measured).
        """
        goes_on = penalty <= state.penalty
        before = state.search.merits if goes_on else ()
        penalties = np.full(step.constraint_weights.size, penalty)
        known = goes_on and state.search.penalties.size == penalties.size
        met = step.shortfall <= FEASIBILITY_TOLERANCE
        if known and met and not self.is_exact(state.params.size):
            penalties = np.minimum(state.search.next_penalties(step.constraint_weights), penalty)
        return Search(
            lengths=(1.0, *self.lookahead),
            settled=False,
            merits=(*before, merit)[-self.patience :],
            promise=(step.gain, step.reliefs),
            penalties=penalties,
        )

    def _land(self, state: SQPState, at: Evaluation, curvature: Curvature) -> SQPState:
        """A step that does little but meet the linearised budgets: losses hardly count.

        While a budget is exceeded, the caps of stage 2 do not count either. What is known of
        multipliers and curvature stays as it is.
        """
        stiffness = max(1.0, min(_STIFFNESS, _FIRMEST / state.penalty))
        stiff, firm = curvature.scaled(stiffness), stiffness * state.penalty
        target, n_caps = self._target(state), state.caps.size
        met = at.largest_violation <= FEASIBILITY_TOLERANCE
        kept = target if met else replace(target, caps=np.zeros(0))
        step, firm, _ = find_step(at, kept, stiff, firm, stiffness * state.loss_weights)
        reliefs = step.reliefs[-at.violations.size :]
        of_caps = np.zeros(n_caps)
        search = Search(
            lengths=(1.0, *self.lookahead),
            settled=False,
            merits=(target.merit(at),),
            promise=(step.gain, np.append(of_caps, reliefs)),
            penalties=np.append(of_caps, np.full(reliefs.size, firm)),
        )
        state = replace(state, direction=step.direction, search=search)
        return replace(state, request=self._request(state))

    def _learn(self, state: SQPState, at: Evaluation) -> LimitedMemory:
        """One more pair: the step taken, and how the Lagrangian's gradient changed along it."""
        landed = self._rounds_left(state) < self._landing_rounds(state)
        if state.lagrangian_grad.size == 0 or landed:
            return state.memory
        taken = at.params - state.params
        here = lagrangian_grad(state.multipliers, self._target(state), at)
        change = here - state.lagrangian_grad
        foreseen = -state.search.lengths[0] * state.lagrangian_grad
        return state.memory.updated(taken, change, foreseen, self.memory)

    # --- stages -----------------------------------------------------------------------------------

    def _target(self, state: SQPState) -> Target:
        if state.stage == 2:
            return Target(np.inf, state.caps)
        return Target(None if self.objective == "max" else float(self.objective), state.caps)

    def _rounds_left(self, state: SQPState) -> int:
        return self._limit(state) - state.rounds[state.stage - 1]

    def _out_of_rounds(self, state: SQPState) -> bool:
        return self._rounds_left(state) <= 0

    def _landing_rounds(self, state: SQPState) -> int:
        """How many of the stage's last rounds go to keeping the budgets, when it will be cut short.

        Far from an optimum steps are long, and budgets that bend are exceeded after each of them.
        More of them would leave too few to get near the budgets first.
        """
        if len(state.problem.constraints) == 0:
            return 0
        exact, limit = self.is_exact(state.params.size), self._limit(state)
        near = state.kkt <= max(_NEAR if exact else 0.0, _NEARLY * self.feasibility)
        most = _LANDING if exact else max(_LANDING, min(_LANDING_LEARNT, limit // 4))
        return 0 if near else min(most, limit // 2)

    def _finish_stage(self, state: SQPState, here: tuple[Evaluation, Curvature] | None) -> SQPState:
        """Go on to stage 2, or end. ``here`` is the iterate, when it was just evaluated."""
        if state.stage == 1:
            state = replace(state, prices=state.row_weights, worst_weights=state.loss_weights)
            if here is not None and self._wants_pareto(state, here[0]):
                at, curvature = here
                caps = at.losses + self.slack
                return self._aim(replace(_anew(state), stage=2, caps=caps), at, curvature)
        counts = f"{state.rounds[0]} + {state.rounds[1]} rounds"
        if state.cut_short:
            message = f"Stopped at a KKT residual of {state.kkt:.1e} after {counts}."
            return replace(state, status="stopped", message=message)
        message = f"KKT residual {state.kkt:.1e} after {counts}."
        return replace(state, status="converged", message=message)

    def _wants_pareto(self, state: SQPState, at: Evaluation) -> bool:
        """Whether there is a stage 2, and a point that keeps the budgets for it to start from."""
        met = at.largest_violation <= self.feasibility
        several = self.objective == "max" and len(state.problem.clients) > 1
        return several and met and self._limit(replace(state, stage=2)) > 0

    def _give_up(self, state: SQPState, at: Evaluation) -> SQPState:
        """End at a stationary point of the violation; prices there would say nothing."""
        if state.stage == 2:
            return self._finish_stage(replace(state, cut_short=True), None)
        message = conflict_sentence(at, state.row_weights)
        weights = state.loss_weights
        return replace(state, status="infeasible", message=message, worst_weights=weights)


def _anew(state: SQPState) -> SQPState:
    """Without the merits of past iterates."""
    return replace(state, search=replace(state.search, merits=()))
